"""Validation: a graph becomes a `Definition`, or a `GraphError` that names node and remedy."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import networkx as nx

from agentree.errors import ConstraintError, GraphError
from agentree.graph.flow import fits, items_of, matches_all, members, overlaps, show
from agentree.graph.matching import find_regions
from agentree.graph.nodes import (
    Branch,
    CallNode,
    Definition,
    Edge,
    EndNode,
    ForkWay,
    Head,
    JoinNode,
    LlmNode,
    MapWay,
    NodeSpec,
    Route,
    SampleNode,
    StartNode,
    ToolsNode,
    targets,
)
from agentree.graph.transcripts import TranscriptFlow, distances, spread, transcript_flow
from agentree.graph.types import Limits
from agentree.graph.unjoined import join_before, open_end

Ways = dict[str, Route]


def define(
    name: str,
    state: type | None,
    input_type: Any,
    output_type: Any,
    nodes: Sequence[NodeSpec],
    routes: Sequence[tuple[NodeSpec, Route]],
    *,
    limits: Limits | None,
) -> Definition:
    """Validate in the order that gives the most useful first error."""
    _check_names(nodes)
    start, end = nodes[0], nodes[1]
    assert isinstance(start, StartNode)
    assert isinstance(end, EndNode)
    ways = _single_routes(routes)
    by_name = {node.name: node for node in nodes}
    graph = _digraph(nodes, ways)
    _check_branches(by_name, ways)
    _check_types(by_name, ways)
    _check_reachable(graph, by_name, ways)
    _check_outputs(by_name)
    _check_ends(graph, nodes)
    _check_cycles(graph, by_name, ways, limits)
    regions = find_regions(by_name, ways)
    flow = transcript_flow(by_name, ways, regions)
    return Definition(
        name=name,
        state=state,
        input=input_type,
        output=output_type,
        start=start,
        end=end,
        nodes=by_name,
        routes=ways,
        heads=_heads(by_name, flow),
        distance=distances(by_name, flow),
        regions=regions,
        takes_turns=_takes_turns(graph, by_name),
    )


def _check_names(nodes: Sequence[NodeSpec]) -> None:
    for name, count in Counter(node.name for node in nodes).items():
        if count > 1:
            raise GraphError(
                f"{count} nodes are named {name!r}: give their functions different names"
                + (" ('start' and 'end' are taken)" if name in ("start", "end") else "")
            )


def _single_routes(routes: Sequence[tuple[NodeSpec, Route]]) -> Ways:
    ways: Ways = {}
    for node, route in routes:
        if isinstance(node, EndNode):
            raise GraphError("nothing comes after 'end': turn the edge around")
        for to in targets(route):
            if isinstance(to, StartNode):
                raise GraphError(f"{node.name!r} leads back to 'start': lead to the node after it instead")
        if node.name in ways:
            both = " and ".join(sorted((_verb(ways[node.name]), _verb(route))))
            raise GraphError(
                f"node {node.name!r} has two ways on ({both}): for a choice "
                f"use one g.branch({node.name}).case(...).case(...), for both side by side "
                f"g.fork({node.name}, ...), for a sequence wire the second node after the first"
            )
        ways[node.name] = route
    return ways


def _verb(route: Route) -> str:
    if isinstance(route, MapWay | ForkWay):
        return "a map" if isinstance(route, MapWay) else "a fork"
    return "an edge" if isinstance(route, Edge) else "a branch"


def _digraph(nodes: Sequence[NodeSpec], ways: Ways) -> "nx.DiGraph[str]":
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(node.name for node in nodes)
    graph.add_edges_from((name, to.name) for name, route in ways.items() for to in targets(route))
    return graph


def _check_reachable(graph: "nx.DiGraph[str]", nodes: dict[str, NodeSpec], ways: Ways) -> None:
    if "start" not in ways:
        raise GraphError("nothing comes after 'start': add g.edge(g.start, <first node>)")
    if wrong := open_end(nodes, ways):
        raise GraphError(wrong)
    reachable = {"start"} | set(nx.descendants(graph, "start"))
    for node in nodes.values():
        if node.name not in reachable and not isinstance(node, EndNode):
            raise GraphError(
                f"node {node.name!r} is unreachable from 'start': lead to it with g.edge(..., {node.name}) "
                "or a branch's case, or remove it"
            )
    for node in nodes.values():
        if node.name not in ways and not isinstance(node, EndNode):
            raise GraphError(
                f"node {node.name!r} leads nowhere: add g.edge({node.name}, g.end), an edge to the next "
                f"node, or g.branch({node.name})"
            )


def _check_ends(graph: "nx.DiGraph[str]", nodes: Sequence[NodeSpec]) -> None:
    ending = {"end"} | set(nx.ancestors(graph, "end"))
    for node in nodes:
        if node.name not in ending:
            raise GraphError(
                f"no path leads from {node.name!r} to 'end': add an edge or a case that leaves its loop"
            )


def _check_branches(nodes: dict[str, NodeSpec], ways: Ways) -> None:
    for name, route in ways.items():
        if not isinstance(route, Branch):
            continue
        if not route.cases:
            raise GraphError(f"the branch after {name!r} has no case: add .case(Type, node), or use g.edge")
        gives = nodes[name].types.output
        for case in route.cases:
            if not overlaps(gives, case.kind):
                raise GraphError(
                    f"the branch after {name!r} has a case for {show(case.kind)}, but {name!r} gives "
                    f"{show(gives)}: remove the case or correct its type"
                )
            if not fits(case.kind, case.to.types.input):
                raise GraphError(
                    f"the branch after {name!r} sends {show(case.kind)} to {case.to.name!r}, which takes "
                    f"{show(case.to.types.input)}: change the case or put a step between them"
                )
        if route.otherwise is not None:
            continue
        sure = [case.kind for case in route.cases if case.where is None]
        open_ = [
            form for form in members(gives) if form is not Any and not any(matches_all(form, k) for k in sure)
        ]
        if open_:
            kinds = ", ".join(show(form) for form in open_)
            raise GraphError(
                f"the branch after {name!r} is open: no case is sure to take {kinds}; add "
                f".case({show(open_[0])}, <node>) or .otherwise(<node>)"
            )


def _check_types(nodes: dict[str, NodeSpec], ways: Ways) -> None:
    for name, route in ways.items():
        node = nodes[name]
        gives = items_of(node.types.output) if isinstance(route, MapWay) else node.types.output
        for to in targets(route):
            if not isinstance(route, Branch) and not fits(gives, to.types.input):
                each = "for each item " if isinstance(route, MapWay) else ""
                raise GraphError(
                    f"{_verb(route).split()[-1]} {name!r} -> {to.name!r}: {name!r} gives {each}{show(gives)}"
                    f", {to.name!r} takes {show(to.types.input)}; {_between(node, gives, to, nodes, ways)}"
                )
            if isinstance(to, ToolsNode) and isinstance(node, LlmNode):
                missing = {t.name for t in node.tools or ()} - {t.name for t in to.tools}
                if missing:
                    raise GraphError(
                        f"{name!r} may call {', '.join(sorted(missing))}, which {to.name!r} doesn't have: "
                        "give both the same tools"
                    )


def _between(node: NodeSpec, gives: Any, to: NodeSpec, nodes: dict[str, NodeSpec], ways: Ways) -> str:
    """The remedy for types that don't fit: many for one and one for many are the commonest slips."""
    one, many = items_of(gives), items_of(to.types.input)
    if one is not Any and fits(one, to.types.input):
        return f"for a branch per item write g.map({node.name}, {to.name}), and join what it returns"
    if many is not Any and fits(gives, many):
        if isinstance(node, JoinNode):
            return f"join with collect({show(many)}) to keep all results"
        if edge := join_before(nodes, ways, node, to, many):
            return f"in place of what leads to {to.name!r} now, bring the branches together: {edge}"
        return (
            f"where {node.name!r} ends several branches, bring them together with "
            f"g.join({node.name}, collect({show(many)})), else put a step between them"
        )
    return "put a step between them, or branch on the type"


def _check_cycles(
    graph: "nx.DiGraph[str]", nodes: dict[str, NodeSpec], ways: Ways, limits: Limits | None
) -> None:
    if limits is not None and limits.seconds is not None:
        return
    unbounded: nx.DiGraph[str] = nx.DiGraph(graph)
    for name, route in ways.items():
        if isinstance(route, Edge) and route.max_visits is not None:
            unbounded.remove_edge(name, route.to.name)
    if limits is not None:
        unbounded.remove_nodes_from([name for name, node in nodes.items() if _spends(node, limits)])
    try:
        cycle = cast("list[tuple[str, str]]", list(cast("Any", nx).find_cycle(unbounded)))
    except nx.NetworkXNoCycle:
        return
    way = " -> ".join([a for a, _ in cycle] + [cycle[0][0]])
    if limits is None:
        remedy = "compile with limits=Limits(turns=...), or give one of its edges max_visits"
    else:
        remedy = (
            "no llm node is on it, so turns don't bound it: give one of its edges max_visits, "
            "or set Limits(seconds=...)"
        )
    raise GraphError(f"nothing bounds the cycle {way}: {remedy}")


def _heads(nodes: dict[str, NodeSpec], flow: TranscriptFlow) -> dict[str, Head]:
    """What each node that may begin a transcript puts at its head.

    The roots of a node are the llm nodes that may have begun the transcript which reaches it.
    """

    def leaving(name: str, roots: set[str]) -> set[str]:
        return (roots - {""}) | {name} if isinstance(nodes[name], LlmNode) and "" in roots else roots

    roots = spread(flow, leaving)
    llms = [node for node in nodes.values() if isinstance(node, LlmNode)]
    for node in llms:
        others = sorted(roots[node.name] - {"", node.name})
        if node.system is not None and others:
            raise GraphError(
                f"llm node {node.name!r} has system=..., but {others[0]!r} comes before it and has begun the "
                "transcript: give system= to the first llm node of the path, join with keep='none', or lead "
                "to it by an edge with transcript='fresh'"
            )
    samples = [node for node in nodes.values() if isinstance(node, SampleNode)]
    heads = {node.name: Head(node.system, (), ()) for node in samples}
    for node in llms:
        users = [other for other in llms if other is node or node.name in roots[other.name]]
        tools = {tool.name: tool for user in users for tool in user.tools or ()}
        heads[node.name] = Head(node.system, tuple(tools[n] for n in sorted(tools)), node.examples)
    return {name: head for name, head in heads.items() if "" in roots[name]}


def _check_outputs(nodes: dict[str, NodeSpec]) -> None:
    """Compile the constraints: what can't be enforced is refused here, and runs find them ready."""
    from agentree.runtime.constraint import output_of, tool_calls

    for node in nodes.values():
        try:
            if isinstance(node, SampleNode):
                _ = output_of(node.output).constraint
            elif isinstance(node, LlmNode) and node.tools:
                first, *more = node.outputs
                if more:
                    raise ConstraintError("with tools there is one output type: make it a union")
                listed = [(tool.name, tool.schema) for tool in node.tools]
                tool_calls(listed, output_of(first), node.parallel, patterns="rust")
            elif isinstance(node, LlmNode):
                _ = output_of(*node.outputs).constraint
        except ConstraintError as error:
            raise GraphError(f"{node.kind} node {node.name!r}: {error}") from error


def _takes_turns(graph: "nx.DiGraph[str]", nodes: dict[str, NodeSpec]) -> bool:
    free: nx.DiGraph[str] = nx.DiGraph(graph)
    free.remove_nodes_from([name for name, node in nodes.items() if _is_turn(node)])
    return not nx.has_path(free, "start", "end")


def _is_turn(node: NodeSpec) -> bool:
    return isinstance(node, LlmNode | SampleNode) or (
        isinstance(node, CallNode) and node.program._definition.takes_turns
    )


def _spends(node: NodeSpec, limits: Limits) -> bool:
    return _is_turn(node) or (isinstance(node, ToolsNode) and limits.tool_calls is not None)
