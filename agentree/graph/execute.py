"""Walks tasks through a program's graph, from its start to its end."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from agentree.errors import ContextOverflow, LimitReached
from agentree.events import STOPPED, NodeStarted
from agentree.graph.acts import Visit, begin
from agentree.graph.branches import Branches
from agentree.graph.budget import Budget, Hit, LimitHit, Trail
from agentree.graph.ctx import Cell
from agentree.graph.ended import CANCELLED, reason
from agentree.graph.forking import Forking
from agentree.graph.given import check_output, new_state
from agentree.graph.nodes import (
    Branch,
    CallNode,
    Definition,
    EndNode,
    ForkWay,
    JoinNode,
    LlmNode,
    MapWay,
    NodeSpec,
    SampleNode,
    StartNode,
    StepNode,
    ToolsNode,
    targets,
)
from agentree.graph.parked import Parked
from agentree.graph.shown import shown
from agentree.graph.task import Shared, Task
from agentree.graph.toolturn import not_run, run_tools
from agentree.graph.transcripts import reads
from agentree.graph.types import Limits
from agentree.graph.visiting import Visits
from agentree.graph.ways import chosen, passed
from agentree.runtime.request import Scope

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

    def __post_init__(self) -> None:
        self.visits = Visits(self.shared, self.definition, self.cell, self.prefix)
        self.keeper = self.visits.keeper
        self._forking = Forking(self.visits, self.walk)
        self._time = anyio.CancelScope()

    async def run(self, value: object, transcript: "Transcript | None", trail: Trail) -> object:
        """Walk from start to end. Raises what a step raises, LimitReached, and Parked."""
        task = Task(trail, self.cell, transcript)
        task.trunk = 0 if transcript is None else len(transcript)
        try:
            with self._time as scope:
                made = (await self.walk(task, self.definition.start, value, None))[1]
                self._check_output(task, made)
                return made
            assert scope.cancelled_caught
            raise self._out_of_time(task)
        except LimitHit as hit:
            if hit.hit.budget is not task.trail.budget:
                raise
            return await self._stopped(task, hit)

    def _check_output(self, task: Task, made: object) -> None:
        check_output(self.definition.name, self.definition.output, task.path, made)

    def trail(self, outer: Trail | None = None) -> Trail:
        """The path of a run from its start, with what it has used before it was resumed."""
        if self.keeper is None:
            return Trail(Budget(self.limits), outer)
        spent = self.keeper.spent(self.prefix)
        calls = spent.per_tool.total()
        return Trail(Budget(self.limits, calls, spent.tokens, spent.per_tool), outer)

    def _start_clock(self) -> None:
        """Time counts from the first visit that is really made: restored ones took theirs before."""
        if self.limits is None or self.limits.seconds is None or self._time.deadline != float("inf"):
            return
        before = 0.0 if self.keeper is None else self.keeper.seconds(self.prefix.removesuffix("/"))
        self._time.deadline = anyio.current_time() + self.limits.seconds - before

    async def walk(
        self, task: Task, node: NodeSpec, value: Any, inside: Branches | None, *, visited: bool = False
    ) -> tuple[NodeSpec, Any]:
        """Visit nodes up to the program's end, or up to a join of the fork that the task is inside of."""
        while True:
            if not visited:
                if isinstance(node, EndNode | JoinNode):
                    if self.keeper is not None and inside is not None:
                        await self.keeper.journal.log.sync()  # it may have to wait for others there
                    return node, value
                await anyio.lowlevel.checkpoint()
                if inside is not None:
                    inside.moved(task, node)
                value = await self._visit(task, node, value)
            route = self.definition.routes[node.name]
            visited = isinstance(route, MapWay | ForkWay)
            if isinstance(route, MapWay | ForkWay):
                node, value = await self._forking.fork(task, node, route, value)
            elif isinstance(route, Branch):
                node = self._chosen(task, route, node, value)
            else:
                node = passed(task, node, route)

    async def _visit(self, task: Task, node: NodeSpec, value: object) -> object:
        if isinstance(node, StartNode):
            return value
        if not reads(node):
            self.visits.let_go(task, node)
        before, base = task.path, task.transcript
        visit = self.visits.enter(task, node)
        if self.keeper is not None and self.keeper.restore(visit, node, value):
            self.visits.restored(visit, node)
            return task.value
        visit.emit(NodeStarted(node=node.name, kind=node.kind))
        output, error = "", CANCELLED
        try:
            self._start_clock()
            if self.keeper is not None:
                await self.keeper.start(visit, node, before)
                await anyio.lowlevel.checkpoint()
            made = await self._act(visit, node, value)
            if self.keeper is not None:
                self.keeper.end(visit, node, base)
            if reads(node):
                self.visits.let_go(task, node)
            output, error = shown(made), ""
        except Parked as parked:
            error = reason(parked)
            raise
        except Exception as e:
            error = reason(e)
            if isinstance(e, ContextOverflow) and not e.run:
                e.run, e.transcript, e.partial = self.shared.id, task.transcript, task.value
            if not getattr(e, "__notes__", ()):
                e.add_note(f"in node {node.name!r}, visit {visit.path!r} of run {self.shared.id!r}")
            if self.keeper is not None:
                self.keeper.failed(visit.path, node, error)
            raise
        finally:
            if error == CANCELLED and self._time.cancel_called:
                error = f"{STOPPED} {self._seconds_over()}"
            self.visits.end(visit, node, output, error)
        return made

    async def _act(self, visit: Visit, node: NodeSpec, value: object) -> object:
        if isinstance(node, LlmNode):
            return await visit.llm(node, value)
        if isinstance(node, SampleNode):
            return await visit.sample(node, value)
        if isinstance(node, ToolsNode):
            return await run_tools(visit, node, value)
        if isinstance(node, StepNode):
            visit.task.value = await visit.step(node, value)
        elif isinstance(node, CallNode):
            visit.task.value = await self._call(visit, node, value)
        return visit.task.value

    async def _call(self, visit: Visit, node: CallNode, value: object) -> object:
        program, task = node.program, visit.task
        cell = Cell(new_state(program._definition))
        inner = Execution(self.shared, program._definition, program.limits, cell, f"{visit.path}/")
        if inner.keeper is not None:
            inner.keeper.call(visit.path)
        visit.inner = inner.trail(task.trail)
        try:
            given = task.transcript if node.transcript == "fork" else None
            return await inner.run(value, given, visit.inner)
        finally:
            self.shared.lm._let_go(Scope(self.shared.id, inner.prefix))

    def _chosen(self, task: Task, branch: Branch, node: NodeSpec, value: object) -> NodeSpec:
        """The way that was taken before the run was resumed, else the first that takes the value."""
        known = None if self.keeper is None else self.keeper.next_of(task)
        return next((to for to in targets(branch) if to.name == known), None) or chosen(branch, node, value)

    # ---------------------------------------------------------------------------------------- limits

    def _out_of_time(self, task: Task) -> LimitHit:
        text = self._seconds_over()
        pending = () if task.unanswered is None else (not_run(task.unanswered.calls, task, text),)
        return task.hit(Hit(task.trail.budget, "seconds", text), pending=pending)

    def _seconds_over(self) -> str:
        assert self.limits is not None
        return f"{self.limits.seconds:g} seconds are over"

    async def _stopped(self, task: Task, hit: LimitHit) -> object:
        """A limit of this program was hit: raise, or let the model give the output in one last turn."""
        transcript, node = hit.transcript, hit.node
        llms = [n for n in self.definition.nodes.values() if isinstance(n, LlmNode)]
        if self.limits is None or self.limits.on_limit == "raise" or not llms:
            text = f"program {self.definition.name!r}: {hit.hit.text}"
            raise LimitReached(
                text, limit=hit.hit.limit, transcript=transcript, partial=hit.partial, run=self.shared.id
            ) from None
        node = node or llms[0]
        if transcript is None:
            transcript = begin(self.shared.lm, self.definition.heads[node.name])
        task.transcript = transcript + list(hit.pending)
        visit = self.visits.begin(task, node, "last turn")
        output, error = "", CANCELLED
        try:
            made = await visit.generate(node, task.transcript, last=True)
            output, error = shown(made.value), ""
        except Exception as e:
            error = reason(e)
            raise
        finally:
            self.visits.end(visit, node, output, error)
        return made.value
