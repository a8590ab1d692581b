"""Calls as messages, and calls carried out: on asyncio and on trio."""

import datetime
import enum
import functools
import itertools
import json
import math
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, field_validator

from agentree.errors import Deadlock, ToolDefinitionError
from agentree.messages import Message
from agentree.tools import (
    ErrorPolicy,
    Finished,
    Tool,
    ToolCall,
    ToolCalls,
    ToolFailed,
    ToolResult,
    ToolRetry,
    canonical_json,
    clip,
    result_text,
    run_call,
    tool,
    tool_call,
    tool_result,
    unknown_tool,
)

both = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def run(backend: str, made: Tool[..., Any], /, **arguments: Any) -> Finished:
    options = {k.removeprefix("run_"): arguments.pop(k) for k in list(arguments) if k.startswith("run_")}
    call = ToolCall("1", made.name, arguments)
    return anyio.run(functools.partial(run_call, made, call, **options), backend=backend)


# Messages.


def test_one_call_is_an_object() -> None:
    call = ToolCall("c1", "calculator", {"expression": "17*23"})
    expected = Message("assistant", '{"name": "calculator", "arguments": {"expression": "17*23"}}')
    assert tool_call(call) == expected
    assert tool_call(ToolCalls((call,))) == expected


def test_several_calls_are_an_array() -> None:
    calls = ToolCalls((ToolCall("a", "f", {}), ToolCall("b", "g", {"b": [1, "é", None], "a": {"x": True}})))
    first = '{"name": "f", "arguments": {}}'
    second = '{"name": "g", "arguments": {"b": [1, "é", null], "a": {"x": true}}}'
    assert tool_call(calls).text == f"[{first}, {second}]"


def test_no_call_and_no_result_have_no_message() -> None:
    with pytest.raises(ValueError, match="without any tool call"):
        tool_call(ToolCalls(()))
    with pytest.raises(ValueError, match="no tool result"):
        tool_result([])


def test_results_keep_the_order_of_their_calls() -> None:
    call = ToolCall("a", "f", {})
    assert tool_result(ToolResult(call, "391")) == Message("tool", "391")
    results = [ToolResult(call, "one"), ToolResult(call, "bad", error=True), ToolResult(call, "two\nlines")]
    assert tool_result(results) == Message("tool", "one\nError: bad\ntwo\nlines")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_a_call_renders_the_same_after_parsing(arguments: dict[str, Any]) -> None:
    text = tool_call(ToolCall("1", "f", arguments)).text
    parsed = json.loads(text)
    assert parsed == {"name": "f", "arguments": arguments}
    assert tool_call(ToolCall("2", parsed["name"], parsed["arguments"])).text == text


def test_a_lone_surrogate_can_be_encoded_and_read_back() -> None:
    text = tool_call(ToolCall("1", "f", {"x": "a\ud800b"})).text
    text.encode()
    assert json.loads(text)["arguments"]["x"] == "a\ud800b"
    result_text("a\ud800b").encode()


# Results as text.


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Place:
    name: str
    when: datetime.date


class Reading(BaseModel):
    place: Place
    value: float


class Odd:
    def __str__(self) -> str:
        return "an odd thing"


RING: list[object] = []
RING.append(RING)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (391, "391"),
        (0.5, "0.5"),
        (10**20, "100000000000000000000"),
        ([1, "é", None], '[1, "é", null]'),
        ({"a": {"b": (1, 2)}}, '{"a": {"b": [1, 2]}}'),
        ({"c", "a", "b"}, '["a", "b", "c"]'),
        (Place("Oslo", datetime.date(2026, 1, 2)), '{"name": "Oslo", "when": "2026-01-02"}'),
        (
            [Reading(place=Place("x", datetime.date(2026, 1, 2)), value=1)],
            '[{"place": {"name": "x", "when": "2026-01-02"}, "value": 1.0}]',
        ),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (Decimal("1.50"), "1.50"),
        (Colour.RED, "red"),
        (b"bytes \xff", "bytes \\xff"),
        (Odd(), "an odd thing"),
        ({"x": Odd()}, '{"x": "an odd thing"}'),
        (RING, "[[...]]"),
    ],
)
def test_result_text(value: object, text: str) -> None:
    assert result_text(value) == text


def test_canonical_json_spacing() -> None:
    assert canonical_json({"a": [1, 2], "b": "ß"}) == '{"a": [1, 2], "b": "ß"}'


@given(st.text(max_size=600), st.integers(100, 500))
def test_clipping_is_exact_and_never_silent(text: str, limit: int) -> None:
    clipped = clip(text, limit)
    assert len(clipped) <= limit
    if len(text) <= limit:
        assert clipped == text
    else:
        head, rest = clipped.split("\n[… ", 1) if "\n[… " not in text else (None, None)
        if head is not None and rest is not None:
            assert text.startswith(head) and text.endswith(rest.split(" …]\n", 1)[1])
            assert f"{len(text):,} characters" in rest


def test_a_limit_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="take 100 or more"):
        clip("x", 5)


# Execution.


@tool
def where() -> str:
    """Tell the thread."""
    return threading.current_thread().name


@tool
async def where_async() -> str:
    """Tell the thread."""
    await anyio.lowlevel.checkpoint()
    return threading.current_thread().name


@both
def test_functions_run_in_a_worker_thread_and_coroutines_do_not(backend: str) -> None:
    main = threading.current_thread().name
    assert run(backend, where).text != main
    assert run(backend, where_async).text == main


@both
def test_an_awaitable_result_is_awaited(backend: str) -> None:
    @tool
    def later(n: int) -> Awaitable[int]:
        async def work() -> int:
            await anyio.lowlevel.checkpoint()
            return n + 1

        return work()

    finished = run(backend, later, n=1)
    assert (finished.result.content, finished.outcome) == ("2", "ok")


class Box:
    def __init__(self, start: int) -> None:
        self.start = start

    @tool
    async def add(self, n: int) -> int:
        return self.start + n

    async def __call__(self, n: int) -> int:
        return self.start - n


@both
def test_methods_objects_and_partials(backend: str) -> None:
    async def times(a: int, b: int) -> int:
        return a * b

    assert run(backend, Box(2).add, n=3).text == "5"
    assert run(backend, tool(Box(2)), n=3).text == "-1"
    assert run(backend, tool(name="double")(functools.partial(times, b=2)), a=4).text == "8"
    with pytest.raises(ToolDefinitionError):
        run(backend, Box.add, n=3)


@both
def test_bad_arguments_are_a_result_that_names_them(backend: str) -> None:
    calls: list[int] = []

    @tool
    def f(n: int, text: str) -> None:
        calls.append(n)

    finished = run(backend, f, n="three", extra=1)
    content = finished.result.content
    assert finished.result.error and finished.correctable and finished.outcome == "arguments"
    assert all(
        part in content for part in ("'f'", "n: ", '"three"', "text: missing", "extra: no such argument")
    )
    assert calls == []


@both
def test_retries_run_out(backend: str) -> None:
    @tool(retries=2)
    async def picky(n: int) -> int:
        raise ToolRetry("n must be even")

    contents = [run(backend, picky, n=1, run_attempt=attempt).result.content for attempt in (1, 2, 3)]
    assert contents[0] == contents[1] == "n must be even"
    assert contents[2].startswith("n must be even. Don't call 'picky' again")
    assert run(backend, picky, n="x", run_attempt=3).result.content.endswith("go on without it.")


@both
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("error", "outcome", "content"),
    [
        (ToolFailed("no network"), "failed", "no network"),
        (ToolRetry("again"), "retry", "again"),
        (KeyError("a"), "exception", "KeyError: 'a'"),
        (ValueError(""), "exception", "ValueError: no reason given"),
        (TimeoutError("inner"), "exception", "TimeoutError: inner"),
        (StopIteration("x"), "exception", None),
        (SystemExit(2), "exception", "SystemExit: 2"),
        (ValueError("[red] \ud800"), "exception", "ValueError: [red] \\ud800"),
    ],
)
def test_what_a_tool_raises(
    backend: str, is_async: bool, error: BaseException, outcome: str, content: str | None
) -> None:
    made = _raising(error, is_async=is_async)
    finished = run(backend, made)
    assert finished.result.error and finished.outcome == outcome
    assert content is None or finished.result.content == content
    finished.result.content.encode()
    if outcome == "exception":
        with pytest.raises(BaseException) as caught:
            run(backend, made, run_policy=ErrorPolicy.RAISE)
        assert caught.value is error or isinstance(error, StopIteration)


def _raising(error: BaseException, *, is_async: bool) -> Tool[[], None]:
    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    return tool(name="fail")(fail) if not is_async else tool(name="fail")(fail_async)  # pyright: ignore[reportReturnType]


def test_the_policies_are_these() -> None:
    assert {p.name: p.value for p in ErrorPolicy} == {"RESULT": "result", "RAISE": "raise"}


@both
@pytest.mark.parametrize("error", [Deadlock("join"), KeyboardInterrupt()])
def test_what_concerns_the_run_is_never_a_result(backend: str, error: BaseException) -> None:
    with pytest.raises(type(error)):
        run(backend, _raising(error, is_async=True))


@both
def test_a_validator_that_asks_for_another_try(backend: str) -> None:
    class Even(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def check(cls, n: int) -> int:
            if n == 1:
                raise ToolRetry("n must be even")
            if n == 3:
                raise RuntimeError("broken")
            return n

    @tool
    def f(x: Even) -> int:
        return x.n

    assert run(backend, f, x={"n": 2}).text == "2"
    assert run(backend, f, x={"n": 1}).outcome == "retry"
    assert run(backend, f, x={"n": 3}).result.content == "RuntimeError: broken"


@both
def test_a_coroutine_is_stopped_at_its_timeout(backend: str) -> None:
    seen: list[str] = []

    @tool(timeout=0.02)
    async def forever() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append("stopped")

    finished = run(backend, forever)
    assert finished.result.error and finished.outcome == "timeout" and seen == ["stopped"]
    assert finished.result.content == "'forever' took longer than 0.02 s and was stopped"


@both
def test_a_thread_is_abandoned_at_its_timeout(backend: str) -> None:
    release = threading.Event()

    @tool(timeout=0.02)
    def slow() -> str:
        release.wait(20)
        return "too late"

    async def main() -> Finished:
        finished = await run_call(slow, ToolCall("1", "slow", {}))
        release.set()  # before the loop ends, as its threads are joined then
        return finished

    finished = anyio.run(main, backend=backend)
    assert finished.outcome == "timeout" and "too late" not in finished.text


@both
def test_cancelling_a_call_cancels_it(backend: str) -> None:
    release = threading.Event()
    reached: list[str] = []

    @tool
    def slow() -> None:
        reached.append("started")
        release.wait(20)

    async def main() -> None:
        async def one() -> None:
            await run_call(slow, ToolCall("1", "slow", {}))
            reached.append("returned")

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            while not reached:  # noqa: ASYNC110 - it is a thread that is waited for
                await anyio.sleep(0.001)
            group.cancel_scope.cancel()
        release.set()

    anyio.run(main, backend=backend)
    assert reached == ["started"]


@both
def test_calls_are_isolated_and_run_at_once(backend: str) -> None:
    meet = threading.Barrier(3)

    @tool
    def f(n: int) -> int:
        meet.wait(20)
        if n == 1:
            raise RuntimeError("one of three")
        return n

    async def main() -> list[Finished | None]:
        results: list[Finished | None] = [None] * 3

        async def one(n: int) -> None:
            results[n] = await run_call(f, ToolCall(str(n), "f", {"n": n}))

        async with anyio.create_task_group() as group:
            for n in range(3):
                group.start_soon(one, n)
        return results

    results = anyio.run(main, backend=backend)
    assert [r and r.result.content for r in results] == ["0", "RuntimeError: one of three", "2"]


@both
def test_a_limiter_bounds_the_threads(backend: str) -> None:
    running: list[int] = []
    most: list[int] = []

    @tool
    def f(n: int) -> int:
        running.append(n)
        most.append(len(running))
        time.sleep(0.005)
        running.remove(n)
        return n

    async def main() -> None:
        limiter = anyio.CapacityLimiter(2)

        async def one(n: int) -> None:
            await run_call(f, ToolCall(str(n), "f", {"n": n}), limiter=limiter)

        async with anyio.create_task_group() as group:
            for n in range(6):
                group.start_soon(one, n)

    anyio.run(main, backend=backend)
    assert max(most) <= 2


@both
def test_a_long_result_is_clipped_with_a_notice_and_kept(backend: str) -> None:
    @tool
    def long(fail: bool) -> str:
        text = "head" + "x" * 1_000_000 + "tail"
        if fail:
            raise ToolFailed(text)
        return text

    for fail in (False, True):
        finished = run(backend, long, fail=fail, run_limit=1000)
        content = finished.result.content
        assert len(content) <= 1000 and content.startswith("head") and content.endswith("tail")
        assert "1,000,008 characters in all" in content and len(finished.text) == 1_000_008


def test_an_unknown_tool() -> None:
    finished = unknown_tool(ToolCall("1", "serch", {}), ["search", "add"])
    assert finished.result.content == "there is no tool 'serch' (there are: search, add)"
    assert finished.result.error and finished.outcome == "unknown"


@pytest.mark.asyncio
async def test_calling_a_tool_directly_validates_nothing() -> None:
    async def echo(x: float) -> float:
        return x

    made: Callable[[float], Awaitable[float]] = tool(echo)
    assert math.isnan(await made(math.nan))


@both
def test_a_generator_runs_under_the_timeout_and_is_bounded(backend: str) -> None:
    def slowly() -> Iterator[int]:
        while True:
            time.sleep(0.05)
            yield 1

    @tool(timeout=0.2)
    def slow() -> Iterator[int]:
        """Count slowly."""
        return slowly()

    @tool
    def endless() -> Iterator[int]:
        """Count for ever."""
        return itertools.count()

    async def numbers() -> AsyncIterator[int]:
        for i in range(3):
            yield i

    @tool
    async def streamed() -> AsyncIterator[int]:
        """Count in steps."""
        return numbers()

    assert run(backend, slow).outcome == "timeout"
    assert "more than 10,000 items" in run(backend, endless).text
    assert run(backend, streamed).text == "[0, 1, 2]"
