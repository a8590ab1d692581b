"""Positions of a constraint: sets of nodes, stepped byte by byte with every step remembered."""

from collections.abc import Callable, Iterable

from agentree.errors import ConstraintError
from agentree.runtime.constraint.machines import Body, End, Machine, Node, Plain
from agentree.runtime.constraint.structure import Structure
from agentree.runtime.constraint.text import Text

MOST_BLANKS = 64
"""Blanks in a row, in flexible spacing."""

MOST_NODES = 2000
"""Alternatives that one text may leave open."""

MOST_POSITIONS = 100_000
"""Positions that are remembered; beyond, they are dropped and worked out again."""

MOST_PASSING = 4000
"""Of these, so many that only one text leads to: a full garbage collection looks at each of them."""

_BLANKS = frozenset(b" \n\t\r")


class Position:
    """Where a text stands. Positions that are alike are one object, as long as they are remembered."""

    __slots__ = ("_bytes", "accepting", "after", "blanks", "nodes", "owner", "passing", "run", "w")

    def __init__(self, owner: "Positions", nodes: frozenset[Node], blanks: int) -> None:
        self.owner = owner
        self.nodes = nodes
        self.blanks = blanks
        self.after: dict[int, Position | None] = {}
        self.accepting = any(n.accepting for n in nodes)
        """The text may end here."""
        self.passing = any(n.machine.keeps_text for n in nodes)
        """Hardly any other text leads here."""
        self.w = min((n.w for n in nodes), key=len)
        """The shortest rest of the text."""
        self._bytes: bytes | None = None
        self.run: tuple[bytes, Position] | None = None
        """Bytes that must follow, as far as there is no choice, and where they lead."""

    def step(self, byte: int) -> "Position | None":
        """The position after one more byte; None if it is not legal."""
        try:
            return self.after[byte]
        except KeyError:
            found = self.after[byte] = self.owner.stepped(self, byte)
            if found is not None and found.passing:
                self.owner.links.append((self, byte))
            return found

    @property
    def single(self) -> bool:
        """Whether the text has one reading only."""
        return len(self.nodes) == 1

    def candidates(self) -> tuple[int, ...]:
        """Bytes that may be legal: a superset."""
        if len(self.nodes) == 1:
            (node,) = self.nodes
            found = tuple(node.machine.candidates(node.state))
            return (*found, *_BLANKS) if self.owner.flexible and len(found) < 250 else found
        out = set((self.owner.flexible and _BLANKS) or ())
        for node in self.nodes:
            out.update(node.machine.candidates(node.state))
        return tuple(out)

    def body(self) -> Body | None:
        """The one string that the text is inside of, between two characters, if only its state counts."""
        if not self.single:
            return None
        (node,) = self.nodes
        body = node.machine.body(node.state)
        return None if body is None or body.place or body.taken is not None else body

    def free_body(self) -> "tuple[Position, Body] | None":
        """The string that the text may be inside of, between two characters, if any character may follow
        there.

        With the position of that string alone, where other readings of the text are open.
        """
        best: tuple[Node, Body] | None = None
        for node in self.nodes:
            body = node.machine.body(node.state)
            if body is None or body.place or not (body.free or body.loops):
                continue
            if best is None or (best[1].free, best[1].room) < (body.free, body.room):
                best = node, body
        if best is None:
            return None
        return (self if len(self.nodes) == 1 else self.owner.at(frozenset((best[0],)), 0)), best[1]

    def legal(self) -> bytes:
        """The bytes that may follow."""
        if self._bytes is None:
            self._bytes = bytes(b for b in self.candidates() if self.step(b) is not None)
        return self._bytes

    def only(self) -> int:
        """The one byte that may follow; -1 if there are several, or none, or the text may end here."""
        if self.accepting:
            return -1
        if self._bytes is not None:
            return self._bytes[0] if len(self._bytes) == 1 else -1
        found = -1
        for byte in self.candidates():
            if self.step(byte) is not None:
                if found >= 0:
                    return -1
                found = byte
        return found

    def forced(self) -> "tuple[bytes, Position]":
        """The bytes that must follow, and the position after them."""
        if self.run is None:
            here, out = self, bytearray()
            while (byte := here.only()) >= 0:
                after = here.step(byte)
                assert after is not None
                out.append(byte)
                here = after
            self.run = bytes(out), here
        return self.run


class Positions:
    """All positions of one constraint. Shared by its requests; safe to lose, as everything can be worked
    out again.

    `begin` is called before a step is worked out, which may take as long as a compile.
    """

    def __init__(
        self, root: Structure | Text, number: int = 0, begin: Callable[[], None] = lambda: None
    ) -> None:
        self.begin = begin
        self._known: dict[tuple[frozenset[Node], int], Position] = {}
        self._passing: dict[tuple[frozenset[Node], int], Position] = {}
        self.links: list[tuple[Position, int]] = []
        """Positions with the bytes by which they lead to passing ones."""
        self._end = End()
        self._bottom = self._end.node(0, None)
        finish = self._end.node(1, self._bottom)
        self._structure = root if isinstance(root, Structure) else None
        self.flexible = isinstance(root, Structure) and root.grammar.style.flexible
        if isinstance(root, Structure):
            node = root.value(number, finish)
        else:
            self._plain = Plain(root)
            node = self._plain.node((0, 0, 0), finish)
        self.start = self.at(frozenset((node,)), 0)

    def at(self, nodes: frozenset[Node], blanks: int) -> Position:
        """The position of a set of nodes."""
        key = (nodes, blanks)
        found = self._known.get(key) or self._passing.get(key)
        if found is None:
            if len(nodes) > MOST_NODES:
                raise ConstraintError(
                    f"the text leaves more than {MOST_NODES} alternatives open: "
                    "tell the members of anyOf apart earlier"
                )
            if len(self._known) > MOST_POSITIONS:
                self._forget()
            found = Position(self, nodes, blanks)
            (self._passing if found.passing else self._known)[key] = found
        return found

    def tidy(self) -> None:
        """Lets go of passing positions where there are many. Those in use stay valid."""
        if len(self._passing) <= MOST_PASSING:
            return
        for position, byte in self.links:
            position.after.pop(byte, None)
        self.links.clear()
        self._passing.clear()
        for machine in self._machines():
            if machine.keeps_text:
                machine.forget()

    def _machines(self) -> Iterable[Machine]:
        return () if self._structure is None else self._structure.machines()

    def _forget(self) -> None:
        self._known.clear()
        self._passing.clear()
        self.links.clear()
        self.start.after.clear()
        self.start.run = None
        for machine in self._machines():
            machine.forget()

    def stepped(self, position: Position, byte: int) -> Position | None:
        """One step, worked out."""
        self.begin()
        if self.flexible and byte in _BLANKS:
            gaps = self._gaps(position)
            if gaps:
                return self.at(gaps, position.blanks + 1) if position.blanks < MOST_BLANKS else None
        out: set[Node] = set()
        for node in position.nodes:
            if node.parent is not None:
                out.update(node.machine.step(node.state, byte, node.parent))
        return self.at(frozenset(out), 0) if out else None

    def _gaps(self, position: Position) -> frozenset[Node]:
        out: set[Node] = set()
        for node in position.nodes:
            here: Node | None = node
            if not node.gap and node.parent is not None:
                here = node.machine.settled(node.state, node.parent)
            if here is not None and here.gap and here.depth > 0:
                out.add(here)
        return frozenset(out)

    def plain(self, position: Position, reach: int) -> Position:
        """A position that no continuation of up to `reach` bytes tells apart, the same for many positions."""
        if len(position.nodes) != 1:
            return position
        (node,) = position.nodes
        state = node.machine.plain(node.state, reach)
        if state == node.state:
            return position
        return self.at(frozenset((node.machine.node(state, node.parent),)), position.blanks)
