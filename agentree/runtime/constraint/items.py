"""Walking tokens inside an item of an array whose items differ, as if it stood alone.

The text of such an item is part of its state, so that no two tokens lead to the same position. Once the text
is no beginning of an earlier item it differs from all of them, whatever follows: until it ends, the item
alone decides what is legal, and its positions are shared by all texts.
"""

from agentree.runtime.constraint.machines import Body, End
from agentree.runtime.constraint.positions import Position
from agentree.runtime.constraint.unique import UniqueItem

_NO_STEPS: "dict[int, Inside | Position | None]" = {}


class Inside:
    """A position inside such an item. Equal where the item alone stands at the same place.

    `path` are the bytes from `start`, the position in the array; `alone` is the position in the item.
    """

    __slots__ = ("after", "alone", "path", "start")

    def __init__(self, start: Position, alone: Position, path: bytes) -> None:
        self.start = start
        self.alone = alone
        self.path = path
        self.after: dict[int, Inside | Position | None] = _NO_STEPS
        """Steps that are known already: those of the item alone are known to its own positions."""

    def __eq__(self, other: object) -> bool:
        """Whether what may follow is the same until the item ends."""
        return isinstance(other, Inside) and self.alone is other.alone

    def __hash__(self) -> int:
        """Hash of what equality compares."""
        return id(self.alone)

    @property
    def whole(self) -> Position:
        """The position in the array."""
        here: Position | None = self.start
        for byte in self.path:
            assert here is not None
            here = here.step(byte)
        assert here is not None
        return here

    @property
    def single(self) -> bool:
        """Whether the text has one reading only."""
        return len(self.alone.nodes) == 1

    def step(self, byte: int) -> "Inside | Position | None":
        """The position after one more byte: in the array once the item ends."""
        after = self.alone.step(byte)
        if after is not None and not any(isinstance(n.machine, End) for n in after.nodes):
            return Inside(self.start, after, self.path + bytes((byte,)))
        if after is None and not self.alone.accepting:
            return None
        return self.whole.step(byte)

    def legal(self) -> bytes:
        """Bytes that may follow: a superset."""
        return self.whole.legal() if self.alone.accepting else self.alone.legal()

    def free_body(self) -> "tuple[Inside, Body] | None":
        """As that of a position."""
        found = self.alone.free_body()
        return None if found is None else (Inside(self.start, found[0], self.path), found[1])


def inside(position: Position) -> Inside | None:
    """The position as one inside an item that differs from all before it; None if it is none."""
    if len(position.nodes) != 1 or position.owner.flexible:
        return None
    (node,) = position.nodes
    if not isinstance(node.machine, UniqueItem) or not node.machine.alone(node.state):
        return None
    return Inside(position, position.owner.at(frozenset((node.state[0],)), 0), b"")


def whole(position: Inside | Position) -> Position:
    """The position in the array."""
    return position.whole if isinstance(position, Inside) else position
