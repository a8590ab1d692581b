"""What a graph is made of, as data: nodes and the ways that lead on from them."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Never

from agentree.errors import GraphError
from agentree.graph.types import Flow
from agentree.messages import Message
from agentree.tools import Tool

if TYPE_CHECKING:
    from agentree.graph.program import Program
    from agentree.graph.regions import Regions

Kind = Literal["start", "end", "step", "llm", "sample", "tools", "call", "join", "arms"]


@dataclass(eq=False, repr=False)
class NodeSpec:
    """Base of all nodes. Compared by identity; named uniquely inside a graph."""

    name: str
    types: Flow[Any, Any, Any]
    owner: object = field(repr=False)
    """The graph that made it."""

    kind: Kind = field(default="step", init=False)

    def __repr__(self) -> str:
        return f"<{self.kind} node {self.name!r}>"

    if not TYPE_CHECKING:

        def __call__(self, *args: object, **kwargs: object) -> Never:
            """Say how a node is used."""
            raise GraphError(
                f"{self.name!r} is a node, not a function: wire it with g.edge(..., {self.name}), or keep "
                "the function under another name to call it"
            )

    @property
    def _flow(self) -> Flow[Any, Any, Any]:
        return self.types


@dataclass(eq=False, repr=False)
class StartNode(NodeSpec):
    """Where a run comes in."""

    kind: Kind = field(default="start", init=False)


@dataclass(eq=False, repr=False)
class EndNode(NodeSpec):
    """Where a run's output leaves."""

    kind: Kind = field(default="end", init=False)


@dataclass(eq=False, repr=False)
class StepNode(NodeSpec):
    """An async function of the user's."""

    fn: Callable[[Any, Any], Awaitable[Any]]
    retries: int = 0
    timeout: float | None = None
    pure: bool = False
    kind: Kind = field(default="step", init=False)


@dataclass(eq=False, repr=False)
class LlmNode(NodeSpec):
    """A prompt function and what the model's answer shall be."""

    prompt: Callable[[Any, Any], Message]
    outputs: tuple[Any, ...]
    tools: tuple[Tool[..., Any], ...] | None = None
    """None: no tool turn. Empty: a tool turn that can only give the final answer."""
    parallel: bool = False
    """Whether a tool turn may make several calls."""
    max_tokens: int = 256
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    system: str | None = None
    think: int = 0
    examples: tuple[Message, ...] = ()
    """Worked turns, rendered after the system message into the static prefix."""
    kind: Kind = field(default="llm", init=False)


@dataclass(eq=False, repr=False)
class ToolsNode(NodeSpec):
    """Runs the tool calls of one turn."""

    tools: tuple[Tool[..., Any], ...]
    parallel: int = 8
    kind: Kind = field(default="tools", init=False)


@dataclass(eq=False, repr=False)
class SampleNode(NodeSpec):
    """Several answers to one prompt, on branches of the transcript."""

    prompt: Callable[[Any, Any], Message]
    n: int
    output: Any
    max_tokens: int = 256
    temperature: float = 1.0
    system: str | None = None
    kind: Kind = field(default="sample", init=False)


@dataclass(eq=False, repr=False)
class CallNode(NodeSpec):
    """Another program, run as a part of this one."""

    program: "Program[Any, Any, Any]"
    transcript: Literal["fresh", "fork"] = "fresh"
    kind: Kind = field(default="call", init=False)


@dataclass(eq=False, repr=False)
class JoinNode(NodeSpec):
    """Where the branches of a fork meet."""

    reduce: Callable[[Sequence[Any]], Any]
    keep: Literal["fork", "winner", "none"] = "fork"
    on_error: Literal["raise", "collect"] = "raise"
    kind: Kind = field(default="join", init=False)


@dataclass(eq=False, repr=False)
class Arms(NodeSpec):
    """What `fork` returns for several targets: no node of the graph, only something to join."""

    arms: tuple[NodeSpec, ...]
    kind: Kind = field(default="arms", init=False)


@dataclass(frozen=True)
class Edge:
    """The only way on."""

    to: NodeSpec
    max_visits: int | None = None
    fresh: bool = False
    """The transcript ends here: the next llm node begins another one."""


@dataclass(frozen=True)
class CaseArm:
    """One way of a branch: taken by values of `kind` for which `where` holds."""

    kind: Any
    to: NodeSpec
    where: Callable[[Any], bool] | None = None


@dataclass
class Branch:
    """Ways on by the output's type; the first case that takes the value wins."""

    cases: list[CaseArm] = field(default_factory=list[CaseArm])
    otherwise: NodeSpec | None = None


@dataclass(frozen=True)
class MapWay:
    """One branch of `to` per item of the output; `to` is the fork's identity."""

    to: NodeSpec
    parallel: int | None = None


@dataclass(frozen=True)
class ForkWay:
    """One branch per target, each with the same value."""

    to: tuple[NodeSpec, ...]


Route = Edge | Branch | MapWay | ForkWay


def targets(route: Route) -> list[NodeSpec]:
    """The nodes that a route may lead to, each once, in order."""
    if isinstance(route, Edge | MapWay):
        return [route.to]
    if isinstance(route, ForkWay):
        return list(route.to)
    found = [case.to for case in route.cases]
    if route.otherwise is not None:
        found.append(route.otherwise)
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Head:
    """The static prefix of a transcript: the same bytes in every run."""

    system: str | None
    tools: tuple[Tool[..., Any], ...]
    examples: tuple[Message, ...]


@dataclass(frozen=True)
class Definition:
    """A validated graph: what compiling leaves, shared by all runs and never changed."""

    name: str
    state: type | None
    input: Any
    output: Any
    start: StartNode
    end: EndNode
    nodes: dict[str, NodeSpec]
    """Every reachable node by name, in order of definition."""
    routes: dict[str, Route]
    heads: dict[str, Head]
    """By llm node that may come first on a path: what its transcript begins with."""
    distance: dict[str, float]
    """Visits from the end of a node until its transcript is read again; infinity: never."""
    regions: "Regions"
    """Which forks are open where, and which joins close them."""
    takes_turns: bool
    """Whether no run gets from start to end without an LLM visit."""
