"""Matches forks and joins.

A fork is a virtual node: that of a map stands before its target (so that a loop that maps into the same node
enters the same fork), that of a fork behind its source. The join that closes a fork is its nearest
post-dominating join that no inner fork takes. Then the stack of open forks is carried along the edges; it
must be the same on every way into a node, as the operand stack in a bytecode verifier.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import networkx as nx

from agentree.errors import GraphError
from agentree.graph.nodes import ForkWay, JoinNode, MapWay, NodeSpec, Route, targets
from agentree.graph.reduce import Selector
from agentree.graph.regions import Regions, fork_name, spelled


def find_regions(nodes: Mapping[str, NodeSpec], ways: Mapping[str, Route]) -> Regions:
    """Match forks and joins. Every node must be reachable and must lead to the end.

    Raises:
        GraphError: Branches don't meet, a join has no fork, or a way leads into or out of a fork's inside.
    """
    graph, forks = _with_forks(nodes, ways)
    dominators = cast("dict[str, str]", cast("Any", nx).immediate_dominators(graph.reverse(), "end"))
    final = {fork: _closing_join(fork, dominators, nodes, forks) for fork in forks}
    stacks = _stacks(graph, nodes, forks, final)
    inner: dict[str, tuple[JoinNode, ...]] = dict.fromkeys(forks, ())
    reaches: dict[str, frozenset[str]] = {}
    closing = {join.name for join in final.values()}
    for node in nodes.values():
        if isinstance(node, JoinNode) and node.name not in closing:
            fork = stacks[node.name][-1]
            inner[fork] = (*inner[fork], node)
            reaches[node.name] = _reaching(graph, node, fork, stacks)
            _check_inner(graph, node, fork, reaches[node.name])
    return Regions(final, {name: stacks[name] for name in nodes}, inner, reaches)


def _with_forks(
    nodes: Mapping[str, NodeSpec], ways: Mapping[str, Route]
) -> "tuple[nx.DiGraph[str], dict[str, list[str]]]":
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(nodes)
    forks: dict[str, list[str]] = {}
    for name, route in ways.items():
        if isinstance(route, MapWay | ForkWay):
            fork = fork_name(name, route)
            graph.add_edge(name, fork)
            forks[fork] = [to.name for to in targets(route)]
            graph.add_edges_from((fork, to) for to in forks[fork])
        else:
            graph.add_edges_from((name, to.name) for to in targets(route))
    return graph, forks


def _closing_join(
    fork: str,
    dominators: Mapping[str, str],
    nodes: Mapping[str, NodeSpec],
    forks: Mapping[str, Sequence[str]],
) -> JoinNode:
    at, depth = dominators[fork], 0
    while at != "end":
        node = nodes.get(at)
        if at in forks:
            depth += 1
        elif isinstance(node, JoinNode):
            if depth == 0:
                return node
            depth -= 1
        at = dominators[at]
    arms = ", ".join(forks[fork])
    raise GraphError(
        f"the branches of {spelled(fork)} don't all meet: lead every one of them to one join, as in "
        f"g.join([{arms}], collect(...)), and go on from there"
    )


def _stacks(
    graph: "nx.DiGraph[str]",
    nodes: Mapping[str, NodeSpec],
    forks: Mapping[str, Sequence[str]],
    final: Mapping[str, JoinNode],
) -> dict[str, tuple[str, ...]]:
    stacks: dict[str, tuple[str, ...]] = {"start": ()}
    came: dict[str, str] = {}
    work = ["start"]
    while work:
        name = work.pop()
        leaving = (*stacks[name], name) if name in forks else stacks[name]
        for to in graph.successors(name):
            entering = _entering(name, to, leaving, nodes, final)
            if to not in stacks:
                stacks[to], came[to] = entering, name
                work.append(to)
            elif stacks[to] != entering:
                raise GraphError(_two_ways(to, name, leaving, came[to], stacks))
    return stacks


def _entering(
    name: str, to: str, leaving: tuple[str, ...], nodes: Mapping[str, NodeSpec], final: Mapping[str, JoinNode]
) -> tuple[str, ...]:
    node = nodes.get(to)
    if isinstance(node, JoinNode):
        if not leaving:
            raise GraphError(
                f"join {to!r} has no fork: no g.map or g.fork is open where {name!r} leads to it; "
                "use g.edge, or fork first"
            )
        return leaving[:-1] if final[leaving[-1]] is node else leaving
    if to == "end" and leaving:
        raise GraphError(
            f"{name!r} leads to 'end' from inside {spelled(leaving[-1])}: "
            f"lead to {final[leaving[-1]].name!r} instead"
        )
    return leaving


def _two_ways(
    to: str, one: str, leaving: Sequence[str], other: str, stacks: Mapping[str, Sequence[str]]
) -> str:
    def where(stack: Sequence[str]) -> str:
        return f"inside {spelled(stack[-1])}" if stack else "outside of all forks"

    return (
        f"{to!r} is reached from {one!r} ({where(leaving)}) and from {other!r} ({where(stacks[other])}): "
        "a way may leave a fork only through its join, and enter it only through its map or fork"
    )


def _reaching(
    graph: "nx.DiGraph[str]", join: JoinNode, fork: str, stacks: Mapping[str, tuple[str, ...]]
) -> frozenset[str]:
    depth = len(stacks[join.name])
    inside = [n for n, stack in stacks.items() if stack[:depth] == stacks[join.name] or n == join.name]
    region: nx.DiGraph[str] = cast("Any", graph).subgraph([n for n in inside if n != fork])
    return frozenset(cast("set[str]", cast("Any", nx).ancestors(region, join.name)))


def _check_inner(graph: "nx.DiGraph[str]", join: JoinNode, fork: str, reaches: frozenset[str]) -> None:
    again = [to for to in graph.successors(join.name) if to in reaches or to == join.name]
    if again:
        raise GraphError(
            f"join {join.name!r} lies on a cycle inside {spelled(fork)}, so it can't tell when all its "
            f"branches are there: close the fork before going back to {again[0]!r}"
        )
    if isinstance(join.reduce, Selector) and join.reduce.eager:
        raise GraphError(
            f"join {join.name!r} takes first(...) but does not close {spelled(fork)}: join all branches there"
        )
