"""Forks and joins of one program in a run: tasks become several, and one again."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from agentree.errors import InvalidArgument
from agentree.events import NodeStarted
from agentree.graph.branches import Arrival, Branches, Walk
from agentree.graph.ctx import Cell
from agentree.graph.ended import reason
from agentree.graph.frozen import freeze
from agentree.graph.journal.visits import Gone, Keeper
from agentree.graph.nodes import ForkWay, JoinNode, MapWay, NodeSpec
from agentree.graph.reduce import Selector
from agentree.graph.shown import shown
from agentree.graph.task import Task
from agentree.graph.visiting import Visits, branch_of
from agentree.graph.wiring import items_to_map
from agentree.runtime.request import Scope

if TYPE_CHECKING:
    from agentree.lm import Forks, Transcript


class Forking:
    """How the tasks of one program part and meet."""

    def __init__(self, visits: Visits, walk: Walk) -> None:
        self._visits = visits
        self._walk = walk
        self._shared, self._definition = visits.shared, visits.definition
        self._prefix, self._keeper = visits.prefix, visits.keeper

    async def fork(
        self, task: Task, node: NodeSpec, route: MapWay | ForkWay, value: Any
    ) -> tuple[NodeSpec, Any]:
        """Run the branches of a fork up to the join that closes it; that join and what it gives."""
        regions = self._definition.regions
        fork = regions.fork_of(node, route)
        if isinstance(route, MapWay):
            begins = [(route.to, item) for item in items_to_map(node.name, value, shown(value, 80))]
        else:
            begins = [(to, value) for to in route.to]
        cell = task.cell if task.cell.frozen else Cell(freeze(task.cell.value), frozen=True)
        join = regions.final[fork]
        at = self._shared.next_path(self._visits.base(task, join))
        gone = Gone() if self._keeper is None else self._keeper.gone(at, len(begins))
        self._shared.visits.update({base: n - self._shared.visits[base] for base, n in gone.visits.items()})
        async with self._branching(task, len(begins)) as kids:
            starts = [(self._child(task, cell, kids, i), to, item) for i, (to, item) in enumerate(begins)]
            starts = [start for i, start in enumerate(starts) if i not in gone.branches]
            parallel = route.parallel if isinstance(route, MapWay) else None
            branches = Branches(fork, regions, self._walk, self.bring, parallel, before=gone.errors)
            if self._keeper is not None:
                branches.lost = partial(self._lose, self._keeper, task, at)
            try:
                arrivals = await branches.run(starts)
            finally:
                for child, _, _ in starts:
                    self._shared.lm._let_go(Scope(self._shared.id, self._prefix + branch_of(child)))
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
        named = task.transcript._at(Scope(self._shared.id, task.path), seed=self._shared.seed)
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
        below = re.compile(rf"{re.escape(self._prefix)}[^/\[]+(?:{'|'.join(map(re.escape, chains))})(?!\d)")
        found = {base: n for base, n in self._shared.visits.items() if chains and below.match(base)}
        return Gone(branches, found)

    def _reduce(
        self, task: Task, join: JoinNode, arrivals: Sequence[Arrival], gone: Gone
    ) -> tuple[Any, Arrival | None]:
        """Visit a join: its output, and the winner if it keeps one."""
        visit = self._visits.enter(task, join)
        if self._keeper is not None and (body := self._keeper.joined(visit.path)) is not None:
            task.value = self._keeper.output(body, f"join {join.name!r}", task.transcript)
            self._visits.restored(visit, join)
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
            if self._keeper is not None:
                self._keeper.join(visit.path, join, task, None if winner is None else winner.index, gone)
            output = shown(made)
        except Exception as e:
            error = reason(e)
            raise
        finally:
            self._visits.end(visit, join, output, error)
        return made, winner


def _kept(kids: "Forks | None", transcript: "Transcript | None") -> "Transcript | None":
    if kids is None or transcript is None:
        return transcript
    try:
        return kids.keep([transcript])[0]
    except InvalidArgument:
        return transcript  # a step went to a transcript from elsewhere: not this fork's to hold
