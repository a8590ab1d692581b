"""Visits of nodes: written down when they end, and taken from the journal instead of being made again."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from agentree.errors import AgentreeError, JournalError
from agentree.graph.budget import Trail
from agentree.graph.ctx import Cell
from agentree.graph.journal.calls import Calls
from agentree.graph.journal.log import RunLog
from agentree.graph.journal.past import Body, Spent
from agentree.graph.journal.questions import Questions
from agentree.graph.journal.recall import Generations
from agentree.graph.journal.unstorable import Unstorable
from agentree.graph.journal.values import Values
from agentree.graph.journal.writing import NOTHING, Parts
from agentree.graph.nodes import CallNode, LlmNode, NodeSpec, SampleNode, StepNode, ToolsNode
from agentree.graph.task import Task
from agentree.tools import ToolCalls, ToolResult

if TYPE_CHECKING:
    from agentree.graph.acts import Visit
    from agentree.lm import Transcript


@dataclass(eq=False)
class RunJournal:
    """The journal of one run, as its nodes use it."""

    log: RunLog
    values: Values
    empty: "Transcript"
    """A transcript of the runtime without a token."""
    questions: Questions
    calls: Calls
    generations: Generations

    def write(self, value: Any, where: str, base: "Transcript | None" = None, state: Parts = NOTHING) -> Any:
        """A value as JSON values. Raises JournalError, naming where it comes from, for what can't be."""
        try:
            return self.values.write(value, base, state)
        except Unstorable as e:
            raise JournalError(f"{where} gave what a journal can't store: {e}") from e

    def write_state(self, value: Any) -> tuple[Any, Parts]:
        """A state as JSON values, and what other values may share with it. Raises JournalError as `write`."""
        try:
            return self.values.write_state(value)
        except Unstorable as e:
            raise JournalError(f"the state holds what a journal can't store: {e}") from e

    def read(
        self,
        data: Any,
        where: str,
        base: "Transcript | None" = None,
        state: Callable[[], Parts] = lambda: NOTHING,
    ) -> Any:
        """What `write` was given."""
        try:
            return self.values.read(data, base, state, empty=self.empty)
        except Unstorable as e:
            raise JournalError(f"{where}: the journal holds {e}") from e

    def states(self, cell: Cell) -> "Keeper":
        """The keeper of one program's visits."""
        return Keeper(self, cell)


@dataclass(eq=False)
class Keeper:
    """Visits of one run of one program."""

    journal: RunJournal
    cell: Cell
    _state: str | None = None
    """The state as it was written last, as JSON."""
    _forks: dict[str, int] = field(default_factory=dict[str, int])
    """By task path of a join, how many branches lead to it."""

    def spent(self, prefix: str) -> Spent:
        """What ended visits of this program have used of its limits."""
        return self.journal.log.past.spent(prefix)

    def seconds(self, path: str) -> float:
        """How long this program was worked on before; `path` is the visit that calls it, "" for the run.

        Somebody limits that: from now on the time is kept, also if this process is killed.
        """
        self.journal.log.keep_time()
        past = self.journal.log.past
        return past.seconds(past.started.get(path, {}).get("time", 0.0) if path else 0.0)

    def next_of(self, task: Task) -> str | None:
        """The node that was gone to from where the task is."""
        return self.journal.log.past.after(task.path) if task.path else None

    # ------------------------------------------------------------------------------------------ visits

    def restore(self, visit: "Visit", node: NodeSpec, value: object) -> bool:
        """Take a visit that has ended from the journal: output, transcript, state and counts."""
        body = self.journal.log.past.ended.get(visit.path)
        if body is None:
            return False
        task, where = visit.task, f"node {node.name!r}, visit {visit.path!r}"
        base = task.transcript
        if "transcript" in body:
            task.transcript = self.journal.values.transcript(body["transcript"], base, self.journal.empty)
        task.trunk = body["trunk"]
        task.value = self.output(body, where, base)
        if isinstance(node, LlmNode):
            task.llm = node
            task.unanswered = task.value if isinstance(task.value, ToolCalls) else None
        elif isinstance(node, ToolsNode) or (isinstance(node, StepNode) and "transcript" in body):
            task.unanswered = None
        _count(task.trail, node, value, task.value, body, self)
        return True

    def restore_state(self, body: Body) -> None:
        """Set the program's state as a fact has it, if it has one and that is another one than it is now.

        A state that is the same stays the same object: values that were read before may share parts of it.
        """
        if "state" not in body:
            return
        self._state = json.dumps(body["state"])  # as text: 1 is not True
        if self._state != json.dumps(self.journal.write_state(self.cell.value)[0]):
            self.cell.value = self.journal.read(body["state"], "the state")

    def output(self, body: Body, where: str, base: "Transcript | None") -> Any:
        """What a visit gave by its fact; the state is then as it was when the visit ended."""
        self.restore_state(body)
        return self.journal.read(body["output"], where, base, self._parts)

    def _parts(self) -> Parts:
        return self.journal.write_state(self.cell.value)[1]

    def call(self, path: str) -> None:
        """The visit at `path` calls this program: its state is the one that it was called with first."""
        past = self.journal.log.past.states.get(path)
        if past is not None:
            self.restore_state(past)
        elif state := self._changed_state()[0]:
            self.journal.log.note("state", path, **state)

    async def start(self, visit: "Visit", node: NodeSpec, after: str) -> None:
        """A visit begins: what was before it is durable once this returns, or before its first tool runs."""
        if visit.path not in self.journal.log.past.started:
            self.journal.log.note(
                "node started", visit.path, node=node.name, node_kind=node.kind, after=after
            )
        if not isinstance(node, ToolsNode):
            await self.journal.log.sync()

    def end(self, visit: "Visit", node: NodeSpec, base: "Transcript | None") -> None:
        """A visit has ended. Raises JournalError if its output or the state can't be stored."""
        task, where = visit.task, f"node {node.name!r}"
        body = {**self._output(task.value, where, base), "trunk": task.trunk}
        if task.transcript is not base and task.transcript is not None:
            body["transcript"] = _stored(task.transcript, base)
        forgotten = self.journal.generations.forgotten(visit.path)
        visit.tokens += forgotten
        task.trail.spend(forgotten)
        if visit.tokens:
            body["tokens"] = visit.tokens
        if visit.calls:
            body["calls"] = dict(visit.calls)
        if isinstance(node, ToolsNode):
            body["corrections"] = {tool.name: task.trail.corrections[tool.name] for tool in node.tools}
        if visit.inner is not None:
            body["turns"] = visit.inner.turns
            answered = [result for results in visit.inner.calls.values() for result in results]
            body["answered"] = self.journal.write(answered, where)
        self.journal.log.note("node ended", visit.path, node=node.name, **body)

    def failed(self, path: str, node: NodeSpec, error: str) -> None:
        """A visit ended without an output."""
        self.journal.log.note("node failed", path, node=node.name, error=error)

    def _output(self, value: Any, where: str, base: "Transcript | None") -> dict[str, Any]:
        """What a visit gave, and the state if it has changed, as a fact holds them."""
        before = self._state
        state, parts = self._changed_state()
        try:
            return {"output": self.journal.write(value, where, base, parts), **state}
        except JournalError:
            self._state = before  # it is not written either
            raise

    def _changed_state(self) -> tuple[dict[str, Any], Parts]:
        """The state, if it is not as it was written last, and what other values may share with it."""
        if self.cell.frozen or self.cell.value is None:
            return {}, NOTHING
        state, parts = self.journal.write_state(self.cell.value)
        text = json.dumps(state)
        if text == self._state:
            return {}, parts
        self._state = text
        return {"state": state}, parts

    # ------------------------------------------------------------------------------------------- joins

    def joined(self, path: str) -> Body | None:
        """The end of a join, if it has fired before."""
        return self.journal.log.past.ended.get(path)

    def join(self, path: str, node: NodeSpec, task: Task, winner: int | None, gone: "Gone") -> None:
        """A join has fired."""
        state, parts = self._changed_state()
        output = self.journal.write(task.value, f"join {node.name!r}", task.transcript, parts)
        body = {
            **state,
            "output": output,
            "winner": winner,
            "gone": sorted(gone.branches),
            "visits": gone.visits,
        }
        self.journal.log.note("node ended", path, node=node.name, **body)

    def gone(self, path: str, branches: int) -> "Gone":
        """Branches of a fork that nobody waits for: they have failed, or its join fired without them.

        Where all have failed, the run has too: then all are tried again.
        """
        past = self.journal.log.past
        self._forks[path] = branches
        found = Gone()
        if (body := past.ended.get(path)) is not None:
            return Gone(set(body["gone"]), dict(body["visits"]), [])
        for body in past.lost.get(path, ()):
            found.branches |= set(body["branches"])
            found.visits |= body["visits"]
            found.errors.append(AgentreeError(f"a branch failed before the run was resumed: {body['error']}"))
        return found if len(found.branches) < branches else Gone()

    def lose(self, path: str, gone: "Gone", error: str) -> None:
        """A branch failed, and its join does without it."""
        body = {"branches": sorted(gone.branches), "of": self._forks[path], "visits": gone.visits}
        self.journal.log.note("branch lost", path, **body, error=error)


@dataclass
class Gone:
    """Branches of a fork that are not walked any more, and the visits that were counted in them."""

    branches: set[int] = field(default_factory=set[int])
    visits: dict[str, int] = field(default_factory=dict[str, int])
    errors: list[Exception] = field(default_factory=list[Exception])


def _stored(transcript: "Transcript", base: "Transcript | None") -> dict[str, Any]:
    from agentree.lm.stored import stored

    return stored(transcript, base)


def _count(
    trail: Trail, node: NodeSpec, value: object, output: object, body: Mapping[str, Any], keeper: Keeper
) -> None:
    """What a visit counted along its path; what it spent of the whole run is counted already."""
    if isinstance(node, LlmNode | SampleNode):
        trail.turn()
    elif isinstance(node, ToolsNode) and isinstance(value, ToolCalls):
        results = cast("Sequence[ToolResult]", output)
        for result, again in zip(results, trail.repeated(value.calls), strict=True):
            if not again:
                trail.answered(result)
        for name, n in body["corrections"].items():
            trail.corrections[name] = n
    elif isinstance(node, CallNode):
        for one in trail.chain():
            one.turns += body["turns"]
        for result in keeper.journal.read(body["answered"], f"node {node.name!r}"):
            trail.answered(result)
