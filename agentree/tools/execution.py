"""Making a call: validate, run, bound in time, and turn whatever happens into a result."""

import inspect
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, cast

import anyio
import anyio.lowlevel
import anyio.to_thread

from agentree.errors import AgentreeError
from agentree.tools.calls import ToolCall, ToolFailed, ToolResult, ToolRetry
from agentree.tools.cancelled import raise_if_asked
from agentree.tools.decorator import Tool
from agentree.tools.schema import ArgumentError
from agentree.tools.text import MOST_ITEMS, RESULT_LIMIT, clip, result_text


class ErrorPolicy(Enum):
    """What becomes of an exception that a tool raises.

    Whatever the policy: bad arguments, `ToolRetry`, `ToolFailed` and a timeout are error results; an
    `AgentreeError` is about the run and not about the call, so it is raised, as is every BaseException that
    is no Exception (cancellation, Ctrl-C). A tool's `sys.exit` counts as an exception, and so does a
    cancellation that nobody asked for: the tool awaited a task that was cancelled elsewhere.
    """

    RESULT = "result"
    """It becomes an error result, which the model sees as `<type>: <text>`. What agents use."""
    RAISE = "raise"
    """It is raised to the caller. For tests, and where a failing tool must stop the run."""


Outcome = Literal["ok", "arguments", "retry", "failed", "exception", "timeout", "unknown"]
"""How a call ended. `arguments` and `retry` ask the model to correct itself: they count against `retries`."""


@dataclass(frozen=True)
class Finished:
    """A call that is over."""

    result: ToolResult
    outcome: Outcome
    text: str
    """The content before it was clipped."""
    exception: BaseException | None = None
    """What the tool raised, if it did."""

    @property
    def correctable(self) -> bool:
        """Whether the model was asked to correct its arguments."""
        return self.outcome in ("arguments", "retry")


async def run_call(
    tool: Tool[..., Any],
    call: ToolCall,
    *,
    attempt: int = 1,
    policy: ErrorPolicy = ErrorPolicy.RESULT,
    limit: int = RESULT_LIMIT,
    limiter: anyio.CapacityLimiter | None = None,
) -> Finished:
    """Run one call to its end, on asyncio or trio. Never raises for what the model got wrong.

    Args:
        tool: The tool that `call` names.
        call: What the model asked for.
        attempt: 1 for a first try; one more each time that the tool's last call was `correctable`. Past the
            tool's `retries` the result tells the model to go on without it.
        policy: What an unexpected exception becomes.
        limit: Longest content, in characters; more is cut in the middle, with a notice.
        limiter: Bounds the worker threads in which functions without `async` run. A function that
            outlives its timeout or a cancellation goes on in its thread; its result is dropped.
    """
    try:
        invoke = tool.bind(call.args)
    except ArgumentError as e:
        text = f"wrong arguments for {tool.name!r}: {e}" + _encourage(tool, attempt)
        return _error(call, "arguments", text, limit, e)
    except Exception as e:  # a validator of a parameter's type raised
        return _failure(tool, call, e, attempt, policy, limit)
    try:
        with anyio.move_on_after(tool.timeout):
            value = await _run(invoke, tool.is_async, limiter)
            text = await _told(value, limiter)
            return Finished(ToolResult(call, clip(text, limit)), "ok", text)
    except (Exception, SystemExit) as e:
        return _failure(tool, call, e, attempt, policy, limit)
    except anyio.get_cancelled_exc_class() as e:
        await raise_if_asked()
        return _failure(tool, call, e, attempt, ErrorPolicy.RESULT, limit)
    text = f"{tool.name!r} took longer than {tool.timeout:g} s and was stopped"
    return _error(call, "timeout", text, limit)


def unknown_tool(call: ToolCall, names: list[str]) -> Finished:
    """The result for a call of a tool that doesn't exist: tells the model which do."""
    known = ", ".join(names) or "none"
    return _error(call, "unknown", f"there is no tool {call.name!r} (there are: {known})", RESULT_LIMIT)


async def _run(invoke: Callable[[], object], is_async: bool, limiter: anyio.CapacityLimiter | None) -> object:
    if is_async:
        value = invoke()
    else:
        # boxed, as trio takes a function that returns a coroutine for a mistake
        boxed = await anyio.to_thread.run_sync(lambda: [invoke()], abandon_on_cancel=True, limiter=limiter)
        value = boxed[0]
    return await value if inspect.isawaitable(value) else value


async def _told(value: object, limiter: anyio.CapacityLimiter | None) -> str:
    """The value as text. Whatever runs code of the tool, such as a generator, does so in a worker thread."""
    if isinstance(value, AsyncIterator):
        value = await _collected(cast("AsyncIterator[object]", value))
    if isinstance(value, str | int | float | None):
        return result_text(value)
    return await anyio.to_thread.run_sync(result_text, value, abandon_on_cancel=True, limiter=limiter)


async def _collected(values: AsyncIterator[object]) -> list[object]:
    items: list[object] = []
    async for item in values:
        await anyio.lowlevel.checkpoint()
        if len(items) == MOST_ITEMS:
            return [*items, f"[… more than {MOST_ITEMS:,} items: the rest was not read …]"]
        items.append(item)
    return items


def _failure(
    tool: Tool[..., Any], call: ToolCall, e: BaseException, attempt: int, policy: ErrorPolicy, limit: int
) -> Finished:
    if isinstance(e, AgentreeError):
        raise e
    if isinstance(e, ToolRetry):
        return _error(call, "retry", _reason(e) + _encourage(tool, attempt), limit, e)
    if isinstance(e, ToolFailed):
        return _error(call, "failed", _reason(e), limit, e)
    if policy is ErrorPolicy.RAISE:
        raise e
    return _error(call, "exception", f"{type(e).__name__}: {_reason(e)}", limit, e)


def _reason(e: BaseException) -> str:
    try:
        return result_text(str(e)) or "no reason given"
    except Exception:
        return "no reason given"


def _encourage(tool: Tool[..., Any], attempt: int) -> str:
    if attempt <= tool.retries:
        return ""
    return f". Don't call {tool.name!r} again: go on without it."


def _error(
    call: ToolCall, outcome: Outcome, text: str, limit: int, exception: BaseException | None = None
) -> Finished:
    return Finished(ToolResult(call, clip(text, limit), error=True), outcome, text, exception)
