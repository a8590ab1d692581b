"""Machines of arrays."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agentree.runtime.constraint.lists import ArrayForm, Counts, ListTails
from agentree.runtime.constraint.machines import FIRST_BYTES, Machine, Node, Nodes

if TYPE_CHECKING:
    from agentree.runtime.constraint.structure import Structure

COMMA, OPEN_LIST, CLOSE_LIST = b",[]"

# (phase, items so far, counts of `contains`, bytes of the separator so far)
ListState = tuple[str, int, Counts, int]


class ArrayMachine(Machine):
    """Phases: `[` read; an item read; inside the separator; before an item after a separator."""

    deepens = 1

    def __init__(self, structure: "Structure", form: ArrayForm) -> None:
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
        return (CLOSE_LIST, *FIRST_BYTES) if phase == "[" else FIRST_BYTES

    def gap(self, state: ListState) -> bool:
        """Blanks may stand on both sides of brackets and commas."""
        return state[0] != ","
