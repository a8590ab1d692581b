"""Forks that are still open where a way ends: what to write so that their branches meet."""

from collections.abc import Iterable, Mapping
from typing import Any

from agentree.graph.flow import fits, show, union
from agentree.graph.nodes import EndNode, ForkWay, JoinNode, MapWay, NodeSpec, Route, targets
from agentree.graph.regions import fork_name, spelled

Stack = tuple[str, ...]


def join_before(
    nodes: Mapping[str, NodeSpec], ways: Mapping[str, Route], at: NodeSpec, to: NodeSpec, item: Any
) -> str:
    """The edge to write where branches lead to `to`, which takes a list of `item`, without a join.

    "" where no fork is open at `at`.
    """
    stacks = _stacks(ways)
    if not stacks.get(at.name):
        return ""
    after = _after(to, ways)
    ends = [
        node
        for node in _same(nodes, stacks, at)
        if node.name not in after
        and (node.name not in ways or any(target is to for target in targets(ways[node.name])))
    ]
    return f"g.edge({_join(ends, item)}, {'g.end' if isinstance(to, EndNode) else to.name})"


def open_end(nodes: Mapping[str, NodeSpec], ways: Mapping[str, Route]) -> str:
    """What is wrong where a branch of a fork leads nowhere, and how to join it; "" where none does."""
    stacks = _stacks(ways)
    for node in nodes.values():
        if node.name in ways or isinstance(node, EndNode) or not stacks.get(node.name):
            continue
        ends = [
            other
            for other in _same(nodes, stacks, node)
            if other.name not in ways or any(isinstance(to, _OUT) for to in targets(ways[other.name]))
        ]
        item = union(end.types.output for end in ends)
        following = _following(nodes, stacks, item)
        return (
            f"node {node.name!r} leads nowhere, and {spelled(stacks[node.name][-1])} is open there: bring "
            f"its branches together with g.edge({_join(ends, item)}, {following}), or lead {node.name!r} on "
            "inside its branch"
        )
    return ""


_OUT = (JoinNode, EndNode)
"""Where a way out of a fork leads."""


def _stacks(ways: Mapping[str, Route]) -> dict[str, Stack]:
    """The forks that are open at each node, outermost first, on the first way that leads there."""
    stacks: dict[str, Stack] = {"start": ()}
    work = ["start"]
    while work:
        name = work.pop()
        route = ways.get(name)
        if route is None:
            continue
        inside = isinstance(route, MapWay | ForkWay)
        leaving = (*stacks[name], fork_name(name, route)) if inside else stacks[name]
        for to in targets(route):
            if to.name not in stacks:
                stacks[to.name] = leaving[:-1] if isinstance(to, JoinNode) else leaving
                work.append(to.name)
    return stacks


def _same(nodes: Mapping[str, NodeSpec], stacks: Mapping[str, Stack], at: NodeSpec) -> Iterable[NodeSpec]:
    """The nodes inside the same fork, outside of inner ones."""
    return [
        node
        for node in nodes.values()
        if stacks.get(node.name) == stacks[at.name] and not isinstance(node, EndNode)
    ]


def _after(node: NodeSpec, ways: Mapping[str, Route]) -> set[str]:
    """A node, and all that can be reached from it."""
    found, work = {node.name}, [node.name]
    while work:
        route = ways.get(work.pop())
        new = [] if route is None else [to.name for to in targets(route) if to.name not in found]
        found.update(new)
        work += new
    return found


def _following(nodes: Mapping[str, NodeSpec], stacks: Mapping[str, Stack], item: Any) -> str:
    """Where the join may lead: a node that nothing leads to yet and that takes its list, or the end."""
    takes = [
        node
        for node in nodes.values()
        if (isinstance(node, EndNode) or node.name not in stacks) and fits(list[item], node.types.input)
    ]
    if not takes:
        return "<next node>"
    inner = [node for node in takes if not isinstance(node, EndNode)]
    return inner[0].name if inner else "g.end"


def _join(ends: Iterable[NodeSpec], item: Any) -> str:
    names = [end.name for end in ends]
    arms = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    return f"g.join({arms}, collect({show(item)}))"
