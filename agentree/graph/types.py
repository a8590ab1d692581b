"""What builder, compiler and executor share: type variables, the `Node` protocol and `Limits`."""

from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol

from typing_extensions import TypeVar

from agentree.errors import InvalidArgument
from agentree.graph.bounds import seconds, whole_number

T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R")
S = TypeVar("S", default=None)
I = TypeVar("I", default=None)  # noqa: E741
O = TypeVar("O", default=None)  # noqa: E741
S_contra = TypeVar("S_contra", contravariant=True)
I_contra = TypeVar("I_contra", contravariant=True)
O_co = TypeVar("O_co", covariant=True)


@dataclass(frozen=True)
class Flow(Generic[S_contra, I_contra, O_co]):
    """The types that a node takes and gives, as far as annotations tell them (`Any` where they don't)."""

    input: Any = Any
    output: Any = Any


class Node(Protocol[S_contra, I_contra, O_co]):
    """A node of a graph: takes an input with a state, gives an output. Made by a `Graph`."""

    @property
    def name(self) -> str:
        """Unique in its graph; the first segment of a visit's task path."""
        ...

    @property
    def _flow(self) -> Flow[S_contra, I_contra, O_co]: ...


@dataclass(frozen=True)
class Limits:
    """What a run may spend. Checked before the act that would exceed them."""

    turns: int = 20
    """LLM visits along one task path."""
    tool_calls: int | None = None
    """Tool calls of the whole run."""
    tokens: int | None = None
    """Prompt and output tokens of all generations: no turn starts once they are used up. The prompts of turns
    that are under way count as used; what a step generates by itself counts when the step is over."""
    seconds: float | None = None
    """From the start of the run; whatever is under way then is cancelled."""
    repeats: int = 3
    """The identical tool call of this number along one task path is not run any more. At least 2.

    Calls that ended in an error count too, such as one that `ToolRetry` asked the model to correct."""
    on_limit: Literal["raise", "answer"] = "raise"
    """`raise` ends in `LimitReached`; `answer` (the templates' default) in one last turn, forced to the
    output type."""

    def __post_init__(self) -> None:
        for name, least in (("turns", 1), ("tool_calls", 0), ("tokens", 1), ("repeats", 2)):
            value: int | None = getattr(self, name)
            if value is not None or name in ("turns", "repeats"):
                whole_number(f"Limits({name}", value, least)
        if self.seconds is not None:
            seconds("Limits(seconds", self.seconds)
        if self.on_limit not in ("raise", "answer"):
            raise InvalidArgument(f"Limits(on_limit={self.on_limit!r}): write 'raise' or 'answer'")
