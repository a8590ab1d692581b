"""Machines of arrays whose items differ.

The items written so far are part of the state. Where equal values have equal texts, an item
differs from them if its text does, and it can still come to differ if from where it stands some text leads
elsewhere.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from agentree.runtime.constraint.lists import ArrayForm, ListTails
from agentree.runtime.constraint.machines import FIRST_BYTES, Body, End, Machine, Node, Nodes, stepped
from agentree.runtime.constraint.others import OtherValues
from agentree.runtime.constraint.shapes import item

if TYPE_CHECKING:
    from agentree.runtime.constraint.structure import Structure

COMMA, CLOSE_LIST = b",]"

Seen = tuple[bytes, ...]
# (phase, items so far, their texts, bytes of the separator so far)
UniqueState = tuple[str, int, Seen, int]
# (position inside the item, its text so far, the array after it but for the item's text)
ItemState = tuple[Node, bytes, UniqueState]


class UniqueItem(Machine):
    """Inside an item: a walk of its own, whose text is kept. Its parent is that of the array."""

    deepens = 1
    keeps_text = True

    def __init__(self, owner: "UniqueArrayMachine") -> None:
        super().__init__()
        self._owner = owner

    def step(self, state: ItemState, byte: int, parent: Node) -> Nodes:
        """A byte of the item, or what follows it."""
        inner, text, after = state
        out: list[Node] = []
        spelled = text + bytes((byte,))
        for node in stepped(inner, byte):
            if node.machine is self._owner.end:
                if spelled not in after[2]:
                    out.append(self._owner.item_read(spelled, after, parent))
            elif self._owner.different(node, spelled, after[2]) is not None:
                out.append(self.node((node, spelled, after), parent))
        if inner.accepting and text not in after[2]:
            array = self._owner.item_read(text, after, parent)
            out += array.machine.step(array.state, byte, parent)
        return tuple(out)

    def ending(self, state: ItemState) -> bytes:
        """The shortest different item and the rest of the array."""
        inner, text, after = state
        rest = self._owner.different(inner, text, after[2]) or b""
        return rest + self._owner.ending((*after[:2], (*after[2], text + rest), 0))

    def body(self, state: ItemState) -> Body | None:
        """The place inside a string of the item."""
        inner = state[0].machine.body(state[0].state)
        return None if inner is None else replace(inner, spelled=state[1], taken=state[2][2])

    def alone(self, state: ItemState) -> bool:
        """Whether the item differs from all before it, whatever follows, and the array may end after it."""
        _, text, after = state
        return self._owner.enough(after[1]) and not any(seen.startswith(text) for seen in after[2])

    def gap(self, state: ItemState) -> bool:
        """Whether blanks may stand inside the item."""
        return state[0].gap

    def settled(self, state: ItemState, parent: Node) -> Node | None:
        """The position if a number ends here."""
        inner, text, after = state
        if inner.parent is None:
            return None
        node = inner.machine.settled(inner.state, inner.parent)
        if node is None:
            return None
        if node.machine is self._owner.end:
            return self._owner.item_read(text, after, parent) if text not in after[2] else None
        return self.node((node, text, after), parent)


class UniqueArrayMachine(Machine):
    """Phases: `[` read; an item read; inside the separator; before an item after a separator."""

    deepens = 1
    keeps_text = True

    def __init__(self, structure: "Structure", form: ArrayForm) -> None:
        super().__init__()
        self._structure = structure
        self._form = form
        self._tails = ListTails(structure.grammar, form)
        self._comma = structure.grammar.style.comma
        self.void = self._tails.whole() is None
        self.opened: UniqueState = ("[", 0, (), 0)
        self.end = End()
        self._bottom = self.end.node(0, None)
        self._items = UniqueItem(self)
        self._different: dict[tuple[Node, bytes, Seen], bytes | None] = {}
        self._values: dict[Node, OtherValues] = {}

    def forget(self) -> None:
        """Also inside of items."""
        super().forget()
        self._items.forget()
        self._different.clear()

    def enough(self, count: int) -> bool:
        """Whether the array may end after so many items."""
        return count >= self._form.low

    def different(self, node: Node, text: bytes, seen: Seen) -> bytes | None:
        """A short rest of an item with which it differs from those seen; None if there is none."""
        if text + node.w not in seen:
            return node.w
        key = (node, text, seen)
        if key not in self._different:
            if len(self._different) > 20_000:
                self._different.clear()
            rests = {t[len(text) :] for t in seen if t.startswith(text)}
            self._different[key] = next((rest for rest, _ in OtherValues([node]).beside(rests)), None)
        return self._different[key]

    def _others(self, start: Node, seen: Container[bytes]) -> Iterator[bytes]:
        """Texts of whole items that differ from those seen, the shorter ones first."""
        if start not in self._values:
            if len(self._values) > 1000:
                self._values.clear()
            self._values[start] = OtherValues([start])
        return (text for text, _ in self._values[start].beside(seen))

    def _next(self, index: int, seen: Seen) -> Node | None:
        """The position before the next item, None if there can be none."""
        start = self._start(index)
        return None if start is None or next(self._others(start, seen), None) is None else start

    def _start(self, index: int) -> Node | None:
        form, grammar = self._form, self._structure.grammar
        number = item(form.shape, index)
        if (form.high is not None and index >= form.high) or not grammar.live(number):
            return None
        return self._structure.value(number, self._bottom)

    def item_read(self, text: bytes, after: UniqueState, parent: Node) -> Node:
        """After an item."""
        return self.node((*after[:2], (*after[2], text), 0), parent)

    def step(self, state: UniqueState, byte: int, parent: Node) -> Nodes:
        """A bracket, a byte of a separator, or the first byte of an item."""
        phase, index, seen, at = state
        if phase in "[a" and byte == CLOSE_LIST:
            return (parent,) if index >= self._form.low else ()
        if phase == "a":
            if byte != COMMA or self._next(index, seen) is None:
                return ()
            return (self.node(self._separated(index, seen, 1), parent),)
        if phase == ",":
            return (
                (self.node(self._separated(index, seen, at + 1), parent),) if self._comma[at] == byte else ()
            )
        start = self._next(index, seen)
        if start is None:
            return ()
        inside = self._items.node((start, b"", ("a", index + 1, seen, 0)), parent)
        return self._items.step(inside.state, byte, parent)

    def _separated(self, index: int, seen: Seen, at: int) -> UniqueState:
        return ("," if at < len(self._comma) else "i", index, seen, at)

    def ending(self, state: UniqueState) -> bytes:
        """The fewest items and the bracket."""
        phase, index, seen, at = state
        texts = self._following(index, seen, max(self._form.low - index, int(phase in ",i")))
        if phase == "[":
            return self._comma.join(texts) + b"]"
        return self._comma.join((b"", *texts))[at:] + b"]"

    def _following(self, index: int, seen: Seen, count: int) -> list[bytes]:
        """So many more items, each the shortest that differs from those before, or as many as there are."""
        self._structure.grammar.book.tick()
        taken = set(seen)
        texts: list[bytes] = []
        while len(texts) < count:
            start = self._start(index + len(texts))
            if start is None:
                break
            # From the last place of its own on, items are of one set, which tells its texts apart itself.
            alike = index + len(texts) >= len(self._form.shape.prefix)
            found = list(islice(self._others(start, taken), count - len(texts) if alike else 1))
            if not found:
                break
            texts += found
            taken.update(found)
        return texts

    def candidates(self, state: UniqueState) -> Iterable[int]:
        """Brackets, commas, or first bytes of values."""
        phase, _, _, at = state
        if phase == "a":
            return (COMMA, CLOSE_LIST)
        if phase == ",":
            return (self._comma[at],)
        return (CLOSE_LIST, *FIRST_BYTES) if phase == "[" else FIRST_BYTES

    def gap(self, state: UniqueState) -> bool:
        """Blanks may stand on both sides of brackets and commas."""
        return state[0] != ","
