"""The prefix plan: which transcripts a program extends, forks and joins, where they are held and let go.

Transcripts are named after the llm node that ended them; "" is one that has not begun yet.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agentree.graph.flow import show
from agentree.graph.nodes import (
    Branch,
    CallNode,
    Definition,
    ForkWay,
    JoinNode,
    LlmNode,
    MapWay,
    NodeSpec,
    SampleNode,
    StepNode,
    ToolsNode,
    targets,
)
from agentree.graph.transcripts import spread, transcript_flow


@dataclass(frozen=True)
class Extend:
    """Tokens are appended to a transcript."""

    node: str
    onto: tuple[str, ...]
    """The transcripts that may be extended here."""
    parts: tuple[str, ...]
    """What is appended; all but "prompt" are the same tokens in every run."""


@dataclass(frozen=True)
class Generate:
    """The model continues the transcript, which is called like the node from here on."""

    node: str
    output: str
    max_tokens: int
    tools: tuple[str, ...] = ()
    samples: int = 1
    """Above 1: that many continuations, none of which the successors go on from by themselves."""


@dataclass(frozen=True)
class Call:
    """Work outside the model: a step of the user's, the tool calls of a turn, or another program."""

    node: str
    what: tuple[str, ...]


@dataclass(frozen=True)
class Select:
    """One of several ways on, by the value's type."""

    node: str
    cases: tuple[tuple[str, str], ...]
    """Type and node; the type "otherwise" takes the rest."""


@dataclass(frozen=True)
class Fork:
    """A transcript is shared by branches. Its trunk is computed once, and held until the join."""

    node: str
    fork: str
    shared: tuple[str, ...]
    branches: tuple[str, ...]
    """The nodes that the branches begin with; of a map, the one that each of its branches begins with."""
    each: bool
    """Whether there is one branch for each item."""
    join: str


@dataclass(frozen=True)
class Join:
    """Branches meet; `keep` says which transcript goes on."""

    node: str
    keep: Literal["fork", "winner", "none"]
    closes: str | None
    """The fork that ends here; None where only some of its branches meet."""


@dataclass(frozen=True)
class Lease:
    """A transcript is held while others work, because it will be read again."""

    transcript: str
    next_use: int
    """Visits of nodes until then, on the shortest way."""


@dataclass(frozen=True)
class Release:
    """A transcript is not read again: its private part is the first to be evicted."""

    transcript: str
    node: str
    """From where on it is dead."""
    losers: bool = False
    """Only those of branches that a selector did not pick."""


Op = Extend | Generate | Call | Select | Fork | Join | Lease | Release


@dataclass(frozen=True)
class Plan:
    """The compiled prefix plan: operations depth first, each with the node that it belongs to."""

    ops: Sequence[Op]
    blocks: Mapping[str, Sequence[Op]]
    """The same operations by node, in the order of the plan."""

    def __str__(self) -> str:
        return "\n".join(str(op) for op in self.ops)


def lower(definition: Definition) -> Plan:
    """Lower each node once, depth first from the start."""
    lowering = _Lowering(definition)
    blocks = {node.name: tuple(lowering.node(node)) for node in depth_first(definition)}
    return Plan(tuple(op for block in blocks.values() for op in block), blocks)


def depth_first(definition: Definition) -> Iterator[NodeSpec]:
    """Each node once, a node's ways on in the order they were declared."""
    seen: set[str] = set()
    stack: list[NodeSpec] = [definition.start]
    while stack:
        node = stack.pop()
        if node.name in seen:
            continue
        seen.add(node.name)
        yield node
        if node.name in definition.routes:
            stack.extend(reversed(targets(definition.routes[node.name])))


class _Lowering:
    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        flow = transcript_flow(definition.nodes, definition.routes, definition.regions)
        is_llm = {name for name, node in definition.nodes.items() if isinstance(node, LlmNode)}
        self.reaching = spread(flow, lambda name, facts: {name} if name in is_llm else facts)
        self.leaving = {name: {name} if name in is_llm else self.reaching[name] for name in definition.nodes}

    def node(self, node: NodeSpec) -> Iterator[Op]:
        """The operations of one node, and of the way on from it."""
        if isinstance(node, LlmNode | SampleNode):
            yield from self._turn(node)
        elif isinstance(node, JoinNode):
            yield from self._join(node)
        else:
            dead = sorted(self._dying(node))
            yield from (Release(transcript, node.name) for transcript in dead)
            if isinstance(node, ToolsNode):
                yield Call(node.name, tuple(tool.name for tool in node.tools))
            elif isinstance(node, CallNode):
                yield Call(node.name, (node.program.name,))
            elif isinstance(node, StepNode):
                yield Call(node.name, ("step",))
        yield from self._way_on(node)

    def _turn(self, node: LlmNode | SampleNode) -> Iterator[Op]:
        head = self.definition.heads.get(node.name)
        if head is not None:
            given = (("system", head.system), ("tools", head.tools), ("examples", head.examples))
            parts = tuple(name for name, part in given if part)
            if parts:
                yield Extend(node.name, ("",), parts)
        yield Extend(node.name, tuple(sorted(self.reaching[node.name])), ("prompt",))
        if isinstance(node, SampleNode):
            yield Generate(node.name, show(node.output), node.max_tokens, samples=node.n)
            return
        tools = tuple(tool.name for tool in node.tools or ())
        yield Generate(node.name, show(node.types.output), node.max_tokens, tools)
        distance = self.definition.distance[node.name]
        if distance < float("inf"):
            yield Lease(node.name, int(distance))
        elif not self.definition.regions.stacks[node.name]:
            yield Release(node.name, node.name)

    def _join(self, node: JoinNode) -> Iterator[Op]:
        regions = self.definition.regions
        closes = next((fork for fork, join in regions.final.items() if join is node), None)
        yield Join(node.name, node.keep, closes)
        arms = {name for name, route in self.definition.routes.items() if node in targets(route)}
        brought = {t for arm in arms for t in self.leaving[arm] if t}
        survive: set[str] = set() if node.keep == "winner" else self.reaching[node.name]
        for transcript in sorted(brought - survive):
            yield Release(transcript, node.name, losers=node.keep == "winner")

    def _dying(self, node: NodeSpec) -> set[str]:
        """Transcripts that are alive on some way in, and dead from here on."""
        distance = self.definition.distance
        if distance[node.name] < float("inf") or self.definition.regions.stacks[node.name]:
            return set()
        return {
            transcript
            for name, route in self.definition.routes.items()
            if node in targets(route) and distance[name] < float("inf")
            for transcript in self.leaving[name]
            if transcript
        }

    def _way_on(self, node: NodeSpec) -> Iterator[Op]:
        route = self.definition.routes.get(node.name)
        if isinstance(route, Branch):
            cases = [
                (show(case.kind) + (" where ..." if case.where else ""), case.to.name) for case in route.cases
            ]
            if route.otherwise is not None:
                cases.append(("otherwise", route.otherwise.name))
            yield Select(node.name, tuple(cases))
        elif isinstance(route, MapWay | ForkWay):
            fork = self.definition.regions.fork_of(node, route)
            yield Fork(
                node.name,
                fork,
                tuple(sorted(self.leaving[node.name])),
                tuple(to.name for to in targets(route)),
                isinstance(route, MapWay),
                self.definition.regions.final[fork].name,
            )
