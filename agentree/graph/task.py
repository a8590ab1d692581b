"""What a running program keeps: facts of the whole run, and the task that moves from node to node."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agentree.events import Bus, Event
from agentree.graph.budget import Hit, LimitHit, Trail
from agentree.graph.ctx import Cell
from agentree.graph.nodes import LlmNode
from agentree.graph.record import Recorder
from agentree.messages import Message
from agentree.tools import ToolCalls

if TYPE_CHECKING:
    from agentree.graph.journal.visits import RunJournal
    from agentree.lm import Runtime, Transcript


@dataclass(eq=False)
class Shared:
    """One run and everything in it, also the programs that it calls."""

    id: str
    lm: "Runtime"
    bus: Bus
    seed: int
    record: Recorder
    journal: "RunJournal | None" = None
    visits: Counter[str] = field(default_factory=Counter[str])
    """Per task path without its visit number, how often it was visited."""
    transcript: "Transcript | None" = None
    """The latest of the main path."""
    output: object = None
    """What a node of the main path gave last."""

    def path(self, base: str) -> str:
        """The task path of one more visit."""
        path = self.next_path(base)
        self.visits[base] += 1
        return path

    def next_path(self, base: str) -> str:
        """The task path that one more visit will have."""
        count = self.visits[base] + 1
        return base if count == 1 else f"{base}#{count}"

    def emit(self, event: Event, path: str) -> None:
        """Deliver an event of this run."""
        self.bus.emit(replace(event, run=self.id, path=path))


@dataclass(eq=False)
class Task:
    """A value and a transcript on their way through the graph."""

    trail: Trail
    cell: Cell
    transcript: "Transcript | None" = None
    """None: no llm node has begun it."""
    indices: tuple[int, ...] = ()
    """The branch of each fork that it is in, outermost first."""
    llm: LlmNode | None = None
    """The llm node that was visited last."""
    value: Any = None
    """The latest output of a node."""
    path: str = ""
    """Its latest visit."""
    trunk: int = 0
    """Tokens at the start of its transcript that others share: the static prefix, or what it was given."""
    origin: "Transcript | None" = None
    """What it had where its innermost fork began."""
    unanswered: ToolCalls | None = None
    """Calls that the transcript ends with, until their results are appended."""

    def hit(
        self,
        hit: Hit,
        *,
        transcript: "Transcript | None" = None,
        pending: Sequence[Message] = (),
    ) -> LimitHit:
        """The signal that a limit stops this task; `pending` is what a last turn must see first."""
        return LimitHit(
            hit,
            transcript=self.transcript if transcript is None else transcript,
            partial=self.value,
            node=self.llm,
            pending=pending,
        )
