"""Which way a task takes from a node."""

from agentree.errors import GraphError
from agentree.graph.budget import Hit
from agentree.graph.flow import matches, show
from agentree.graph.nodes import Branch, Edge, NodeSpec
from agentree.graph.shown import shown
from agentree.graph.task import Task


def passed(task: Task, node: NodeSpec, edge: Edge) -> NodeSpec:
    """Where an edge leads. Raises LimitHit where it was passed too often."""
    if edge.max_visits is not None:
        way = (node.name, edge.to.name)
        if task.trail.passes[way] >= edge.max_visits:
            text = f"the edge {way[0]!r} -> {way[1]!r} was passed {edge.max_visits} times, its max_visits"
            raise task.hit(Hit(task.trail.budget, "max_visits", text))
        task.trail.passes[way] += 1
    if edge.fresh:
        task.transcript = task.unanswered = None
    return edge.to


def chosen(branch: Branch, node: NodeSpec, value: object) -> NodeSpec:
    """Where a branch leads: the first case that takes the value. Raises GraphError if there is none."""
    for case in branch.cases:
        if matches(value, case.kind) and (case.where is None or case.where(value)):
            return case.to
    if branch.otherwise is not None:
        return branch.otherwise
    kinds = ", ".join(show(case.kind) for case in branch.cases)
    raise GraphError(
        f"the branch after {node.name!r} has no case for {type(value).__name__} {shown(value, 80)} "
        f"(there are: {kinds}): add a case or .otherwise(<node>)"
    )
