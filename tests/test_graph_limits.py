"""Limits: each is checked before the act, and its error carries what the run had."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, cast

import anyio
import pytest
from pydantic import BaseModel

from agentree.errors import ContextOverflow, InvalidArgument, LimitReached
from agentree.events import (
    GenerationEnded,
    GenerationStarted,
    NodeStarted,
    RunStarted,
    ToolEnded,
    ToolStarted,
)
from agentree.graph import Ctx, Graph, Limits
from agentree.graph.plan import Extend
from agentree.graph.program import Program
from agentree.messages import Message, user
from agentree.testing import ScriptedRequest, ScriptedRuntime, final_answer
from agentree.tools import ToolCall, ToolCalls, ToolResult, tool, tool_result

pytestmark = pytest.mark.anyio


@tool
async def look(word: str) -> str:
    """Look a word up; "wait" takes for ever."""
    if word == "wait":
        await anyio.sleep_forever()
    return f"found {word}"


@tool(max_calls=1)
async def once(word: str) -> str:
    """Look a word up once."""
    return f"found {word}"


@tool(max_calls=2)
async def twice(word: str) -> str:
    """Look a word up, twice at most."""
    if word == "slow":
        await anyio.sleep(0.02)
    return f"found {word}"


def agent(limits: Limits, *, parallel: int = 8) -> Program[None, str, str]:
    """ReAct spelled out, several calls a turn, `parallel` of them at a time."""
    g = Graph("agent", input=str, output=str)

    @g.llm(str, tools=[look, once, twice], parallel=True, max_tokens=400, system="Use the tools.")
    def think(ctx: Ctx, given: str | list[ToolResult]) -> Message:
        return user(given) if isinstance(given, str) else tool_result(given)

    act = g.tools(look, once, twice, parallel=parallel)
    g.edge(g.start, think)
    g.branch(think).case(ToolCalls, act).case(str, g.end)
    g.edge(act, think)
    return g.compile(limits=limits)


def calls(*words: str, name: str = "look") -> str:
    listed = ", ".join(f'{{"name": "{name}", "arguments": {{"word": "{word}"}}}}' for word in words)
    return f"[{listed}]"


@pytest.mark.parametrize(
    ("limits", "name", "made"),
    [
        (Limits(turns=2), "turns", ["a", "b"]),
        (Limits(tool_calls=2), "tool_calls", ["a", "b"]),
        (Limits(tokens=900), "tokens", ["a"]),
        (Limits(repeats=2), "repeats", ["a", "b", "c"]),
        (Limits(seconds=0.3), "seconds", ["a", "b", "c"]),
    ],
)
async def test_every_error_carries_what_the_run_had(limits: Limits, name: str, made: list[str]) -> None:
    """The run is stopped before the act: no call, turn or generation of one too many has begun."""
    script = [calls("a"), calls("b"), calls("c"), calls("c" if name == "repeats" else "wait")]
    async with ScriptedRuntime(script) as lm:
        listening = lm.bus.subscribe(lambda: None)
        with pytest.raises(LimitReached) as caught:
            await agent(limits).run("go", lm=lm)
        events = listening.take()
    error = caught.value
    begun = [e for e in events if isinstance(e, ToolStarted) and "wait" not in e.arguments]
    assert [e.arguments for e in begun] == [f'{{"word": "{word}"}}' for word in made]
    assert error.limit == name
    assert error.run == next(e.run for e in events if isinstance(e, RunStarted))
    assert error.transcript is not None
    for word in made[:-1]:
        assert f"found {word}" in error.transcript.text
    assert error.partial is not None


async def test_what_became_of_each_call_is_told_when_time_runs_out() -> None:
    script = [calls("a", "wait", "b"), final_answer("no time")]
    async with ScriptedRuntime(script) as lm:
        program = agent(Limits(seconds=0.2, on_limit="answer"), parallel=1)
        async with program.stream("go", lm=lm) as run:
            events = [event async for event in run]
        assert run.output == "no time"
    said = [e.content for e in events if isinstance(e, ToolEnded)]
    assert said == [
        "found a",
        "interrupted: its result is unknown",
        "not started: the run was cut off before",
    ]
    told = "found a\nError: interrupted: its result is unknown\nError: not run: 0.2 seconds are over<"
    assert told in run.transcript.text


async def test_a_tool_that_may_run_once() -> None:
    script = [calls("a", name="once"), calls("b", name="once"), final_answer("done")]
    async with ScriptedRuntime(script) as lm, agent(Limits()).stream("go", lm=lm) as run:
        said = [event.content async for event in run if isinstance(event, ToolEnded)]
    assert said == ["found a", "'once' may be called 1 times in a run: go on without it"]


async def test_a_turn_makes_the_calls_of_a_tool_that_it_may_make() -> None:
    """Three in one turn, two allowed: the first two are made, and the third does not count."""
    script = [calls("slow", "b", "c", name="twice"), calls("d", name="twice"), final_answer("done")]
    async with ScriptedRuntime(script) as lm, agent(Limits(tool_calls=2)).stream("go", lm=lm) as run:
        said = {event.call: event.content async for event in run if isinstance(event, ToolEnded)}
    assert run.output == "done"
    refused = "'twice' may be called 2 times in a run: go on without it"
    assert said == {"call_1": "found slow", "call_2": "found b", "call_3": refused, "call_4": refused}
    assert f"found slow\nfound b\nError: {refused}<" in run.transcript.text


@pytest.mark.parametrize("parallel", [1, 8])
@pytest.mark.parametrize("on_limit", ["raise", "answer"])
async def test_a_turn_makes_the_calls_that_the_run_may_still_make(
    on_limit: Literal["raise", "answer"], parallel: int
) -> None:
    program = agent(Limits(tool_calls=3, repeats=2, on_limit=on_limit), parallel=parallel)
    script = [calls("a"), calls("b", "a", "c", "d"), final_answer("over")]
    reason = "not run: a run may make 3 tool calls"
    error: LimitReached | None = None
    async with ScriptedRuntime(script) as lm:
        listening = lm.bus.subscribe(lambda: None)
        try:
            async with program.stream("go", lm=lm) as run:
                _ = [event async for event in run]
            assert run.output == "over"
            assert f"found b\nfound a\nfound c\nError: {reason}<" in run.transcript.text
        except LimitReached as e:
            error = e
        events = listening.take()
    assert [e.content for e in events if isinstance(e, ToolEnded)] == [
        "found a",
        "found b",
        "found c",
        reason,
    ]
    assert len([e for e in events if isinstance(e, ToolStarted)]) == 3
    assert (error is not None) == (on_limit == "raise")
    if error is not None:
        assert error.limit == "tool_calls"
        assert isinstance(error.partial, list)
        results = cast("list[ToolResult]", error.partial)
        assert [r.content for r in results] == ["found b", "found a", "found c", reason]


async def test_calls_that_were_made_stay_made_when_a_turn_is_resumed(tmp_path: Path) -> None:
    """A run over its limit is resumed with a higher one: only what was not made before is made."""
    journal = tmp_path / "runs.journal"
    script = [calls("a", "b", "c", "d"), final_answer("over")]
    async with ScriptedRuntime(script) as lm:
        listening = lm.bus.subscribe(lambda: None)
        for most, made in ((2, ["a", "b"]), (3, ["c"]), (4, ["d"])):
            program = agent(Limits(tool_calls=most))
            with suppress(LimitReached):
                if most == 2:
                    await program.run("go", lm=lm, journal=journal, run_id="a")
                else:
                    assert await program.resume("a", lm=lm, journal=journal) == "over"
            begun = [e.arguments for e in listening.take() if isinstance(e, ToolStarted)]
            assert begun == [f'{{"word": "{word}"}}' for word in made]


def spread(width: int, tokens: int) -> Program[None, int, list[str]]:
    """Branches that ask at the same time."""
    g = Graph("spread", input=int, output=list[str])

    @g.step
    async def items(ctx: Ctx, given: int) -> list[str]:
        return [f"{i:04}" for i in range(width)]

    @g.llm(str, max_tokens=8)
    def say(ctx: Ctx, item: str) -> Message:
        return user(item)

    def listed(found: Sequence[str]) -> list[str]:
        return list(found)

    g.edge(g.start, items)
    g.map(items, say)
    g.edge(g.join(say, listed), g.end)
    return g.compile(limits=Limits(tokens=tokens))


async def test_branches_share_what_is_left_before_they_spend_it() -> None:
    async with ScriptedRuntime(lambda request: "x") as lm:
        async with spread(1, 10_000).stream(0, lm=lm) as run:
            _ = [event async for event in run]
        each = run.usage.prompt_tokens
        listening = lm.bus.subscribe(lambda: None)
        with pytest.raises(LimitReached, match="the next turn has"):
            await spread(30, 10 * each).run(0, lm=lm)
        begun = [e for e in listening.take() if isinstance(e, GenerationStarted)]
        assert len(begun) < 10
        assert len(await spread(30, 60 * each).run(0, lm=lm)) == 30


async def test_what_a_step_generates_counts() -> None:
    g = Graph("steps", input=str, output=str)

    @g.step
    async def search(ctx: Ctx, text: str) -> str:
        async with ctx.lm.transcript(user(text)).fork(3) as kids:
            found = await kids.gen(str, max_tokens=8)
        return found[0].value

    @g.llm(str, max_tokens=8)
    def say(ctx: Ctx, text: str) -> Message:
        return user(text)

    g.edge(g.start, search)
    g.edge(search, say)
    g.edge(say, g.end)
    async with ScriptedRuntime(lambda request: "x") as lm:
        async with g.compile(limits=Limits(tokens=10_000)).stream("hello", lm=lm) as run:
            _ = [event async for event in run]
        spent = run.usage.prompt_tokens + run.usage.output_tokens
        with pytest.raises(LimitReached) as caught:
            await g.compile(limits=Limits(tokens=spent - 10)).run("hello", lm=lm)
        assert caught.value.limit == "tokens"
        assert caught.value.partial == "x"


async def test_an_overflow_is_told_before_the_prefill_with_all_sizes() -> None:
    g = Graph("long", input=str, output=str)

    @g.llm(str, max_tokens=30)
    def first(ctx: Ctx, text: str) -> Message:
        return user(text)

    @g.llm(str, max_tokens=50)
    def second(ctx: Ctx, text: str) -> Message:
        return user("x" * 400)

    g.edge(g.start, first)
    g.edge(first, second)
    g.edge(second, g.end)
    async with ScriptedRuntime(["fine"], kv_tokens=400) as lm:
        listening = lm.bus.subscribe(lambda: None)
        with pytest.raises(ContextOverflow) as caught:
            await g.compile().run("hello", lm=lm)
        events = listening.take()
    error = caught.value
    assert error.prompt > 400
    assert (error.max_tokens, error.limit) == (50, 400)
    assert error.needed == error.prompt + error.max_tokens
    assert error.run == next(e.run for e in events if isinstance(e, RunStarted))
    assert error.transcript is not None
    assert "fine" in error.transcript.text
    assert error.partial == "fine"
    assert len([e for e in events if isinstance(e, GenerationStarted)]) == 1


class Full(BaseModel):
    """The transcript has grown too long."""


def compacting(most: int) -> Program[None, str, str]:
    """ReAct that goes on from a summary once its transcript is longer than `most` tokens."""
    g = Graph("compacting", input=str, output=str)

    @g.llm(str, tools=[look], max_tokens=200, system="Look things up.")
    def think(ctx: Ctx, given: str | list[ToolResult]) -> Message:
        return user(given) if isinstance(given, str) else tool_result(given)

    act = g.tools(look)

    @g.step
    async def measure(ctx: Ctx, results: list[ToolResult]) -> list[ToolResult] | Full:
        after = ctx.transcript + tool_result(results)
        if len(after) <= most:
            return results
        ctx.goto(after)
        return Full()

    @g.llm(str, max_tokens=60)
    def summarize(ctx: Ctx, full: Full) -> Message:
        return user("Sum up what was asked and found.")

    g.edge(g.start, think)
    g.branch(think).case(ToolCalls, act).case(str, g.end)
    g.edge(act, measure)
    g.branch(measure).case(Full, summarize).case(list, think)
    g.edge(summarize, think, transcript="fresh")
    return g.compile(limits=Limits(turns=12))


def long_run(request: ScriptedRequest) -> object:
    if request.path.startswith("summarize"):
        return f"summary {request.path}"
    visit = int(request.path.partition("#")[2] or 1)
    return final_answer("done") if visit == 6 else ToolCall("", "look", {"word": f"w{visit}"})


async def test_a_summary_starts_a_fresh_transcript() -> None:
    async with ScriptedRuntime(long_run) as lm:
        async with compacting(10_000).stream("go", lm=lm) as run:
            _ = [event async for event in run]
        whole = len(run.transcript)
        async with compacting(whole // 2).stream("go", lm=lm) as run:
            events = [event async for event in run]
        lm.check()
    assert run.output == "done"
    visits = [e.path for e in events if isinstance(e, NodeStarted) and e.kind == "llm"]
    assert "summarize" in visits
    begins = [e for e in events if isinstance(e, GenerationEnded) and e.path.startswith("think")]
    after = begins[[e.path for e in begins].index(visits[visits.index("summarize") + 1])]
    assert "summary summarize" in run.transcript.text
    assert "found w1" not in run.transcript.text
    static = len("Look things up.")
    assert static < after.cached_tokens < after.prompt_tokens < whole // 2


def test_the_plan_says_where_a_transcript_ends() -> None:
    program = compacting(100)
    assert "(with a new transcript) think (again)" in program.explain()
    assert "release summarize" in program.explain()
    prompts = [
        op for op in program.plan.blocks["think"] if isinstance(op, Extend) and op.parts == ("prompt",)
    ]
    assert [op.onto for op in prompts] == [("", "think")]


def test_a_fresh_transcript_may_have_a_system_message_of_its_own() -> None:
    g = Graph("two", input=str, output=str)

    @g.llm(str, system="First.")
    def first(ctx: Ctx, text: str) -> Message:
        return user(text)

    @g.llm(str, system="Second.")
    def second(ctx: Ctx, text: str) -> Message:
        return user(text)

    g.edge(g.start, first)
    g.edge(first, second, transcript="fresh")
    g.edge(second, g.end)
    assert g.compile()
    with pytest.raises(InvalidArgument, match="write 'continue' or 'fresh'"):
        g.edge(first, second, transcript="new")  # pyright: ignore[reportArgumentType]


async def test_a_summary_survives_a_restart(tmp_path: Path) -> None:
    """A run that is cut off after its summary goes on from it, and comes to the same."""
    async with ScriptedRuntime(long_run) as lm:
        program = compacting(900)
        expected = await program.run("go", lm=lm, seed=3)

        def broken(request: ScriptedRequest) -> object:
            return OSError("cut off") if request.path == "think#6" else long_run(request)

    journal = tmp_path / "runs.journal"
    async with ScriptedRuntime(broken) as lm:
        listening = lm.bus.subscribe(lambda: None)
        with pytest.raises(OSError, match="cut off"):
            await program.run("go", lm=lm, seed=3, journal=journal)
        run = next(e.run for e in listening.take() if isinstance(e, RunStarted))
    async with ScriptedRuntime(long_run) as lm:
        assert await program.resume(run, lm=lm, journal=journal) == expected
