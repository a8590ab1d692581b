"""Limits: each is checked before the act, and its error carries what the run had."""

from collections.abc import Sequence

import anyio
import pytest

from agentree.errors import ContextOverflow, LimitReached
from agentree.events import GenerationStarted, RunStarted, ToolEnded, ToolStarted
from agentree.graph import Ctx, Graph, Limits
from agentree.graph.program import Program
from agentree.messages import Message, user
from agentree.testing import ScriptedRuntime, final_answer
from agentree.tools import ToolCalls, ToolResult, tool, tool_result

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


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


def agent(limits: Limits, *, parallel: int = 8) -> Program[None, str, str]:
    """ReAct spelled out, several calls a turn, `parallel` of them at a time."""
    g = Graph("agent", input=str, output=str)

    @g.llm(str, tools=[look, once], parallel=True, max_tokens=400, system="Use the tools.")
    def think(ctx: Ctx, given: str | list[ToolResult]) -> Message:
        return user(given) if isinstance(given, str) else tool_result(given)

    act = g.tools(look, once, parallel=parallel)
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
