"""One opening of a fork: where its branches are, which of its joins may fire, and what a failure stops."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup

from agentree.errors import Deadlock, JournalError, UncertainCall
from agentree.graph.budget import LimitHit
from agentree.graph.nodes import JoinNode, NodeSpec
from agentree.graph.parked import Parked
from agentree.graph.reduce import Selector
from agentree.graph.regions import Regions
from agentree.graph.task import Task

_NEVER_LEFT_OUT = (LimitHit, JournalError, UncertainCall)
"""What is about the run and not about a branch."""


@dataclass(frozen=True)
class Arrival:
    """A branch that has come to a join."""

    task: Task
    value: Any

    @property
    def index(self) -> int:
        """The branch's place in its fork; of several that met on the way, the lowest."""
        return self.task.indices[-1]


class Walk(Protocol):
    """How branches move: the execution that they are part of."""

    async def __call__(
        self, task: Task, node: NodeSpec, value: Any, inside: "Branches | None", *, visited: bool = False
    ) -> tuple[NodeSpec, Any]:
        """Take a task on from a node (that it has `visited` already) to where its walk ends."""
        ...


@dataclass(eq=False)
class Branches:
    """The branches of one fork. A join fires once no live branch can still come to it."""

    fork: str
    regions: Regions
    walk: Walk
    bring: Callable[[JoinNode, Sequence[Arrival]], Arrival]
    """Brings branches together at a join that does not close their fork."""
    parallel: int | None = None
    lost: "Callable[[set[int], Exception], None]" = lambda branches, error: None
    """Told of branches that failed and are left out."""
    before: list[Exception] = field(default_factory=list[Exception])
    """Failures of branches that were left out before the run was resumed: these are not started."""
    _at: dict[int, str] = field(default_factory=dict[int, str])
    """Where each live branch is, by its index."""
    _waiting: dict[str, list[Arrival]] = field(default_factory=dict[str, list[Arrival]])
    """Who has come to each join and not gone on."""
    _group: TaskGroup | None = None
    _failures: list[Exception] = field(default_factory=list[Exception])
    _left_out: list[Exception] = field(default_factory=list[Exception])
    _parked: dict[int, Parked] = field(default_factory=dict[int, Parked])
    _met: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    """By index of a branch, the branches that it is made of."""

    @property
    def final(self) -> JoinNode:
        """The join that closes the fork."""
        return self.regions.final[self.fork]

    async def run(self, starts: Sequence[tuple[Task, NodeSpec, Any]]) -> list[Arrival]:
        """Run all branches until they have met; their arrivals at the closing join, in fork order.

        Raises the first failure, after the other branches were cancelled and awaited; Parked if some can't go
        on without a person, after the others went as far as they can.
        """
        self._at = {task.indices[-1]: node.name for task, node, _ in starts}
        self._met = {index: {index} for index in self._at}
        async with anyio.create_task_group() as group:
            self._group = group
            waiting = iter(starts)
            for _ in starts if self.parallel is None else range(min(self.parallel, len(starts))):
                group.start_soon(self._take_from, waiting, group)
        self._group = None
        if self._failures:
            raise self._failures[0]
        if self._parked and not self._decided():
            raise Parked.all(self._parked[index] for index in sorted(self._parked))
        decided = self._decided()
        arrived = sorted(self._waiting.pop(self.final.name, ()), key=lambda arrival: arrival.index)
        if decided:
            return arrived
        if self._waiting or (starts and not arrived and not self._left_out):
            raise self._deadlock()
        left_out = [*self._left_out, *self.before]
        if left_out and not arrived:
            raise left_out[0]
        return arrived

    def gone(self, arrived: Sequence[Arrival]) -> set[int]:
        """The branches that are in none of those that arrived."""
        return set(self._met) - {index for arrival in arrived for index in self._met[arrival.index]}

    def moved(self, task: Task, node: NodeSpec) -> None:
        """A branch is about to visit a node; some join may not have to wait for it any more."""
        self._at[task.indices[-1]] = node.name
        if self._group is not None and self.regions.inner[self.fork]:
            self._settle(self._group)

    async def _take_from(self, waiting: "Iterator[tuple[Task, NodeSpec, Any]]", group: TaskGroup) -> None:
        """Run one branch after the other, so that they begin in fork order."""
        for task, node, value in waiting:
            await self._branch(group, task, node, value, False)
            if self.parallel is None:
                return

    async def _branch(
        self,
        group: TaskGroup,
        task: Task,
        node: NodeSpec,
        value: Any,
        visited: bool,
    ) -> None:
        index = task.indices[-1]
        try:
            join, value = await self.walk(task, node, value, self, visited=visited)
        except Parked as parked:
            # It stays where it is: no join may fire as if it could not come any more.
            self._parked[index] = parked
            return
        except Exception as error:
            if isinstance(error, _NEVER_LEFT_OUT) or not self._tolerates(self._at[index]):
                self._fail(group, error)
                return
            self._left_out.append(error)
            self.lost(self._met[index], error)
        else:
            self._arrive(group, join, Arrival(task, value))
        del self._at[index]
        self._settle(group)

    def _arrive(self, group: TaskGroup, join: NodeSpec, arrival: Arrival) -> None:
        waiting = self._waiting.setdefault(join.name, [])
        if join is self.final and self._is_eager():
            group.cancel_scope.cancel()
            if waiting:
                return
        waiting.append(arrival)

    def _is_eager(self) -> bool:
        return isinstance(self.final.reduce, Selector) and self.final.reduce.eager

    def _decided(self) -> bool:
        """Whether a first arrival has made the others superfluous."""
        return self._is_eager() and bool(self._waiting.get(self.final.name))

    def _settle(self, group: TaskGroup) -> None:
        """Let the inner joins fire that nobody can come to any more."""
        for join in self.regions.inner[self.fork]:
            if join.name not in self._waiting or not self._complete(join):
                continue
            arrivals = sorted(self._waiting.pop(join.name), key=lambda arrival: arrival.index)
            try:
                arrival = self.bring(join, arrivals)
            except Exception as error:
                self._fail(group, error)
                return
            self._at[arrival.index] = join.name
            self._met[arrival.index] = {index for one in arrivals for index in self._met[one.index]}
            group.start_soon(self._branch, group, arrival.task, join, arrival.value, True)

    def _complete(self, join: JoinNode) -> bool:
        reaches = self.regions.reaches[join.name]
        others = [name for name in self._waiting if name != join.name]
        return not any(name in reaches for name in [*self._at.values(), *others])

    def _tolerates(self, at: str) -> bool:
        inner = [join for join in self.regions.inner[self.fork] if at in self.regions.reaches[join.name]]
        return any(join.on_error == "collect" for join in (*inner, self.final))

    def _fail(self, group: TaskGroup, error: Exception) -> None:
        self._failures.append(error)
        group.cancel_scope.cancel()

    def _deadlock(self) -> Deadlock:
        stuck = ", ".join(repr(name) for name in self._waiting) or "none"
        return Deadlock(
            f"nothing can run, and the {self.fork!r} is still open: no branch came to its join "
            f"{self.final.name!r}; joins with branches that wait: {stuck}"
        )
