"""Walks a task through a program's graph, from its start to its end."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from agentree.errors import GraphError, LimitReached
from agentree.events import NodeEnded, NodeStarted
from agentree.graph.acts import Visit, begin, not_run
from agentree.graph.budget import Budget, LimitHit, Trail
from agentree.graph.ctx import Cell
from agentree.graph.flow import matches, show
from agentree.graph.nodes import (
    Branch,
    Definition,
    Edge,
    EndNode,
    LlmNode,
    NodeSpec,
    Route,
    StartNode,
    StepNode,
    ToolsNode,
)
from agentree.graph.shown import one_line, shown
from agentree.graph.task import Shared, Task
from agentree.graph.types import Limits

if TYPE_CHECKING:
    from agentree.lm import Transcript


@dataclass(eq=False)
class Execution:
    """One run of one program inside a run: the run's own, or that of a program which it calls."""

    shared: Shared
    definition: Definition
    limits: Limits | None
    cell: Cell
    prefix: str = ""
    """Task path of the node that calls this program, with a slash."""

    async def run(self, value: object, transcript: "Transcript | None", outer: Trail | None = None) -> object:
        """Walk from start to end. Raises what a step raises, and LimitReached."""
        task = Task(Trail(Budget(self.limits), outer), transcript)
        seconds = None if self.limits is None else self.limits.seconds
        try:
            with anyio.move_on_after(seconds) as scope:
                return await self._walk(task, self.definition.start, value)
            assert scope.cancelled_caught
            raise self._out_of_time(task)
        except LimitHit as hit:
            if hit.budget is not task.trail.budget:
                raise
            return await self._stopped(task, hit)

    async def _walk(self, task: Task, node: NodeSpec, value: Any) -> object:
        while not isinstance(node, EndNode):
            await anyio.lowlevel.checkpoint()
            value = await self._visit(task, node, value)
            node = self._next(task, node, value)
        return value

    async def _visit(self, task: Task, node: NodeSpec, value: object) -> object:
        if isinstance(node, StartNode):
            return value
        visit = Visit(self.shared, self.definition, self.cell, task, self._path(task, node))
        visit.emit(NodeStarted(node=node.name, kind=node.kind))
        error = "cancelled"
        output: object = None
        try:
            if isinstance(node, LlmNode):
                output = await visit.llm(node, value)
            elif isinstance(node, ToolsNode):
                output = await visit.tools(node, value)
            elif isinstance(node, StepNode):
                output = task.value = await visit.step(node, value)
            error = ""
        except Exception as e:
            error = one_line(e)
            raise
        finally:
            if self.prefix == "" and not task.indices:
                self.shared.transcript = task.transcript
            visit.emit(NodeEnded(node=node.name, output="" if error else shown(output), error=error))
        return output

    def _path(self, task: Task, node: NodeSpec) -> str:
        branch = "".join(f"[{i}]" for i in task.indices)
        return self.shared.path(f"{self.prefix}{node.name}{branch}")

    def _next(self, task: Task, node: NodeSpec, value: object) -> NodeSpec:
        route: Route = self.definition.routes[node.name]
        if isinstance(route, Edge):
            if route.max_visits is not None:
                way = (node.name, route.to.name)
                if task.trail.passes[way] >= route.max_visits:
                    text = f"the edge {way[0]!r} -> {way[1]!r} was passed {route.max_visits} times"
                    raise task.hit((task.trail.budget, "max_visits", text))
                task.trail.passes[way] += 1
            return route.to
        return _chosen(route, node, value)

    def _out_of_time(self, task: Task) -> LimitHit:
        assert self.limits is not None
        text = f"{self.limits.seconds:g} seconds are over"
        pending = () if task.unanswered is None else (not_run(task.unanswered.calls, task, text),)
        return task.hit((task.trail.budget, "seconds", text), pending=pending)

    async def _stopped(self, task: Task, hit: LimitHit) -> object:
        """A limit of this program was hit: raise, or let the model give the output in one last turn."""
        transcript, node = hit.transcript, hit.node
        can_answer = node is not None or transcript is not None
        if self.limits is None or self.limits.on_limit == "raise" or not can_answer:
            text = f"program {self.definition.name!r}: {hit.text}"
            raise LimitReached(text, limit=hit.limit, transcript=transcript, partial=hit.partial) from None
        if node is None:
            node = next(n for n in self.definition.nodes.values() if isinstance(n, LlmNode))
        if transcript is None:
            transcript = begin(self.shared.lm, self.definition.heads[node.name])
        for message in hit.pending:
            transcript += message
        task.transcript = transcript
        visit = Visit(self.shared, self.definition, self.cell, task, self._path(task, node))
        visit.emit(NodeStarted(node=node.name, kind="last turn"))
        output, error = "", "cancelled"
        try:
            made = await visit.generate(node, transcript, last=True)
            output, error = shown(made.value), ""
        except Exception as e:
            error = one_line(e)
            raise
        finally:
            if self.prefix == "":
                self.shared.transcript = task.transcript
            visit.emit(NodeEnded(node=node.name, output=output, error=error))
        return made.value


def _chosen(branch: Branch, node: NodeSpec, value: object) -> NodeSpec:
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
