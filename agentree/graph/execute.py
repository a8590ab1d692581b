"""Walks tasks through a program's graph, from its start to its end."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from agentree.errors import GraphError, InvalidArgument, LimitReached
from agentree.events import NodeEnded, NodeStarted
from agentree.graph.acts import Visit, begin, not_run
from agentree.graph.branches import Arrival, Branches
from agentree.graph.budget import Budget, LimitHit, Trail
from agentree.graph.ctx import Cell
from agentree.graph.flow import matches, show
from agentree.graph.frozen import freeze
from agentree.graph.nodes import (
    Branch,
    CallNode,
    Definition,
    Edge,
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
)
from agentree.graph.reduce import Selector
from agentree.graph.shown import one_line, shown
from agentree.graph.task import Shared, Task
from agentree.graph.transcripts import reads
from agentree.graph.types import Limits
from agentree.runtime.request import Scope

if TYPE_CHECKING:
    from agentree.lm import Forks, Transcript


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
        task = Task(Trail(Budget(self.limits), outer), self.cell, transcript)
        task.trunk = 0 if transcript is None else len(transcript)
        seconds = None if self.limits is None else self.limits.seconds
        try:
            with anyio.move_on_after(seconds) as scope:
                return (await self.walk(task, self.definition.start, value, None))[1]
            assert scope.cancelled_caught
            raise self._out_of_time(task)
        except LimitHit as hit:
            if hit.budget is not task.trail.budget:
                raise
            return await self._stopped(task, hit)

    async def walk(
        self, task: Task, node: NodeSpec, value: Any, inside: Branches | None, *, visited: bool = False
    ) -> tuple[NodeSpec, Any]:
        """Visit nodes up to the program's end, or up to a join of the fork that the task is inside of."""
        while True:
            if not visited:
                if isinstance(node, EndNode | JoinNode):
                    return node, value
                await anyio.lowlevel.checkpoint()
                if inside is not None:
                    inside.moved(task, node)
                value = await self._visit(task, node, value)
            route = self.definition.routes[node.name]
            visited = isinstance(route, MapWay | ForkWay)
            if isinstance(route, MapWay | ForkWay):
                node, value = await self._fork(task, node, route, value)
            elif isinstance(route, Branch):
                node = _chosen(route, node, value)
            else:
                node = _passed(task, node, route)

    async def _visit(self, task: Task, node: NodeSpec, value: object) -> object:
        if isinstance(node, StartNode):
            return value
        if not reads(node):
            self._let_go(task, node)
        visit = self._begin(task, node, node.kind)
        output, error = "", "cancelled"
        try:
            made = await self._act(visit, node, value)
            if reads(node):
                self._let_go(task, node)
            output, error = shown(made), ""
        except Exception as e:
            error = one_line(e)
            if not getattr(e, "__notes__", ()):
                e.add_note(f"in node {node.name!r}, visit {visit.path!r} of run {self.shared.id!r}")
            raise
        finally:
            self._end(visit, node, output, error)
        return made

    async def _act(self, visit: Visit, node: NodeSpec, value: object) -> object:
        if isinstance(node, LlmNode):
            return await visit.llm(node, value)
        if isinstance(node, SampleNode):
            return await visit.sample(node, value)
        if isinstance(node, ToolsNode):
            return await visit.tools(node, value)
        if isinstance(node, StepNode):
            visit.task.value = await visit.step(node, value)
        elif isinstance(node, CallNode):
            visit.task.value = await self._call(visit, node, value)
        return visit.task.value

    def _let_go(self, task: Task, node: NodeSpec) -> None:
        """End the lease of the task's transcript where the plan says that it is not read again."""
        if self.definition.distance[node.name] == float("inf") and not task.indices:
            self.shared.lm._let_go(Scope(self.shared.id, self.prefix))

    def _begin(self, task: Task, node: NodeSpec, kind: str) -> Visit:
        task.path = self.shared.path(f"{self.prefix}{node.name}{_branch(task)}")
        visit = Visit(self.shared, self.definition, task, task.path)
        visit.emit(NodeStarted(node=node.name, kind=kind))
        return visit

    def _end(self, visit: Visit, node: NodeSpec, output: str, error: str) -> None:
        if self.prefix == "" and not visit.task.indices:
            self.shared.transcript = visit.task.transcript
        visit.emit(NodeEnded(node=node.name, output=output, error=error))

    async def _call(self, visit: Visit, node: CallNode, value: object) -> object:
        program, task = node.program, visit.task
        cell = Cell(program._new_state())
        inner = Execution(self.shared, program._definition, program.limits, cell, f"{visit.path}/")
        try:
            return await inner.run(value, task.transcript if node.transcript == "fork" else None, task.trail)
        finally:
            self.shared.lm._let_go(Scope(self.shared.id, inner.prefix))

    # ------------------------------------------------------------------------------- forks and joins

    async def _fork(
        self, task: Task, node: NodeSpec, route: MapWay | ForkWay, value: Any
    ) -> tuple[NodeSpec, Any]:
        """Run the branches of a fork up to the join that closes it; that join and what it gives."""
        regions = self.definition.regions
        fork = regions.fork_of(node, route)
        if isinstance(route, MapWay):
            begins = [(route.to, item) for item in _items(node, value)]
        else:
            begins = [(to, value) for to in route.to]
        cell = task.cell if task.cell.frozen else Cell(freeze(task.cell.value), frozen=True)
        async with self._branching(task, len(begins)) as kids:
            starts = [(self._child(task, cell, kids, i), to, item) for i, (to, item) in enumerate(begins)]
            parallel = route.parallel if isinstance(route, MapWay) else None
            try:
                arrivals = await Branches(fork, regions, self, parallel).run(starts)
            finally:
                for child, _, _ in starts:
                    self.shared.lm._let_go(Scope(self.shared.id, self.prefix + _branch(child)))
            join = regions.final[fork]
            task.trail.join([arrival.task.trail for arrival in arrivals])
            made, winner = self._reduce(task, join, arrivals)
            if join.keep == "none":
                task.transcript = None
            elif winner is not None:
                task.transcript = _kept(kids, winner.task.transcript)
            task.unanswered = None
        return join, made

    @asynccontextmanager
    async def _branching(self, task: Task, n: int) -> "AsyncGenerator[Forks | None]":
        """The scope in which branches share the task's transcript; None where there is nothing to share."""
        if task.transcript is None or n == 0:
            yield None
            return
        named = task.transcript._at(Scope(self.shared.id, task.path), seed=self.shared.seed)
        async with named.fork(n) as kids:
            yield kids

    def _child(self, task: Task, cell: Cell, kids: "Forks | None", index: int) -> Task:
        transcript = None if kids is None else kids[index]
        return Task(
            task.trail.copy(),
            cell,
            transcript,
            indices=(*task.indices, index),
            llm=task.llm,
            value=task.value,
            origin=transcript,
        )

    def bring(self, join: JoinNode, arrivals: Sequence[Arrival]) -> Arrival:
        """Some branches of a fork become one that goes on in it."""
        task = arrivals[0].task
        task.trail.join([arrival.task.trail for arrival in arrivals[1:]])
        made, winner = self._reduce(task, join, arrivals)
        if join.keep == "winner" and winner is not None:
            task.transcript = winner.task.transcript
        else:
            task.transcript = task.origin if join.keep == "fork" else None
        task.unanswered = None
        return Arrival(task, made)

    def _reduce(self, task: Task, join: JoinNode, arrivals: Sequence[Arrival]) -> tuple[Any, Arrival | None]:
        """Visit a join: its output, and the winner if it keeps one."""
        visit = self._begin(task, join, "join")
        output, error = "", ""
        try:
            results = [arrival.value for arrival in arrivals]
            if join.keep == "winner" and isinstance(join.reduce, Selector):
                winner = arrivals[join.reduce.pick(results)]
                made = winner.value
            else:
                winner, made = None, join.reduce(results)
            task.value = made
            output = shown(made)
        except Exception as e:
            error = one_line(e)
            raise
        finally:
            self._end(visit, join, output, error)
        return made, winner

    # ---------------------------------------------------------------------------------------- limits

    def _out_of_time(self, task: Task) -> LimitHit:
        assert self.limits is not None
        text = f"{self.limits.seconds:g} seconds are over"
        pending = () if task.unanswered is None else (not_run(task.unanswered.calls, task, text),)
        return task.hit((task.trail.budget, "seconds", text), pending=pending)

    async def _stopped(self, task: Task, hit: LimitHit) -> object:
        """A limit of this program was hit: raise, or let the model give the output in one last turn."""
        transcript, node = hit.transcript, hit.node
        llms = [n for n in self.definition.nodes.values() if isinstance(n, LlmNode)]
        if self.limits is None or self.limits.on_limit == "raise" or not llms:
            text = f"program {self.definition.name!r}: {hit.text}"
            raise LimitReached(text, limit=hit.limit, transcript=transcript, partial=hit.partial) from None
        node = node or llms[0]
        if transcript is None:
            transcript = begin(self.shared.lm, self.definition.heads[node.name])
        task.transcript = transcript + list(hit.pending)
        visit = self._begin(task, node, "last turn")
        output, error = "", "cancelled"
        try:
            made = await visit.generate(node, task.transcript, last=True)
            output, error = shown(made.value), ""
        except Exception as e:
            error = one_line(e)
            raise
        finally:
            self._end(visit, node, output, error)
        return made.value


def _branch(task: Task) -> str:
    return "".join(f"[{i}]" for i in task.indices)


def _items(node: NodeSpec, value: Any) -> list[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise GraphError(
            f"node {node.name!r} gave {type(value).__name__} {shown(value, 80)}, which can't be mapped over: "
            "return a list"
        )
    return list(value)  # pyright: ignore[reportUnknownArgumentType]


def _kept(kids: "Forks | None", transcript: "Transcript | None") -> "Transcript | None":
    if kids is None or transcript is None:
        return transcript
    try:
        return kids.keep([transcript])[0]
    except InvalidArgument:
        return transcript  # a step went to a transcript from elsewhere: not this fork's to hold


def _passed(task: Task, node: NodeSpec, edge: Edge) -> NodeSpec:
    if edge.max_visits is not None:
        way = (node.name, edge.to.name)
        if task.trail.passes[way] >= edge.max_visits:
            text = f"the edge {way[0]!r} -> {way[1]!r} was passed {edge.max_visits} times, its max_visits"
            raise task.hit((task.trail.budget, "max_visits", text))
        task.trail.passes[way] += 1
    return edge.to


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
