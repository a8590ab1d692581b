"""Where transcripts flow: not always along the edges, because a join says which one survives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agentree.graph.nodes import (
    CallNode,
    Edge,
    ForkWay,
    JoinNode,
    LlmNode,
    MapWay,
    NodeSpec,
    Route,
    SampleNode,
    targets,
)
from agentree.graph.regions import Regions


@dataclass(frozen=True)
class TranscriptFlow:
    """The edges that transcripts take, and where new ones may begin."""

    after: Mapping[str, tuple[str, ...]]
    fresh: tuple[str, ...]
    """Nodes that a transcript may reach before anything has begun it."""


def transcript_flow(
    nodes: Mapping[str, NodeSpec], ways: Mapping[str, Route], regions: Regions
) -> TranscriptFlow:
    """A join that keeps "fork" takes what reached its fork, "winner" what its arms give, "none" nothing.

    Nothing passes an edge with a fresh transcript.
    """
    after: dict[str, list[str]] = {name: [] for name in nodes}
    fresh = ["start"]
    for name, route in ways.items():
        if isinstance(route, Edge) and route.fresh:
            fresh.append(route.to.name)
            continue
        for to in targets(route):
            if not isinstance(to, JoinNode) or to.keep == "winner":
                after[name].append(to.name)
        if isinstance(route, MapWay | ForkWay):
            fork = regions.fork_of(nodes[name], route)
            joins = (regions.final[fork], *regions.inner[fork])
            after[name].extend(join.name for join in joins if join.keep == "fork")
    fresh.extend(node.name for node in nodes.values() if isinstance(node, JoinNode) and node.keep == "none")
    return TranscriptFlow({name: tuple(dict.fromkeys(to)) for name, to in after.items()}, tuple(fresh))


def spread(flow: TranscriptFlow, leaving: Callable[[str, set[str]], set[str]]) -> dict[str, set[str]]:
    """Per node, the facts that come in with a transcript: a forward data flow to its fixed point.

    "" is the fact that there is none yet. `leaving` tells what goes on from a node, given what came in.
    """
    entering: dict[str, set[str]] = {name: set() for name in flow.after}
    for name in flow.fresh:
        entering[name].add("")
    work = list(flow.fresh)
    while work:
        name = work.pop()
        facts = leaving(name, entering[name])
        for to in flow.after[name]:
            if not facts <= entering[to]:
                entering[to] |= facts
                work.append(to)
    return entering


def reads(node: NodeSpec) -> bool:
    """Whether a node extends the transcript that reaches it."""
    return isinstance(node, LlmNode | SampleNode) or (
        isinstance(node, CallNode) and node.transcript == "fork"
    )


def distances(nodes: Mapping[str, NodeSpec], flow: TranscriptFlow) -> dict[str, float]:
    """Breadth first from the readers against the flow: visits until a node's transcript is read again."""
    before: dict[str, list[str]] = {name: [] for name in flow.after}
    for name, after in flow.after.items():
        for to in after:
            before[to].append(name)
    distance = dict.fromkeys(flow.after, float("inf"))
    wave, steps = [name for name, node in nodes.items() if reads(node)], 0
    while wave:
        steps += 1
        found = {p for name in wave for p in before[name] if distance[p] == float("inf")}
        for name in found:
            distance[name] = steps
        wave = [name for name in found if not isinstance(nodes[name], LlmNode)]
    return distance
