"""Walking a grammar byte by byte: one automaton per set, an explicit stack of frames for what is nested.

A `Node` is a frame: a machine, its state, and the node to go on with when it is done. Nodes are interned, so
positions that are alike are one object. A step yields several nodes only where alternative shapes share their
text so far.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from agentree.runtime.constraint.decimals import Decimals
from agentree.runtime.constraint.text import FAR, Text

QUOTE: Final = 0x22
ANY_BYTE: Final = tuple(range(256))
FIRST_BYTES: Final = (*b'"-0123456789ntf[{',)
"""First bytes of JSON values."""


class Node:
    """A position: `state` of `machine`, and `parent` to go on with."""

    __slots__ = ("accepting", "depth", "gap", "machine", "parent", "state", "w")

    def __init__(self, machine: "Machine", state: Any, parent: "Node | None") -> None:
        self.machine = machine
        self.state: Any = state
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + machine.deepens
        self.w: bytes = machine.ending(state) + (b"" if parent is None else parent.w)
        """The shortest text from here to the end of everything."""
        self.accepting: bool = machine.accepts(state) and (parent is None or parent.accepting)
        """Whether everything may end here."""
        self.gap: bool = machine.gap(state)
        """Whether blanks may stand here, in flexible spacing."""


Nodes = tuple[Node, ...]


@dataclass(frozen=True)
class Body:
    """A place inside a string: state of its automaton, place inside a character, length so far."""

    text: Text
    state: int
    place: int
    count: int
    spelled: bytes = b""
    taken: tuple[bytes, ...] | None = None
    """Texts of which the string, spelled so far, must differ; None where it need not."""

    @property
    def beside(self) -> list[bytes]:
        """How the texts taken go on from here, where a bounded string may have no room to differ."""
        if not self.taken or self.text.high is None:
            return []
        return [t[len(self.spelled) :] for t in self.taken if t.startswith(self.spelled)]

    @property
    def free(self) -> bool:
        """Every character may follow, and changes nothing but the length."""
        return self.text.sinks[self.state]

    @property
    def loops(self) -> int:
        """Classes of characters that may follow and change nothing but the length, as a bit set."""
        return self.text.loops[self.state] if self.count >= self.text.low else 0

    @property
    def room(self) -> int:
        """Characters that still fit without a change of state."""
        if self.text.high is None:
            return FAR
        return self.text.high - self.count - (0 if self.free else self.text.need(self.state, self.count))


class Machine(ABC):
    """One automaton. States are hashable values."""

    deepens = 0
    keeps_text = False
    """What was written is part of the state: few texts come to the same one."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[object, int], Node] = {}

    def node(self, state: Any, parent: Node | None) -> Node:
        """The interned position."""
        key = (state, id(parent))
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = Node(self, state, parent)
        return found

    def forget(self) -> None:
        """Drops the interned positions; those in use stay valid."""
        self._nodes.clear()

    @abstractmethod
    def step(self, state: Any, byte: int, parent: Node) -> Nodes:
        """Positions after one more byte."""

    @abstractmethod
    def ending(self, state: Any) -> bytes:
        """The shortest text to the end of the machine's own part."""

    def candidates(self, state: Any) -> Iterable[int]:
        """Bytes that may be legal in the machine itself: a superset."""
        return ANY_BYTE

    def accepts(self, state: Any) -> bool:
        """Whether the machine's own part may end here without another byte."""
        return False

    def gap(self, state: Any) -> bool:
        """Whether blanks may stand here."""
        return False

    def body(self, state: Any) -> Body | None:
        """The place inside a string, None outside of strings."""
        return None

    def settled(self, state: Any, parent: Node) -> Node | None:
        """The position if the machine's own part ends here and now."""
        return parent if self.accepts(state) else None

    def plain(self, state: Any, reach: int) -> Any:
        """A state that no continuation of up to `reach` bytes tells apart from `state`."""
        return state


def stepped(node: Node, byte: int) -> Nodes:
    """Positions after one more byte at a node."""
    return () if node.parent is None else node.machine.step(node.state, byte, node.parent)


class End(Machine):
    """Nothing may follow."""

    def step(self, state: int, byte: int, parent: Node) -> Nodes:
        """None."""
        return ()

    def ending(self, state: int) -> bytes:
        """Nothing."""
        return b""

    def candidates(self, state: int) -> Iterable[int]:
        """None."""
        return ()

    def accepts(self, state: int) -> bool:
        """Always."""
        return True


class Words(Machine):
    """A fixed text, from an offset on."""

    def step(self, state: tuple[bytes, int], byte: int, parent: Node) -> Nodes:
        """The next letter, or the end of the word."""
        word, at = state
        if word[at] != byte:
            return ()
        return (self.node((word, at + 1), parent),) if at + 1 < len(word) else (parent,)

    def ending(self, state: tuple[bytes, int]) -> bytes:
        """The rest of the word."""
        return state[0][state[1] :]

    def candidates(self, state: tuple[bytes, int]) -> Iterable[int]:
        """The next letter."""
        return (state[0][state[1]],)


class Number(Machine):
    """A number: (state, bytes so far). It ends where the next byte belongs to the parent."""

    def __init__(self, form: Decimals) -> None:
        super().__init__()
        self._form = form

    def step(self, state: tuple[int, int], byte: int, parent: Node) -> Nodes:
        """Another digit, or what follows the number."""
        form, (here, count) = self._form, state
        after = form.rows[here].get(byte)
        if after is not None:
            return (self.node((after, count + 1), parent),) if form.fits(after, count + 1) else ()
        if not form.accept[here]:
            return ()
        return () if parent.parent is None else parent.machine.step(parent.state, byte, parent.parent)

    def ending(self, state: tuple[int, int]) -> bytes:
        """The fewest digits."""
        return self._form.ending(*state)

    def candidates(self, state: tuple[int, int]) -> Iterable[int]:
        """Digits, or anything if the number may end."""
        return ANY_BYTE if self._form.accept[state[0]] else self._form.rows[state[0]].keys()

    def accepts(self, state: tuple[int, int]) -> bool:
        """Whether the number is complete."""
        return self._form.accept[state[0]]


class Quoted(Machine):
    """The inside of a JSON string up to its closing quote: (state, place inside a character, length)."""

    def __init__(self, text: Text) -> None:
        super().__init__()
        self.text = text

    def step(self, state: tuple[int, int, int], byte: int, parent: Node) -> Nodes:
        """Another byte of a character, or the closing quote."""
        here, place, count = state
        if byte == QUOTE and place == 0:
            return (parent,) if self.text.ends(here, count) >= 0 else ()
        after = self.text.step(here, place, count, byte)
        return () if after is None else (self.node(after, parent),)

    def ending(self, state: tuple[int, int, int]) -> bytes:
        """The fewest characters and the quote."""
        return self.text.ending(*state) + b'"'

    def body(self, state: tuple[int, int, int]) -> Body:
        """The place inside the string."""
        return Body(self.text, *state)

    def candidates(self, state: tuple[int, int, int]) -> Iterable[int]:
        """Bytes that go on inside the character, and the quote."""
        bytes_ = self.text.automaton.speller.starts[state[1]]
        return bytes_ if state[1] or QUOTE in bytes_ else (QUOTE, *bytes_)

    def plain(self, state: tuple[int, int, int], reach: int) -> tuple[int, int, int]:
        """Far from both bounds, the length does not matter."""
        return state[0], state[1], self.text.plain_count(state[2], reach)


class Plain(Machine):
    """Bare text at the root: it may end wherever it is accepted."""

    def __init__(self, text: Text) -> None:
        super().__init__()
        self.text = text

    def step(self, state: tuple[int, int, int], byte: int, parent: Node) -> Nodes:
        """Another byte of a character."""
        after = self.text.step(*state, byte)
        return () if after is None else (self.node(after, parent),)

    def ending(self, state: tuple[int, int, int]) -> bytes:
        """The fewest characters."""
        return self.text.ending(*state)

    def body(self, state: tuple[int, int, int]) -> Body:
        """The place inside the text."""
        return Body(self.text, *state)

    def candidates(self, state: tuple[int, int, int]) -> Iterable[int]:
        """Bytes that go on inside the character."""
        return self.text.automaton.speller.starts[state[1]]

    def accepts(self, state: tuple[int, int, int]) -> bool:
        """Whether the text is complete."""
        return state[1] == 0 and self.text.ends(state[0], state[2]) >= 0

    def plain(self, state: tuple[int, int, int], reach: int) -> tuple[int, int, int]:
        """Far from both bounds, the length does not matter."""
        return state[0], state[1], self.text.plain_count(state[2], reach)
