"""All machines of a grammar, and those of values."""

from collections.abc import Iterable
from typing import Final

from agentree.runtime.constraint.arrays import OPEN_LIST, ArrayMachine
from agentree.runtime.constraint.decimals import decimals
from agentree.runtime.constraint.forms import ObjectForm
from agentree.runtime.constraint.grammar import Grammar
from agentree.runtime.constraint.lists import ArrayForm
from agentree.runtime.constraint.machines import (
    FIRST_BYTES,
    QUOTE,
    Machine,
    Node,
    Nodes,
    Number,
    Quoted,
    Words,
)
from agentree.runtime.constraint.numbers import Numbers
from agentree.runtime.constraint.objects import OPEN, ObjectMachine
from agentree.runtime.constraint.shapes import Arrays, Objects
from agentree.runtime.constraint.strings import Strings
from agentree.runtime.constraint.unique import UniqueArrayMachine

DEEPEST: Final = 64
"""Values nested deeper are written in their shortest form."""

_DIGITS = b"-0123456789"


class Structure:
    """All machines of one grammar."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.words = Words()
        self.values: dict[int, ValueMachine] = {}
        self.colon = Colon(self)
        self._texts: dict[Strings, Quoted] = {}
        self._numbers: dict[Numbers, Number] = {}
        self._arrays: dict[Arrays, ArrayMachine | UniqueArrayMachine] = {}
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

    def array(self, form: ArrayForm) -> ArrayMachine | UniqueArrayMachine:
        """The machine of an array form."""
        found = self._arrays.get(form.shape)
        if found is None:
            kind = UniqueArrayMachine if form.shape.unique else ArrayMachine
            found = self._arrays[form.shape] = kind(self, form)
        return found

    def object(self, form: ObjectForm) -> ObjectMachine:
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
        return FIRST_BYTES

    def gap(self, state: int) -> bool:
        """Blanks may stand before a value."""
        return True


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
