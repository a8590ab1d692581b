"""Tool calls of a run: none that may have an effect is made twice without a word."""

from collections.abc import Iterable
from typing import Any, Literal

import anyio.lowlevel

from agentree.errors import UncertainCall
from agentree.graph.journal.log import RunLog
from agentree.graph.journal.past import Body
from agentree.graph.journal.questions import Questions
from agentree.tools import Finished, Tool, ToolCall, ToolResult, canonical_json

Policy = Literal["raise", "rerun", "tell"]
"""What becomes of a call that was started, is not pure, and whose end is unknown: `UncertainCall`, one more
call, or an error result that says so to the model."""
UNKNOWN = (
    "the outcome of this call is unknown: it was under way when the process stopped; find out what it did "
    "before you call it again"
)
REJECTED = "this call was not approved"


class Calls:
    """The calls of one run, by the visit that makes them."""

    def __init__(self, log: RunLog, questions: Questions, policy: Policy) -> None:
        self._log = log
        self._questions = questions
        self._policy = policy

    def began(self, path: str, call: ToolCall) -> bool:
        """Whether a call was begun before the run was resumed."""
        return (path, call.id) in self._log.past.calls

    def check(self, path: str, calls: Iterable[tuple[Tool[..., Any], ToolCall]]) -> None:
        """Refuse a turn before any call of it starts. Raises UncertainCall as `before` does."""
        for tool, call in calls:
            if self._policy == "raise" and self._log.past.calls.get((path, call.id)) == {} and not tool.pure:
                self._uncertain(path, call)

    async def before(self, path: str, tool: Tool[..., Any], call: ToolCall) -> Finished | None:
        """What a call came to before, or what stands in for it; None: make it now, its start is durable.

        Raises:
            Parked: It has to be approved first.
            UncertainCall: It was started, its end is unknown, and it is not pure.
        """
        known = self._log.past.calls.get((path, call.id))
        if known:
            return _finished(call, known)
        if known is not None and not tool.pure and self._policy != "rerun":
            return self._uncertain(path, call)
        if known is None and tool.approve:
            said = await self._questions.approve(path, call)
            if not said.approved:
                text = f"{REJECTED}: {said.reason}" if said.reason else REJECTED
                finished = Finished(ToolResult(call, text, error=True), "failed", text)
                self._note_end(path, finished)
                return finished
        begun = self._log.note(
            "call started",
            path,
            call=call.id,
            tool=call.name,
            arguments=dict(call.args),
            pure=tool.pure,
        )
        try:
            await self._log.sync()
            await anyio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            # It is not made: nothing may say that its outcome is unknown.
            if not self._log.withdraw(begun) and known is None:
                self._log.note("call withdrawn", path, call=call.id, tool=call.name)
            raise
        return None

    async def after(self, path: str, finished: Finished) -> None:
        """A call is over: once this returns, it is never made again."""
        self._note_end(path, finished)
        await self._log.sync()

    def _uncertain(self, path: str, call: ToolCall) -> Finished:
        if self._policy == "raise":
            arguments = canonical_json(dict(call.args))
            raise UncertainCall(
                f"run {self._log.run!r}, {path}: {call.name}({arguments}) was under way when the "
                "process stopped, and nobody knows whether it had its effect: find out, then resume with "
                "uncertain='tell' (the model is told) or uncertain='rerun' (it is called again)",
                run=self._log.run,
                path=path,
                tool=call.name,
                arguments=dict(call.args),
            )
        finished = Finished(ToolResult(call, UNKNOWN, error=True), "failed", UNKNOWN)
        self._note_end(path, finished)
        return finished

    def _note_end(self, path: str, finished: Finished) -> None:
        result = finished.result
        body = {"content": result.content, "error": result.error, "outcome": finished.outcome}
        if finished.text != result.content:
            body["text"] = finished.text
        self._log.note("call ended", path, call=result.call.id, tool=result.call.name, **body)


def _finished(call: ToolCall, body: Body) -> Finished:
    result = ToolResult(call, body["content"], body["error"])
    return Finished(result, body["outcome"], body.get("text", body["content"]))
