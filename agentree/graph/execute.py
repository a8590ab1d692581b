"""Walks tasks through a program's graph, from its start to its end."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from agentree.errors import ContextOverflow, InvalidArgument, LimitReached
from agentree.events import STOPPED, NodeEnded, NodeRestored, NodeStarted
from agentree.graph.acts import Visit, begin
from agentree.graph.branches import Arrival, Branches
from agentree.graph.budget import Budget, Hit, LimitHit, Trail
from agentree.graph.ctx import Cell
from agentree.graph.ended import CANCELLED, reason
from agentree.graph.frozen import freeze
from agentree.graph.given import check_output, new_state
from agentree.graph.journal.visits import Gone, Keeper
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
from agentree.graph.reduce import Selector
from agentree.graph.shown import shown
from agentree.graph.task import Shared, Task
from agentree.graph.toolturn import not_run, run_tools
from agentree.graph.transcripts import reads
from agentree.graph.types import Limits
from agentree.graph.ways import chosen, passed
from agentree.graph.wiring import items_to_map
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

    def __post_init__(self) -> None:
        journal = self.shared.journal
        self.keeper: Keeper | None = None if journal is None else journal.states(self.cell)
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
                node, value = await self._fork(task, node, route, value)
            elif isinstance(route, Branch):
                node = self._chosen(task, route, node, value)
            else:
                node = passed(task, node, route)

    async def _visit(self, task: Task, node: NodeSpec, value: object) -> object:
        if isinstance(node, StartNode):
            return value
        if not reads(node):
            self._let_go(task, node)
        before, base = task.path, task.transcript
        visit = self._enter(task, node)
        if self.keeper is not None and self.keeper.restore(visit, node, value):
            self._restored(visit, node)
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
                self._let_go(task, node)
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
            self._end(visit, node, output, error)
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

    def _let_go(self, task: Task, node: NodeSpec) -> None:
        """End the lease of the task's transcript where the plan says that it is not read again."""
        if self.definition.distance[node.name] == float("inf") and not task.indices:
            self.shared.lm._let_go(Scope(self.shared.id, self.prefix))

    def _base(self, task: Task, node: NodeSpec) -> str:
        """The task path of a visit, without the number of the visit."""
        return f"{self.prefix}{node.name}{_branch(task)}"

    def _enter(self, task: Task, node: NodeSpec) -> Visit:
        task.path = self.shared.path(self._base(task, node))
        return Visit(self.shared, self.definition, task, task.path)

    def _begin(self, task: Task, node: NodeSpec, kind: str) -> Visit:
        visit = self._enter(task, node)
        visit.emit(NodeStarted(node=node.name, kind=kind))
        return visit

    def _reach(self, task: Task) -> None:
        if self.prefix == "" and not task.indices:
            self.shared.transcript, self.shared.output = task.transcript, task.value

    def _restored(self, visit: Visit, node: NodeSpec) -> None:
        self._reach(visit.task)
        visit.emit(NodeRestored(node=node.name, kind=node.kind, output=shown(visit.task.value)))

    def _end(self, visit: Visit, node: NodeSpec, output: str, error: str) -> None:
        self._reach(visit.task)
        visit.emit(NodeEnded(node=node.name, output=output, error=error))

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

    # ------------------------------------------------------------------------------- forks and joins

    async def _fork(
        self, task: Task, node: NodeSpec, route: MapWay | ForkWay, value: Any
    ) -> tuple[NodeSpec, Any]:
        """Run the branches of a fork up to the join that closes it; that join and what it gives."""
        regions = self.definition.regions
        fork = regions.fork_of(node, route)
        if isinstance(route, MapWay):
            begins = [(route.to, item) for item in items_to_map(node.name, value, shown(value, 80))]
        else:
            begins = [(to, value) for to in route.to]
        cell = task.cell if task.cell.frozen else Cell(freeze(task.cell.value), frozen=True)
        join = regions.final[fork]
        at = self.shared.next_path(self._base(task, join))
        gone = Gone() if self.keeper is None else self.keeper.gone(at, len(begins))
        self.shared.visits.update({base: n - self.shared.visits[base] for base, n in gone.visits.items()})
        async with self._branching(task, len(begins)) as kids:
            starts = [(self._child(task, cell, kids, i), to, item) for i, (to, item) in enumerate(begins)]
            starts = [start for i, start in enumerate(starts) if i not in gone.branches]
            parallel = route.parallel if isinstance(route, MapWay) else None
            branches = Branches(fork, regions, self, parallel, before=gone.errors)
            if self.keeper is not None:
                branches.lost = partial(self._lose, self.keeper, task, at)
            try:
                arrivals = await branches.run(starts)
            finally:
                for child, _, _ in starts:
                    self.shared.lm._let_go(Scope(self.shared.id, self.prefix + _branch(child)))
            task.trail.join([arrival.task.trail for arrival in arrivals])
            left = branches.gone(arrivals) | gone.branches
            made, winner = self._reduce(task, join, arrivals, self._gone(task, left))
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
        made, winner = self._reduce(task, join, arrivals, Gone())
        if join.keep == "winner" and winner is not None:
            task.transcript = winner.task.transcript
        else:
            task.transcript = task.origin if join.keep == "fork" else None
        task.unanswered = None
        return Arrival(task, made)

    def _lose(self, keeper: Keeper, task: Task, at: str, branches: set[int], error: Exception) -> None:
        keeper.lose(at, self._gone(task, branches), reason(error))

    def _gone(self, task: Task, branches: set[int]) -> Gone:
        """Branches below a task that nobody waits for, with the visits that were counted in them."""
        chains = ["".join(f"[{i}]" for i in (*task.indices, branch)) for branch in branches]
        below = re.compile(rf"{re.escape(self.prefix)}[^/\[]+(?:{'|'.join(map(re.escape, chains))})(?!\d)")
        found = {base: n for base, n in self.shared.visits.items() if chains and below.match(base)}
        return Gone(branches, found)

    def _reduce(
        self, task: Task, join: JoinNode, arrivals: Sequence[Arrival], gone: Gone
    ) -> tuple[Any, Arrival | None]:
        """Visit a join: its output, and the winner if it keeps one."""
        visit = self._enter(task, join)
        if self.keeper is not None and (body := self.keeper.joined(visit.path)) is not None:
            task.value = self.keeper.journal.read(body["output"], f"join {join.name!r}", task.transcript)
            self._restored(visit, join)
            won = (arrival for arrival in arrivals if arrival.index == body["winner"])
            return task.value, next(won, None)
        visit.emit(NodeStarted(node=join.name, kind="join"))
        output, error = "", ""
        try:
            results = [arrival.value for arrival in arrivals]
            if join.keep == "winner" and isinstance(join.reduce, Selector):
                winner = arrivals[join.reduce.pick(results)]
                made = winner.value
            else:
                winner, made = None, join.reduce(results)
            task.value = made
            if self.keeper is not None:
                self.keeper.join(visit.path, join, task, None if winner is None else winner.index, gone)
            output = shown(made)
        except Exception as e:
            error = reason(e)
            raise
        finally:
            self._end(visit, join, output, error)
        return made, winner

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
        visit = self._begin(task, node, "last turn")
        output, error = "", CANCELLED
        try:
            made = await visit.generate(node, task.transcript, last=True)
            output, error = shown(made.value), ""
        except Exception as e:
            error = reason(e)
            raise
        finally:
            self._end(visit, node, output, error)
        return made.value


def _branch(task: Task) -> str:
    return "".join(f"[{i}]" for i in task.indices)


def _kept(kids: "Forks | None", transcript: "Transcript | None") -> "Transcript | None":
    if kids is None or transcript is None:
        return transcript
    try:
        return kids.keep([transcript])[0]
    except InvalidArgument:
        return transcript  # a step went to a transcript from elsewhere: not this fork's to hold
