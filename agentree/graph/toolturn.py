"""The tool calls of one turn: which of them are made, and what the model is told of the others."""

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from agentree.errors import GraphError
from agentree.events import ToolEnded, ToolStarted
from agentree.graph.budget import Hit
from agentree.graph.gather import gather
from agentree.graph.nodes import ToolsNode
from agentree.graph.parked import Parked
from agentree.graph.task import Task
from agentree.messages import Message
from agentree.tools import (
    Finished,
    Tool,
    ToolCall,
    ToolCalls,
    ToolResult,
    canonical_json,
    run_call,
    tool_result,
    tools_by_name,
    unknown_tool,
)

if TYPE_CHECKING:
    from agentree.graph.acts import Visit

INTERRUPTED = "interrupted: its result is unknown"
"""What is told of a call that was running when its run was cut off."""
NOT_STARTED = "not started: the run was cut off before"
"""What is told of a call that waited for its turn then."""


async def run_tools(visit: "Visit", node: ToolsNode, value: object) -> list[ToolResult]:
    """Run the calls of one turn, some at a time; results in call order.

    A call that may not be repeated is answered with what it came to before, or its twin in this turn. Where
    limits allow only some of the calls, those are made, in order, before the limit is hit.
    """
    if not isinstance(value, ToolCalls):
        raise GraphError(f"tools node {node.name!r} takes ToolCalls, not {type(value).__name__}")
    task, calls = visit.task, value.calls
    if hit := task.trail.forbids_repeats(calls):
        raise task.hit(hit, pending=(not_run(calls, task, hit.text),))
    turn = Turn(visit, node, calls)
    hit = turn.choose()
    if hit is not None and not turn.chosen:
        raise task.hit(hit, pending=(not_run(calls, task, hit.text),))
    made = await turn.run()
    reason = "it is repeated" if hit is None else hit.text
    results = [made.get(i) or told(call, task, reason) for i, call in enumerate(calls)]
    task.value = results
    if hit is not None:
        for i in turn.left:
            turn.tell(calls[i], results[i].content)
        raise task.hit(hit, pending=(tool_result(results),))
    task.unanswered = None
    return results


class Turn:
    """The calls of one turn, by their place in it."""

    def __init__(self, visit: "Visit", node: ToolsNode, calls: Sequence[ToolCall]) -> None:
        self.chosen: list[int] = []
        """Those that are made, or answered with why they can't be."""
        self.left: list[int] = []
        """Those that a limit of the run does not allow."""
        self._visit = visit
        self._parallel = node.parallel
        self._calls = calls
        self._known = tools_by_name(node.tools)
        self._refused: dict[int, Finished] = {}

    def choose(self) -> Hit | None:
        """Decide on each call that is not repeated, and count those that will be made; the limit that is hit.

        Calls that began before the run was resumed come first: they have been counted for.
        """
        visit, trail, journal = self._visit, self._visit.task.trail, self._visit.shared.journal
        new = [i for i, again in enumerate(trail.repeated(self._calls)) if not again]
        begun = {i for i in new if journal and journal.calls.began(visit.path, self._calls[i])}
        used = trail.budget.per_tool + Counter(self._calls[i].name for i in begun)
        makeable: list[int] = []
        for i in new:
            call = self._calls[i]
            if i not in begun and (refused := self._refusal(call, used[call.name])):
                self._refused[i] = refused
                continue
            makeable.append(i)
            used[call.name] += i not in begun
        count, hit = trail.allows_calls(len(makeable))
        made = set(sorted(makeable, key=lambda i: i not in begun)[:count])
        self.left = [i for i in makeable if i not in made]
        self.chosen = [i for i in new if i not in self.left] if made or hit is None else []
        if journal is not None:
            asked = [self._calls[i] for i in self.chosen if i in made]
            journal.calls.check(visit.path, [(self._known[call.name], call) for call in asked])
        for i in made:
            visit.calls[self._calls[i].name] += 1
            trail.start(self._calls[i])
        return hit

    async def run(self) -> dict[int, ToolResult]:
        """Make the calls. Raises Parked where some wait for a person, after the others have ended."""
        came = await self._run_all()
        if parked := [one for one in came if isinstance(one, Parked)]:
            raise Parked.all(parked)
        made = [one for one in came if not isinstance(one, Parked)]
        for result in made:
            self._visit.task.trail.answered(result)
        return dict(zip(self.chosen, made, strict=True))

    def tell(self, call: ToolCall, content: str) -> None:
        """Say why a call was not made."""
        self._visit.emit(ToolEnded(call=call.id, tool=call.name, content=content, error=True, seconds=0.0))

    async def _run_all(self) -> list[ToolResult | Parked]:
        """Run calls side by side. If that is cut off, what is known of each is remembered and told."""
        came: dict[int, ToolResult | Parked | None] = {}

        async def one(index: int) -> ToolResult | Parked:
            came[index] = None
            result = came[index] = await self._run_or_wait(index)
            return result

        try:
            return await gather([partial(one, i) for i in self.chosen], parallel=self._parallel)
        except BaseException:
            trail = self._visit.task.trail
            for i in self.chosen:
                call, result = self._calls[i], came.get(i)
                if isinstance(result, ToolResult):
                    trail.answered(result)
                elif i not in came:
                    self.tell(call, NOT_STARTED)
                elif result is None:
                    trail.answered(ToolResult(call, INTERRUPTED, error=True))
            raise

    async def _run_or_wait(self, index: int) -> ToolResult | Parked:
        """One call; a call that waits for a person holds up no other one."""
        try:
            return await self._run(self._calls[index], self._refused.get(index))
        except Parked as parked:
            return parked

    async def _run(self, call: ToolCall, refused: Finished | None) -> ToolResult:
        visit = self._visit
        journal = visit.shared.journal if refused is None else None
        if journal is not None:
            finished = await journal.calls.before(visit.path, self._known[call.name], call)
            if finished is not None:
                self._correct(finished)
                return finished.result
        began = time.monotonic()
        visit.emit(ToolStarted(call=call.id, tool=call.name, arguments=canonical_json(dict(call.args))))
        content, error = INTERRUPTED, True
        try:
            finished = refused or await self._finish(self._known[call.name], call)
            content, error = finished.result.content, finished.result.error
            if journal is not None:
                await journal.calls.after(visit.path, finished)
        finally:
            seconds = time.monotonic() - began
            visit.emit(ToolEnded(call=call.id, tool=call.name, content=content, error=error, seconds=seconds))
        return finished.result

    def _refusal(self, call: ToolCall, used: int) -> Finished | None:
        """What is said to a call that can't be made; the tool has been called so often."""
        tool = self._known.get(call.name)
        if tool is None:
            return unknown_tool(call, list(self._known))
        if tool.max_calls is not None and used >= tool.max_calls:
            text = f"{tool.name!r} may be called {tool.max_calls} times in a run: go on without it"
            return Finished(ToolResult(call, text, error=True), "failed", text)
        return None

    async def _finish(self, tool: "Tool[..., object]", call: ToolCall) -> Finished:
        attempt = self._visit.task.trail.corrections[tool.name] + 1
        finished = await run_call(tool, call, attempt=attempt)
        self._correct(finished)
        return finished

    def _correct(self, finished: Finished) -> None:
        """Count what the model has to correct, in a row and per tool."""
        corrections, tool = self._visit.task.trail.corrections, finished.result.call.name
        corrections[tool] = corrections[tool] + 1 if finished.correctable else 0


def not_run(calls: Sequence[ToolCall], task: Task, reason: str) -> Message:
    """What the model is told of calls that a limit stopped: what is known of each, else the reason."""
    return tool_result([told(call, task, reason) for call in calls])


def told(call: ToolCall, task: Task, reason: str) -> ToolResult:
    """What is known of a call that is not run, else the reason."""
    return task.trail.known(call) or ToolResult(call, f"not run: {reason}", error=True)
