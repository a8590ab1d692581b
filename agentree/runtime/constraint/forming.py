"""Tool calls while they are written, told from the states of the automaton alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from agentree.runtime.constraint.machines import Node
from agentree.runtime.constraint.objects import ObjectMachine
from agentree.runtime.constraint.positions import Position
from agentree.runtime.constraint.shapes import Objects
from agentree.runtime.constraint.structure import Colon

_ARGUMENTS = 2
"""Properties of a call that are read before its end: the name, then the arguments."""

_Stage = Literal["", "name", "arguments", "end"]


@dataclass(frozen=True)
class CallNamed:
    """The tool of a call is certain, perhaps before its name is written out."""

    index: int
    """Place in the turn, from 0."""
    tool: str


@dataclass(frozen=True)
class CallWritten:
    """The arguments of a call are complete."""

    index: int
    tool: str
    arguments: str
    """As JSON."""


CallNews = CallNamed | CallWritten


class CallWatch:
    """Follows the text of one turn byte by byte; what it tells does not depend on how the text is cut.

    `calls` are the shapes of the tools' calls, with the names of the tools.
    """

    def __init__(self, start: Position, calls: Mapping[Objects, str]) -> None:
        self._position: Position | None = start
        self._calls = calls
        self._places: dict[Position, tuple[_Stage, str]] = {}
        self._index = 0
        self._named = ""
        self._written = False
        self._arguments: bytearray | None = None

    def push(self, text: bytes) -> list[CallNews]:
        """What more text tells. Text that is not legal tells nothing."""
        news: list[CallNews] = []
        for byte in text:
            if self._position is None:
                break
            self._position = self._position.step(byte)
            if self._position is None:
                break
            place = self._places.get(self._position)
            if place is None:
                place = self._places[self._position] = _place(self._position.nodes, self._calls)
            news += self._moved(*place, byte)
        return news

    def _moved(self, stage: _Stage, tool: str, byte: int) -> Iterable[CallNews]:
        if self._arguments is not None:
            self._arguments.append(byte)
        if stage in ("", "name") and self._written:
            self._index, self._named, self._written, self._arguments = self._index + 1, "", False, None
        if tool and not self._named:
            self._named = tool
            yield CallNamed(self._index, tool)
        if stage == "arguments" and self._arguments is None:
            self._arguments = bytearray()
        if stage == "end" and not self._written and self._arguments is not None:
            self._written = True
            yield CallWritten(self._index, self._named, self._arguments.decode(errors="replace"))


def _place(nodes: Iterable[Node], calls: Mapping[Objects, str]) -> tuple[_Stage, str]:
    """How far the call is that a text is inside of, and its tool if there is only one that it can be."""
    stages: set[_Stage] = set()
    tools: set[str] = set()
    for node in nodes:
        stage, tool = _of_node(node, calls)
        stages.add(stage)
        tools.add(tool)
    tool = tools.pop() if len(tools) == 1 else ""
    return (stages.pop() if len(stages) == 1 else "name"), tool


def _of_node(leaf: Node, calls: Mapping[Objects, str]) -> tuple[_Stage, str]:
    call: Node | None = None
    below: Node | None = None
    here: Node | None = leaf
    under: Node | None = None
    while here is not None:
        if isinstance(here.machine, ObjectMachine) and here.machine.shape in calls:
            call, below = here, under
        under, here = here, here.parent
    if call is None or not isinstance(call.machine, ObjectMachine):
        return "", ""
    tool = calls[call.machine.shape]
    if call.state[1] != _ARGUMENTS:
        return "name", tool
    if below is None:
        return "end", tool
    return ("name" if isinstance(below.machine, Colon) else "arguments"), tool
