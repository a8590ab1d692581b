"""Machines of objects."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agentree.runtime.constraint.forms import ObjectForm, Tails, Taken
from agentree.runtime.constraint.machines import QUOTE, Body, Machine, Node, Nodes
from agentree.runtime.constraint.spelling import quote
from agentree.runtime.constraint.text import Text

if TYPE_CHECKING:
    from agentree.runtime.constraint.structure import Structure

COMMA, OPEN, CLOSE = b",{}"

# (phase, next declared property, properties so far, place, undeclared keys so far if they must differ,
#  witnesses that are missing)
ObjectState = tuple[str, int, int, int, Taken, int]
# (state of the text, place inside a character, length, the key if it must be known, the object after it)
KeyState = tuple[int, int, int, bytes, ObjectState]


class UndeclaredKey(Machine):
    """Inside an undeclared key. Its parent is that of the object."""

    deepens = 1

    def __init__(self, owner: "ObjectMachine", text: Text) -> None:
        super().__init__()
        self._owner = owner
        self.text = text
        self.keeps = owner.tracked

    def step(self, state: KeyState, byte: int, parent: Node) -> Nodes:
        """Another byte of a character, or the closing quote."""
        here, place, count, spelled, after = state
        if byte == QUOTE and place == 0:
            label = self.text.ends(here, count)
            fits = label >= 0 and not (self.keeps and spelled in after[4])
            return self._owner.key_read(label, spelled, after, parent) if fits else ()
        moved = self.text.step(here, place, count, byte)
        if moved is None:
            return ()
        if self.keeps:
            spelled += bytes((byte,))
            if self.text.ending_beside(*moved, spelled, after[4]) is None:
                return ()
        return (self.node((*moved, spelled, after), parent),)

    def ending(self, state: KeyState) -> bytes:
        """The fewest characters, the quote, and the shortest rest of the object."""
        tail, label = self.text.ending_beside(*state[:4], state[4][4]) or (b"", -1)
        return tail + b'"' + self._owner.after_key(label, state[3] + tail, state[4])

    def body(self, state: KeyState) -> Body:
        """The place inside the key."""
        return Body(self.text, *state[:4], state[4][4] if self.keeps else None)

    def candidates(self, state: KeyState) -> Iterable[int]:
        """Bytes that go on inside the character, and the quote."""
        starts = self.text.automaton.speller.starts[state[1]]
        return starts if state[1] else (QUOTE, *starts)

    def plain(self, state: KeyState, reach: int) -> KeyState:
        """Far from both bounds, the length does not matter."""
        return state[0], state[1], self.text.plain_count(state[2], reach), state[3], state[4]


class ObjectMachine(Machine):
    """Phases: `{` read; inside a declared key; a value read; inside the separator; before a key."""

    deepens = 1

    def __init__(self, structure: "Structure", form: ObjectForm) -> None:
        super().__init__()
        grammar = structure.grammar
        self._structure = structure
        self._form = form
        self.shape = form.shape
        self._size = len(form.properties)
        self._tails = Tails(grammar, form)
        self._comma, self._colon = grammar.style.comma, grammar.style.colon
        self.tracked = self._tails.tracked
        self.void = self._tails.whole() is None
        self.opened: ObjectState = ("{", 0, 0, 0, (), form.owed)
        self._kids: list[dict[int, int]] = [{}]
        self._under: list[int] = [0]
        self._leaf: list[int] = [-1]
        self._depth: list[int] = [0]
        for index, prop in enumerate(form.properties):
            if self._tails.usable[index]:
                self._plant(quote(prop.key)[1:], index)
        self._choices: dict[tuple[int, int, int], tuple[int, frozenset[int], bool]] = {}
        self._keys: dict[frozenset[int], UndeclaredKey | None] = {}

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

    def _open(self, index: int, count: int, owed: int) -> tuple[int, frozenset[int], bool]:
        """Declared properties that may come, labels of undeclared ones, whether the object may end."""
        key = (index, count, owed)
        found = self._choices.get(key)
        if found is None:
            tails = self._tails
            found = (tails.choices(*key), tails.extra_labels(*key), tails.closes(*key))
            self._choices[key] = found
        return found

    def _undeclared(self, taken: Taken, labels: frozenset[int]) -> UndeclaredKey | None:
        if not labels:
            return None
        if labels not in self._keys:
            text = self._form.keys_with(labels)
            self._keys[labels] = None if text.void else UndeclaredKey(self, text)
        found = self._keys[labels]
        if found is None or (taken and found.text.ending_beside(0, 0, 0, b"", taken) is None):
            return None
        return found

    def _grown(self, count: int) -> int:
        return min(count + 1, self._form.most) if self._form.counted else 0

    def step(self, state: ObjectState, byte: int, parent: Node) -> Nodes:
        """A brace, or a byte of a separator or key."""
        phase, index, count, at, taken, owed = state
        if phase in "{a" and byte == CLOSE:
            return (parent,) if self._open(index, count, owed)[2] else ()
        if phase == "k":
            child = self._kids[at].get(byte)
            if child is None or not self._under[child] & self._open(index, count, owed)[0]:
                return ()
            leaf = self._leaf[child]
            if leaf < 0:
                return (self.node(("k", index, count, child, taken, owed), parent),)
            after = self.node(("a", leaf + 1, self._grown(count), 0, taken, owed), parent)
            return (self._structure.colon.node((self._form.properties[leaf].value, 0), after),)
        if phase == "a":
            choices, labels, _ = self._open(index, count, owed)
            if byte != COMMA or not (choices or self._undeclared(taken, labels)):
                return ()
            return self._separated(state, 1, parent)
        if phase == ",":
            return self._separated(state, at + 1, parent) if self._comma[at] == byte else ()
        return self._key_begun(state, parent) if byte == QUOTE else ()

    def _separated(self, state: ObjectState, at: int, parent: Node) -> Nodes:
        return (self.node(("," if at < len(self._comma) else "q", *state[1:3], at, *state[4:]), parent),)

    def _key_begun(self, state: ObjectState, parent: Node) -> Nodes:
        _, index, count, _, taken, owed = state
        choices, labels, _ = self._open(index, count, owed)
        out: list[Node] = []
        if choices:
            out.append(self.node(("k", index, count, 0, taken, owed), parent))
        keys = self._undeclared(taken, labels)
        if keys is not None:
            after: ObjectState = ("a", self._size, self._grown(count), 0, taken, owed)
            out.append(keys.node((0, 0, 0, b"", after), parent))
        return tuple(out)

    def _claimed(self, label: int, spelled: bytes, after: ObjectState) -> list[tuple[int, ObjectState]]:
        """Sets of the value of an undeclared key, each with the state after it."""
        _, index, count, _, taken, owed = after
        if not self.tracked:
            return [(self._form.extras[label].claims[0], after)]
        claims = self._tails.claims(label, count - 1, owed)
        return [(n, ("a", index, count, 0, (*taken, spelled), owed & ~bits)) for bits, n in claims.items()]

    def key_read(self, label: int, spelled: bytes, after: ObjectState, parent: Node) -> Nodes:
        """After the closing quote of an undeclared key; `spelled` are its bytes, if they matter."""
        colon = self._structure.colon
        claimed = self._claimed(label, spelled, after)
        return tuple(colon.node((number, 0), self.node(state, parent)) for number, state in claimed)

    def after_key(self, label: int, spelled: bytes, after: ObjectState) -> bytes:
        """The shortest rest of the object after the closing quote of an undeclared key."""
        return min(
            (
                self._colon + (self._structure.grammar.shortest(number) or b"") + self.ending(state)
                for number, state in self._claimed(label, spelled, after)
            ),
            key=len,
        )

    def ending(self, state: ObjectState) -> bytes:
        """The fewest properties and the brace."""
        phase, index, count, at, taken, owed = state
        tail = self._tail(index, count, taken, owed)
        if phase == "a":
            return tail
        if phase == "{":
            return tail.removeprefix(self._comma)
        if phase == "k":
            return self._through(state, at) or b""
        if tail == b"}":
            tail = self._comma + b'"' + self._another(state)
        return tail[at:]

    def _tail(self, index: int, count: int, taken: Taken, owed: int) -> bytes:
        if taken and index == self._size:
            return self._tails.closing(taken, count, owed) or b""
        return self._tails.tail(index, count, owed) or b""

    def _through(self, state: ObjectState, place: int) -> bytes | None:
        """The shortest rest from inside a declared key."""
        _, index, count, _, _, owed = state
        options = self._open(index, count, owed)[0] & self._under[place]
        found: list[bytes] = []
        while options:
            chosen = (options & -options).bit_length() - 1
            options &= options - 1
            prop = self._form.properties[chosen]
            value = self._structure.grammar.shortest(prop.value) or b""
            tail = self._tails.tail(chosen + 1, self._grown(count), owed) or b""
            found.append(quote(prop.key)[1 + self._depth[place] :] + self._colon + value + tail)
        return min(found, key=len, default=None)

    def _another(self, state: ObjectState) -> bytes:
        """The shortest rest with one more property, from its opening quote on."""
        _, index, count, _, taken, owed = state
        found = self._through(state, 0)
        keys = self._undeclared(taken, self._open(index, count, owed)[1])
        if keys is None:
            return found or b""
        extra = keys.ending((0, 0, 0, b"", ("a", self._size, self._grown(count), 0, taken, owed)))
        return extra if found is None or len(extra) < len(found) else found

    def candidates(self, state: ObjectState) -> Iterable[int]:
        """Braces, commas, quotes, or the next bytes of declared keys."""
        phase, _, _, at, _, _ = state
        if phase == "k":
            return self._kids[at].keys()
        if phase == ",":
            return (self._comma[at],)
        return {"{": (QUOTE, CLOSE), "a": (COMMA, CLOSE), "q": (QUOTE,)}[phase]

    def gap(self, state: ObjectState) -> bool:
        """Blanks may stand on both sides of braces and commas."""
        return state[0] in "{aq"
