"""Machines of JSON values, arrays and objects over a grammar."""

import json
from collections.abc import Iterable
from typing import Final

from agentree.runtime.constraint.decimals import decimals
from agentree.runtime.constraint.forms import ArrayForm, Counts, ListTails, ObjectForm, Tails
from agentree.runtime.constraint.grammar import Grammar
from agentree.runtime.constraint.machines import (
    QUOTE,
    Machine,
    Node,
    Nodes,
    Number,
    Quoted,
    Words,
)
from agentree.runtime.constraint.numbers import Numbers
from agentree.runtime.constraint.spelling import quote
from agentree.runtime.constraint.strings import Strings
from agentree.runtime.constraint.text import Text
from agentree.runtime.constraint.values import Arrays, Objects

DEEPEST: Final = 64
"""Values nested deeper are written in their shortest form."""

COMMA, _, OPEN_LIST, CLOSE_LIST, OPEN, CLOSE = b",:[]{}"
_DIGITS = b"-0123456789"
_FIRST: Final = (*b'"-0123456789ntf[{',)


class Structure:
    """All machines of one grammar."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.words = Words()
        self.values: dict[int, ValueMachine] = {}
        self.colon = Colon(self)
        self._texts: dict[Strings, Quoted] = {}
        self._numbers: dict[Numbers, Number] = {}
        self._arrays: dict[Arrays, ArrayMachine] = {}
        self._objects: dict[Objects, ObjectMachine] = {}

    def value(self, number: int, parent: Node) -> Node:
        """The position before a value of a set."""
        if parent.depth > DEEPEST:
            return self.words.node((self.grammar.shortest(number) or b"", 0), parent)
        machine = self.values.get(number)
        if machine is None:
            machine = self.values[number] = ValueMachine(self, number)
        return machine.node(0, parent)

    def text(self, strings: Strings) -> Quoted | None:
        """The machine of a set of strings, None if it is void."""
        found = self._texts.get(strings)
        if found is None:
            text = self.grammar.text(strings)
            if text.void:
                return None
            found = self._texts[strings] = Quoted(text)
        return found

    def number(self, members: Numbers) -> Number:
        """The machine of a set of numbers."""
        found = self._numbers.get(members)
        if found is None:
            found = self._numbers[members] = Number(decimals(members))
        return found

    def array(self, form: ArrayForm) -> "ArrayMachine":
        """The machine of an array form."""
        found = self._arrays.get(form.shape)
        if found is None:
            found = self._arrays[form.shape] = ArrayMachine(self, form)
        return found

    def object(self, form: ObjectForm) -> "ObjectMachine":
        """The machine of an object form."""
        found = self._objects.get(form.shape)
        if found is None:
            found = self._objects[form.shape] = ObjectMachine(self, form)
        return found

    def machines(self) -> Iterable[Machine]:
        """All of them."""
        yield self.words
        yield self.colon
        yield from self.values.values()
        yield from self._texts.values()
        yield from self._numbers.values()
        yield from self._arrays.values()
        yield from self._objects.values()


class ValueMachine(Machine):
    """Before a value: its first byte tells its type."""

    def __init__(self, structure: Structure, number: int) -> None:
        super().__init__()
        grammar = structure.grammar
        value = grammar.book.value(number)
        self._shortest = grammar.shortest(number) or b""
        self._words = structure.words
        self._scalars = {
            w[0]: w for w, on in ((b"null", value.null), (b"true", value.true), (b"false", value.false)) if on
        }
        self._text = structure.text(value.strings)
        self._number = None if value.numbers.void else structure.number(value.numbers)
        arrays = [structure.array(grammar.array(a)) for a in value.arrays]
        objects = [structure.object(grammar.form(o)) for o in value.objects]
        self._arrays = [m for m in arrays if not m.void]
        self._objects = [m for m in objects if not m.void]

    def step(self, state: int, byte: int, parent: Node) -> Nodes:
        """Into the machine of the type."""
        if byte == QUOTE:
            return (self._text.node((0, 0, 0), parent),) if self._text is not None else ()
        if byte == OPEN:
            return tuple(m.node(m.opened, parent) for m in self._objects)
        if byte == OPEN_LIST:
            return tuple(m.node(m.opened, parent) for m in self._arrays)
        if byte in _DIGITS:
            return self._number.step((0, 0), byte, parent) if self._number is not None else ()
        word = self._scalars.get(byte)
        return () if word is None else (self._words.node((word, 1), parent),)

    def ending(self, state: int) -> bytes:
        """The shortest value."""
        return self._shortest

    def candidates(self, state: int) -> Iterable[int]:
        """First bytes of values."""
        return _FIRST

    def gap(self, state: int) -> bool:
        """Blanks may stand before a value."""
        return True


# (phase, items so far, counts of `contains`, bytes of the separator so far)
ListState = tuple[str, int, Counts, int]


class ArrayMachine(Machine):
    """Phases: `[` read; an item read; inside the separator; before an item after a separator."""

    deepens = 1

    def __init__(self, structure: Structure, form: ArrayForm) -> None:
        super().__init__()
        self._structure = structure
        self._form = form
        self._tails = ListTails(structure.grammar, form)
        self._comma = structure.grammar.style.comma
        self.void = self._tails.whole() is None
        self.opened: ListState = ("[", 0, form.start, 0)
        self._options: dict[tuple[int, Counts], list[tuple[int, int, Counts]]] = {}

    def _next(self, index: int, counts: Counts) -> list[tuple[int, int, Counts]]:
        """Sets that the next item may be in, with index and counts after it."""
        key = (index, counts)
        found = self._options.get(key)
        if found is None:
            found = []
            form = self._form
            after = form.grown(index)
            if form.high is None or index < form.high:
                for number, counted in form.options(index, counts):
                    if self._structure.grammar.live(number) and self._tails.tail(after, counted) is not None:
                        found.append((number, after, counted))
            self._options[key] = found
        return found

    def _closes(self, index: int, counts: Counts) -> bool:
        return self._tails.tail(index, counts) == b"]"

    def _items(self, state: ListState, parent: Node) -> Iterable[Node]:
        _, index, counts, _ = state
        for number, after, counted in self._next(index, counts):
            yield self._structure.value(number, self.node(("a", after, counted, 0), parent))

    def step(self, state: ListState, byte: int, parent: Node) -> Nodes:
        """A bracket, a byte of a separator, or the first byte of an item."""
        phase, index, counts, at = state
        if phase in "[a" and byte == CLOSE_LIST:
            return (parent,) if self._closes(index, counts) else ()
        if phase == "a":
            if byte != COMMA or not self._next(index, counts):
                return ()
            return self._separated(index, counts, 1, parent)
        if phase == ",":
            return self._separated(index, counts, at + 1, parent) if self._comma[at] == byte else ()
        return tuple(
            n for i in self._items(state, parent) for n in i.machine.step(i.state, byte, i.parent or parent)
        )

    def _separated(self, index: int, counts: Counts, at: int, parent: Node) -> Nodes:
        return (self.node(("," if at < len(self._comma) else "i", index, counts, at), parent),)

    def ending(self, state: ListState) -> bytes:
        """The fewest items and the bracket."""
        phase, index, counts, at = state
        tail = self._tails.tail(index, counts) or b""
        if phase == "a":
            return tail
        if phase == "[":
            return tail.removeprefix(self._comma)
        if tail == b"]":
            number, after, counted = min(
                self._next(index, counts),
                key=lambda o: (
                    len(self._structure.grammar.shortest(o[0]) or b"")
                    + len(self._tails.tail(o[1], o[2]) or b"")
                ),
            )
            tail = (
                self._comma
                + (self._structure.grammar.shortest(number) or b"")
                + (self._tails.tail(after, counted) or b"")
            )
        return tail[at:]

    def candidates(self, state: ListState) -> Iterable[int]:
        """Brackets, commas, blanks, or first bytes of values."""
        phase, _, _, at = state
        if phase == "a":
            return (COMMA, CLOSE_LIST)
        if phase == ",":
            return (self._comma[at],)
        return (CLOSE_LIST, *_FIRST) if phase == "[" else _FIRST

    def gap(self, state: ListState) -> bool:
        """Blanks may stand on both sides of brackets and commas."""
        return state[0] != ","


# (set of the value, bytes of the separator so far)
class Colon(Machine):
    """Between a key and its value."""

    def __init__(self, structure: Structure) -> None:
        super().__init__()
        self._structure = structure
        self._colon = structure.grammar.style.colon

    def step(self, state: tuple[int, int], byte: int, parent: Node) -> Nodes:
        """A byte of the separator."""
        number, at = state
        if self._colon[at] != byte:
            return ()
        if at + 1 < len(self._colon):
            return (self.node((number, at + 1), parent),)
        return (self._structure.value(number, parent),)

    def ending(self, state: tuple[int, int]) -> bytes:
        """The separator and the shortest value."""
        return self._colon[state[1] :] + (self._structure.grammar.shortest(state[0]) or b"")

    def candidates(self, state: tuple[int, int]) -> Iterable[int]:
        """The next byte of the separator."""
        return (self._colon[state[1]],)

    def gap(self, state: tuple[int, int]) -> bool:
        """Blanks may stand before the colon."""
        return state[1] == 0


class UndeclaredKey(Machine):
    """Inside an undeclared key: (state, place inside a character, length, the key if it must be known)."""

    def __init__(self, owner: "ObjectMachine", text: Text) -> None:
        super().__init__()
        self._owner = owner
        self.text = text
        self.keeps = owner.tracked

    def step(self, state: tuple[int, int, int, str], byte: int, parent: Node) -> Nodes:
        """Another byte of a character, or the closing quote."""
        here, place, count, spelled = state
        if byte == QUOTE and place == 0:
            label = self.text.ends(here, count)
            return self._owner.key_read(label, spelled, parent) if label >= 0 else ()
        after = self.text.step(here, place, count, byte)
        if after is None:
            return ()
        return (self.node((*after, spelled + chr(byte) if self.keeps else ""), parent),)

    def ending(self, state: tuple[int, int, int, str]) -> bytes:
        """The fewest characters, the quote, and the shortest value."""
        tail, label = self.text.ending_and_label(*state[:3])
        return tail + b'"' + self._owner.after_key(label)

    def candidates(self, state: tuple[int, int, int, str]) -> Iterable[int]:
        """Bytes that go on inside the character, and the quote."""
        starts = self.text.automaton.speller.starts[state[1]]
        return starts if state[1] else (QUOTE, *starts)

    def plain(self, state: tuple[int, int, int, str], reach: int) -> tuple[int, int, int, str]:
        """Far from both bounds, the length does not matter."""
        return state[0], state[1], self.text.plain_count(state[2], reach), state[3]


Taken = tuple[str, ...]
# (phase, next declared property, properties so far, place, undeclared keys so far if they must differ)
ObjectState = tuple[str, int, int, int, Taken]


class ObjectMachine(Machine):
    """Phases: `{` read; inside a declared key; a value read; inside the separator; before a key."""

    deepens = 1

    def __init__(self, structure: Structure, form: ObjectForm) -> None:
        super().__init__()
        grammar = structure.grammar
        self._structure = structure
        self._form = form
        self._tails = Tails(grammar, form)
        self._comma, self._colon = grammar.style.comma, grammar.style.colon
        self.tracked = self._tails.tracked
        self.void = self._tails.whole() is None
        self.opened: ObjectState = ("{", 0, 0, 0, ())
        self._kids: list[dict[int, int]] = [{}]
        self._under: list[int] = [0]
        self._leaf: list[int] = [-1]
        self._depth: list[int] = [0]
        for index, prop in enumerate(form.properties):
            if self._tails.usable[index]:
                self._plant(quote(prop.key)[1:], index)
        self._choices: dict[tuple[int, int], tuple[int, bool, bool]] = {}
        self._keys: dict[Taken, UndeclaredKey | None] = {}

    def _plant(self, key: bytes, index: int) -> None:
        here = 0
        for depth, byte in enumerate(key):
            self._under[here] |= 1 << index
            here = self._kids[here].setdefault(byte, len(self._kids))
            if here == len(self._kids):
                self._kids.append({})
                self._under.append(0)
                self._leaf.append(-1)
                self._depth.append(depth + 1)
        self._under[here] |= 1 << index
        self._leaf[here] = index

    def _open(self, index: int, count: int) -> tuple[int, bool, bool]:
        """Declared properties that may come, whether an undeclared one may, whether the object may end."""
        key = (index, count)
        found = self._choices.get(key)
        if found is None:
            tails = self._tails
            found = (
                tails.choices(index, count),
                tails.extra_allowed(index, count),
                tails.closes(index, count),
            )
            self._choices[key] = found
        return found

    def _undeclared(self, taken: Taken) -> UndeclaredKey | None:
        if taken not in self._keys:
            text = self._form.live_keys(taken)
            self._keys[taken] = None if text.void else UndeclaredKey(self, text)
        return self._keys[taken]

    def _grown(self, count: int) -> int:
        return min(count + 1, self._form.most) if self._form.counted else 0

    def step(self, state: ObjectState, byte: int, parent: Node) -> Nodes:
        """A brace, or a byte of a separator or key."""
        phase, index, count, at, taken = state
        if phase in "{a" and byte == CLOSE:
            return (parent,) if self._open(index, count)[2] else ()
        if phase == "k":
            child = self._kids[at].get(byte)
            if child is None or not self._under[child] & self._open(index, count)[0]:
                return ()
            leaf = self._leaf[child]
            if leaf < 0:
                return (self.node(("k", index, count, child, taken), parent),)
            after = self.node(("a", leaf + 1, self._grown(count), 0, taken), parent)
            return (self._structure.colon.node((self._form.properties[leaf].value, 0), after),)
        if phase == "a":
            choices, extra, _ = self._open(index, count)
            if byte != COMMA or not (choices or extra):
                return ()
            return self._separated(index, count, 1, taken, parent)
        if phase == ",":
            return self._separated(index, count, at + 1, taken, parent) if self._comma[at] == byte else ()
        return self._key_begun(index, count, taken, parent) if byte == QUOTE else ()

    def _separated(self, index: int, count: int, at: int, taken: Taken, parent: Node) -> Nodes:
        return (self.node(("," if at < len(self._comma) else "q", index, count, at, taken), parent),)

    def _key_begun(self, index: int, count: int, taken: Taken, parent: Node) -> Nodes:
        choices, extra, _ = self._open(index, count)
        out: list[Node] = []
        if choices:
            out.append(self.node(("k", index, count, 0, taken), parent))
        keys = self._undeclared(taken) if extra else None
        if keys is not None:
            after = self.node(("a", len(self._form.properties), self._grown(count), 0, taken), parent)
            out.append(keys.node((0, 0, 0, ""), after))
        return tuple(out)

    def key_read(self, label: int, spelled: str, after: Node) -> Nodes:
        """After the closing quote of an undeclared key; `spelled` are its bytes."""
        if self.tracked:
            state: ObjectState = after.state
            phase, index, count, at, taken = state
            key: str = json.loads('"' + spelled.encode("latin-1").decode() + '"')
            after = self.node((phase, index, count, at, (*taken, key)), after.parent)
        return (self._structure.colon.node((self._form.extras[label], 0), after),)

    def after_key(self, label: int) -> bytes:
        """The separator and the shortest value of an undeclared key."""
        return self._colon + (self._structure.grammar.shortest(self._form.extras[label]) or b"")

    def ending(self, state: ObjectState) -> bytes:
        """The fewest properties and the brace."""
        phase, index, count, at, taken = state
        tail = self._tail(index, count, taken)
        if phase == "a":
            return tail
        if phase == "{":
            return tail.removeprefix(self._comma)
        if phase == "k":
            return self._through(index, count, at) or b""
        if tail == b"}":
            tail = self._comma + b'"' + self._another(index, count, taken)
        return tail[at:]

    def _tail(self, index: int, count: int, taken: Taken) -> bytes:
        if taken and count < self._form.low and index == len(self._form.properties):
            return self._comma + self._comma.join(self._tails.extras(taken)[: self._form.low - count]) + b"}"
        return self._tails.tail(index, count) or b""

    def _through(self, index: int, count: int, place: int) -> bytes | None:
        """The shortest rest from inside a declared key."""
        options = self._open(index, count)[0] & self._under[place]
        found: list[bytes] = []
        while options:
            chosen = (options & -options).bit_length() - 1
            options &= options - 1
            prop = self._form.properties[chosen]
            value = self._structure.grammar.shortest(prop.value) or b""
            tail = self._tails.tail(chosen + 1, self._grown(count)) or b""
            found.append(quote(prop.key)[1 + self._depth[place] :] + self._colon + value + tail)
        return min(found, key=len, default=None)

    def _another(self, index: int, count: int, taken: Taken) -> bytes:
        """The shortest rest with one more property, from its opening quote on."""
        found = self._through(index, count, 0)
        keys = self._undeclared(taken) if self._open(index, count)[1] else None
        if keys is None:
            return found or b""
        extra = keys.ending((0, 0, 0, "")) + self._tail(len(self._form.properties), self._grown(count), taken)
        return extra if found is None or len(extra) < len(found) else found

    def candidates(self, state: ObjectState) -> Iterable[int]:
        """Braces, commas, quotes, or the next bytes of declared keys."""
        phase, _, _, at, _ = state
        if phase == "k":
            return self._kids[at].keys()
        if phase == ",":
            return (self._comma[at],)
        return {"{": (QUOTE, CLOSE), "a": (COMMA, CLOSE), "q": (QUOTE,)}[phase]

    def gap(self, state: ObjectState) -> bool:
        """Blanks may stand on both sides of braces and commas."""
        return state[0] in "{aq"
