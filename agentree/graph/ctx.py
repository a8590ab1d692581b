"""What a node's function sees of the run that it is part of."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, cast

from agentree.errors import GraphError
from agentree.events import Event
from agentree.graph.frozen import REMEDY
from agentree.graph.given import check_event
from agentree.graph.types import S, T

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
    call_key: str
    """Names this visit in all runs, also when it is repeated after a crash: an idempotency key for what the
    step asks of others."""

    def __init__(
        self,
        *,
        lm: "Runtime",
        cell: Cell,
        transcript: "Callable[[], Transcript]",
        goto: "Callable[[Transcript], None]",
        emit: Callable[[Event], None],
        attempt: int,
        call_key: str,
        ask: Callable[[str, Any], Awaitable[Any]],
    ) -> None:
        self.lm = lm
        self.attempt = attempt
        self._cell = cell
        self._transcript = transcript
        self._goto = goto
        self._emit = emit
        self.call_key = call_key
        self._ask = ask

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
        check_event(event)
        self._emit(event)

    async def interrupt(self, question: str, reply: type[T]) -> T:
        """Stop here until a person answers; the question and the answer are journaled.

        The branch ends here in this process. Once the answer is there, `Program.resume` runs the step again
        from its start, and this returns it. The same question has to be asked again: an answer is bound to
        its place and to the words of its question. Generations made before it are taken from the journal.

        Raises:
            AgentreeError: The run has no journal.
            InvalidArgument: The reply type can't be described to a person.
        """
        return cast("T", await self._ask(question, reply))
