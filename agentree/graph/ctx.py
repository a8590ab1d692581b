"""What a node's function sees of the run that it is part of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, cast

from agentree.errors import GraphError
from agentree.events import Event
from agentree.graph.frozen import REMEDY
from agentree.graph.types import S

if TYPE_CHECKING:
    from agentree.lm import Runtime, Transcript


@dataclass
class Cell:
    """Holds the state of one run of a program, so that replacing it reaches every node."""

    value: Any
    frozen: bool = False
    """Inside a fork: the value is a read-only copy."""


class Ctx(Generic[S]):
    """What a node sees: the runtime, the run's state, and the transcript that reached it."""

    lm: "Runtime"
    attempt: int
    """1 for the first try of a step, one more for each retry."""

    def __init__(
        self,
        *,
        lm: "Runtime",
        cell: Cell,
        transcript: "Callable[[], Transcript]",
        goto: "Callable[[Transcript], None]",
        emit: Callable[[Event], None],
        attempt: int = 1,
    ) -> None:
        self.lm = lm
        self.attempt = attempt
        self._cell = cell
        self._transcript = transcript
        self._goto = goto
        self._emit = emit

    @property
    def state(self) -> S:
        """The run's state; assigning replaces it for all nodes of the run. Read-only inside a fork."""
        return cast("S", self._cell.value)

    @state.setter
    def state(self, state: S) -> None:
        if self._cell.frozen:
            raise GraphError(REMEDY)
        self._cell.value = state

    @property
    def transcript(self) -> "Transcript":
        """The transcript so far. Before the first llm node: the static prefix that it will begin with."""
        return self._transcript()

    def goto(self, transcript: "Transcript") -> None:
        """The successors continue from this transcript (a search that a step made itself)."""
        self._goto(transcript)

    async def emit(self, event: Event) -> None:
        """Put an event of your own into the run's stream; its run and path are filled in."""
        self._emit(event)
