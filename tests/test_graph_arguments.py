"""Arguments that can't be right are refused before anything runs: errors name the value and the remedy."""

import asyncio
import math
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from agentree.errors import AgentreeError, InvalidArgument, RuntimeClosed, StrayCancellation
from agentree.events import NodeEnded, RunEnded, ToolEnded
from agentree.graph import Ctx, Graph, Limits, Program, collect, react
from agentree.lm import Runtime
from agentree.messages import Message, user
from agentree.testing import ScriptedRuntime, final_answer, forbid_models
from agentree.tools import ToolCall, tool

pytestmark = pytest.mark.anyio


class Topic(BaseModel):
    name: str


@tool
def look(word: str) -> str:
    """Look a word up."""
    return word


def program(kind: Any = str, ran: list[object] | None = None) -> Program[None, Any, Any]:
    g: Any = Graph("report", input=kind, output=object)

    @g.step
    async def note(ctx: Ctx, x: Any) -> Any:
        if ran is not None:
            ran.append(x)
        return x

    g.edge(g.start, note)
    g.edge(note, g.end)
    return g.compile()


# ------------------------------------------------------------------------------------------- programs


@pytest.mark.parametrize(
    ("lm", "remedy"),
    [
        ("smollm2-135m-instruct", "async with Runtime('smollm2-135m-instruct') as lm"),
        (None, "async with Runtime(...) as lm"),
        (Runtime, "async with Runtime(...) as lm"),
    ],
    ids=str,
)
async def test_what_is_no_runtime_is_refused(lm: Any, remedy: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await program().run("x", lm=lm)
    assert f"lm={lm!r}" in str(caught.value)
    assert remedy in str(caught.value)
    with pytest.raises(InvalidArgument):
        async with program().stream("x", lm=lm):
            raise AssertionError("it must not begin")


@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [
        (str, 5, "5"),
        (str, None, "a"),
        (str, ["a"], "a"),
        (int, "5", 5),
        (float, "5", 5),
        (list[str], "abc", ["a"]),
        (Topic, {"name": "tea"}, Topic(name="tea")),
        (str | int, 0.5, 7),
        (None, "x", None),
    ],
    ids=str,
)
async def test_an_input_of_another_type_is_refused_before_anything_runs(
    kind: Any, wrong: object, right: object
) -> None:
    ran: list[object] = []
    taker = program(kind, ran)
    with ScriptedRuntime({}) as lm:
        with pytest.raises(InvalidArgument) as caught:
            await taker.run(wrong, lm=lm)
        assert ran == []
        assert "'report'" in str(caught.value)
        assert repr(wrong) in str(caught.value)
        assert await taker.run(right, lm=lm) == right


def test_run_sync_refuses_before_a_model_loads() -> None:
    with forbid_models(), pytest.raises(InvalidArgument, match="'report' takes str, not int"):
        program().run_sync(5)


@pytest.mark.parametrize("seed", ["1", 1.5, None])
async def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with ScriptedRuntime({}) as lm, pytest.raises(InvalidArgument, match=f"seed={seed!r}"):
        await program().run("x", lm=lm, seed=seed)


async def test_a_transcript_from_elsewhere_is_refused() -> None:
    with ScriptedRuntime({}) as lm, ScriptedRuntime({}) as other:
        theirs = other.transcript(user("a"))
        with pytest.raises(InvalidArgument, match="another runtime"):
            await program().run("x", lm=lm, transcript=theirs)
        with pytest.raises(InvalidArgument, match=r"lm\.transcript\("):
            await program().run("x", lm=lm, transcript="hello")  # pyright: ignore[reportArgumentType]
        assert await program().run("x", lm=lm, transcript=lm.transcript(user("a"))) == "x"


async def test_a_runtime_that_is_not_open_runs_nothing() -> None:
    ran: list[object] = []
    lm = ScriptedRuntime({})
    for when in ("is not open yet", "is closed"):
        with pytest.raises(RuntimeClosed, match=when):
            await program(str, ran).run("x", lm=lm)
        with pytest.raises(RuntimeClosed, match=when):
            async with program(str, ran).stream("x", lm=lm):
                raise AssertionError("it must not begin")
        with lm:
            pass
    assert ran == []


# --------------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("seconds", value) for value in (math.nan, -1, 0, math.inf, "5", True)],
        *[("turns", value) for value in (None, 0, -1, 1.5, "8", True)],
        *[("tool_calls", value) for value in (-1, 2.0, "1")],
        *[("tokens", value) for value in (0, math.nan)],
        *[("repeats", value) for value in (None, 1, "2")],
        *[("on_limit", value) for value in ("stop", None, True)],
    ],
    ids=str,
)
def test_a_limit_that_limits_nothing_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Limits(**{name: value})
    assert f"Limits({name}={value!r})" in str(caught.value)


@pytest.mark.parametrize("limits", [8, "8", {"turns": 8}])
def test_limits_are_limits(limits: Any) -> None:
    g: Any = Graph("g", input=str, output=str)
    g.edge(g.start, g.end)
    with pytest.raises(InvalidArgument, match=r"Limits\(turns=8\)"):
        g.compile(limits=limits)
    with pytest.raises(InvalidArgument, match=r"Limits\(turns=8\)"):
        react(tools=[look], output=str, limits=limits)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retries": -1}, "(retries=-1)"),
        ({"retries": None}, "(retries=None)"),
        ({"timeout": math.nan}, "(timeout=nan)"),
        ({"timeout": "5"}, "(timeout='5')"),
    ],
    ids=str,
)
def test_options_of_a_step_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    g: Any = Graph("g", input=str, output=str)

    async def wait(ctx: Ctx, x: str) -> str:
        return x

    with pytest.raises(InvalidArgument, match=re.escape(f"step 'wait' {said}: it must be")):
        g.step(**options)(wait)


# ---------------------------------------------------------------------------------------------- tools


def to_react() -> None:
    react(tools=look, output=str)  # pyright: ignore[reportCallIssue, reportArgumentType]


def to_llm() -> None:
    Graph("g", input=str, output=str).llm(str, tools=look)(  # pyright: ignore[reportArgumentType]
        lambda ctx, x: user("x")
    )


def to_a_transcript() -> None:
    with ScriptedRuntime({}) as lm:
        lm.transcript(user("x"), tools=look)  # pyright: ignore[reportArgumentType]


async def to_a_call() -> None:
    with ScriptedRuntime({}) as lm:
        await lm.transcript(user("x")).call(look, output=str)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("give", [to_react, to_llm, to_a_transcript, to_a_call])
async def test_one_tool_in_place_of_a_list(give: Callable[[], Awaitable[None] | None]) -> None:
    with pytest.raises(AgentreeError, match=r"write a list, tools=\[look\]"):
        made = give()
        if made is not None:
            await made


# ------------------------------------------------------------------------------------- stray cancels

CANCELLED = asyncio.CancelledError
"""Of asyncio only: trio's can't be made by anyone but trio."""


async def cancelled_task() -> None:
    """What awaiting someone else's cancelled task looks like."""
    task = asyncio.ensure_future(asyncio.sleep(10))
    task.cancel()
    await task


async def raised() -> None:
    raise CANCELLED


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("stray", [cancelled_task, raised])
async def test_a_step_that_raises_a_cancellation_itself_has_failed(
    stray: Callable[[], Awaitable[None]],
) -> None:
    g = Graph("g", input=str, output=str)
    tries: list[int] = []

    @g.step(retries=1, timeout=60)
    async def wait(ctx: Ctx, x: str) -> str:
        tries.append(ctx.attempt)
        await stray()
        return x

    g.edge(g.start, wait)
    g.edge(wait, g.end)
    with ScriptedRuntime({}) as lm:
        seen: list[Any] = []
        with pytest.raises(StrayCancellation, match="'wait'") as caught:
            async with g.compile().stream("x", lm=lm) as run:
                seen.extend([event async for event in run])
        assert isinstance(caught.value.__cause__, CANCELLED)
        assert tries == [1, 2]
        (node,) = [event for event in seen if isinstance(event, NodeEnded)]
        assert "StrayCancellation" in node.error
        assert isinstance(seen[-1], RunEnded)
        assert seen[-1].status == "failed"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_stray_cancellation_in_a_branch_leaves_the_others_alone() -> None:
    g = Graph("g", input=str, output=list[str])

    @g.step
    async def split(ctx: Ctx, x: str) -> list[str]:
        return list(x)

    @g.step
    async def work(ctx: Ctx, x: str) -> str:
        if x == "b":
            raise CANCELLED
        await asyncio.sleep(0)
        return x

    g.edge(g.start, split)
    g.edge(g.join(g.map(split, work), collect(str), on_error="collect"), g.end)
    with ScriptedRuntime({}) as lm:
        assert await g.compile().run("abc", lm=lm) == ["a", "c"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_tool_that_raises_a_cancellation_itself_gives_an_error_result() -> None:
    @tool(timeout=60)
    async def hang(word: str) -> str:
        """Look a word up."""
        await cancelled_task()
        return word

    agent = react(tools=[hang], output=str)
    script = {"think": [ToolCall("", "hang", {"word": "x"}), final_answer("gave up")]}
    with ScriptedRuntime(script) as lm:
        async with agent.stream("q", lm=lm) as run:
            ended = [event async for event in run if isinstance(event, ToolEnded)]
        assert run.output == "gave up"
    assert [event.error for event in ended] == [True]
    assert "CancelledError" in ended[0].content


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_that_was_asked_for_still_is_one() -> None:
    g = Graph("g", input=str, output=str)

    @g.step(retries=3)
    async def wait(ctx: Ctx, x: str) -> Message:
        await asyncio.sleep(3600)
        return user(x)

    @g.step
    async def done(ctx: Ctx, x: Message) -> str:
        return x.text

    g.edge(g.start, wait)
    g.edge(wait, done)
    g.edge(done, g.end)
    with ScriptedRuntime({}) as lm:
        async with g.compile().stream("x", lm=lm) as run:
            seen: list[Any] = []
            async for event in run:
                seen.append(event)
                if event.path == "wait":
                    run.cancel()
        assert isinstance(seen[-1], RunEnded)
        assert seen[-1].status == "cancelled"
        task = asyncio.ensure_future(g.compile().run("x", lm=lm))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(CANCELLED):
            await task
