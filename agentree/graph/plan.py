"""The prefix plan: which transcripts a program extends, where they are held, and when they are let go.

Transcripts are named after the llm node that ended them; "" is one that has not begun yet.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentree.graph.flow import show
from agentree.graph.nodes import (
    Branch,
    Definition,
    EndNode,
    LlmNode,
    NodeSpec,
    StartNode,
    ToolsNode,
    targets,
)


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


@dataclass(frozen=True)
class Call:
    """Work outside the model: a step of the user's, or the tool calls of a turn."""

    node: str
    what: tuple[str, ...]


@dataclass(frozen=True)
class Select:
    """One of several ways on, by the value's type."""

    node: str
    cases: tuple[tuple[str, str], ...]
    """Type and node; the type "otherwise" takes the rest."""


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


Op = Extend | Generate | Call | Select | Lease | Release


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
    reaching = reaching_transcripts(definition)
    blocks: dict[str, tuple[Op, ...]] = {}
    for node in depth_first(definition):
        blocks[node.name] = tuple(_lower(definition, node, reaching[node.name]))
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


def reaching_transcripts(definition: Definition) -> dict[str, set[str]]:
    """Per node, the transcripts that may come in: a forward data flow to its fixed point."""
    reaching: dict[str, set[str]] = {name: set() for name in definition.nodes}
    reaching["start"] = {""}
    work: list[NodeSpec] = [definition.start]
    while work:
        node = work.pop()
        leaving = {node.name} if isinstance(node, LlmNode) else reaching[node.name]
        for to in targets(definition.routes[node.name]) if node.name in definition.routes else ():
            if not leaving <= reaching[to.name]:
                reaching[to.name] |= leaving
                work.append(to)
    return reaching


def _lower(definition: Definition, node: NodeSpec, reaching: set[str]) -> Iterator[Op]:
    distance = definition.distance[node.name]
    transcripts = sorted(reaching)
    if isinstance(node, LlmNode):
        if node.name in definition.heads:
            head = definition.heads[node.name]
            parts = [
                name
                for name, given in (
                    ("system", head.system),
                    ("tools", head.tools),
                    ("examples", head.examples),
                )
                if given
            ]
            if parts:
                yield Extend(node.name, ("",), tuple(parts))
        yield Extend(node.name, tuple(transcripts), ("prompt",))
        yield Generate(
            node.name, show(node.types.output), node.max_tokens, tuple(t.name for t in node.tools or ())
        )
        if distance == float("inf"):
            yield Release(node.name, node.name)
        else:
            yield Lease(node.name, int(distance))
    else:
        if distance == float("inf") and not isinstance(node, StartNode):
            dead = [t for t in transcripts if t and _alive_before(definition, node, t)]
            yield from (Release(t, node.name) for t in dead)
        if isinstance(node, ToolsNode):
            yield Call(node.name, tuple(tool.name for tool in node.tools))
        elif not isinstance(node, StartNode | EndNode):
            yield Call(node.name, (node.kind,))
    route = definition.routes.get(node.name)
    if isinstance(route, Branch):
        cases = [
            (show(case.kind) + (" where ..." if case.where else ""), case.to.name) for case in route.cases
        ]
        if route.otherwise is not None:
            cases.append(("otherwise", route.otherwise.name))
        yield Select(node.name, tuple(cases))


def _alive_before(definition: Definition, node: NodeSpec, transcript: str) -> bool:
    """Whether some way into a node comes from where the transcript could still be read."""
    return any(
        definition.distance[name] < float("inf")
        and (name == transcript or not isinstance(definition.nodes[name], LlmNode))
        for name, route in definition.routes.items()
        if node in targets(route)
    )
