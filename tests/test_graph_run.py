"""Programs run: values, transcripts, events, failures and cancellation, on asyncio and on trio."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, field_validator

from agentree.errors import AgentreeError, GraphError, InvalidValue, LimitReached, RuntimeClosed
from agentree.events import (
    Event,
    GenerationEnded,
    NodeEnded,
    NodeStarted,
    RunEnded,
    RunStarted,
    TextGenerated,
    ToolEnded,
    ToolStarted,
)
from agentree.graph import Ctx, Graph, Limits, Program, Run
from agentree.messages import Message, user
from agentree.testing import Reply, ScriptedRequest, ScriptedRuntime, ScriptError, assert_cached, final_answer
from agentree.tools import ToolCall, ToolCalls, ToolResult, tool, tool_result

pytestmark = pytest.mark.anyio


class Answer(BaseModel):
    text: str


@tool(pure=True)
def double(x: int) -> int:
    """Double an integer."""
    return 2 * x


def echo(system: str | None = None) -> Program[None, str, str]:
    """One llm node."""
    g = Graph("echo", input=str, output=str)

    @g.llm(str, max_tokens=64, system=system)
    def say(ctx: Ctx, x: str) -> Message:
        return user(x)

    g.edge(g.start, say)
    g.edge(say, g.end)
    return g.compile()


def agent(limits: Limits | None = None, tools: Any = (double,)) -> Program[None, str, Answer]:
    """ReAct spelled out."""
    g = Graph("agent", input=str, output=Answer)

    @g.llm(Answer, tools=list(tools), max_tokens=128, system="Use the tools.")
    def think(ctx: Ctx, message: Any) -> Message:
        return message if isinstance(message, Message) else user(message)

    act = g.tools(*tools)

    @g.step
    async def observe(ctx: Ctx, results: list[ToolResult]) -> Message:
        return tool_result(results)

    g.edge(g.start, think)
    g.branch(think).case(ToolCalls, act).case(Answer, g.end)
    g.edge(act, observe)
    g.edge(observe, think)
    return g.compile(limits=limits or Limits(turns=6))


def step_program(*steps: Any, limits: Limits | None = None) -> Program[None, Any, Any]:
    g: Any = Graph("steps", input=object, output=object)
    before = g.start
    for fn in steps:
        node = g.step(fn)
        g.edge(before, node)
        before = node
    g.edge(before, g.end)
    return g.compile(limits=limits)


def call(name: str, **args: Any) -> ToolCall:
    return ToolCall("", name, args)


async def events_of(run: Run[Any]) -> list[Event]:
    return [event async for event in run]


async def test_a_value_flows_and_the_transcript_with_it() -> None:
    async with ScriptedRuntime(["hello"]) as lm:
        assert await echo(system="Be brief.").run("hi", lm=lm) == "hello"
        with pytest.raises(ScriptError, match="has 1 answers, and 'say' asks for one more"):
            await echo().run("hi", lm=lm)


async def test_transcript_of_a_run() -> None:
    async with ScriptedRuntime(["hello"]) as lm:
        async with echo(system="Be brief.").stream("hi", lm=lm) as run:
            await events_of(run)
        assert run.output == "hello"
        assert "Be brief." in run.transcript.text
        assert run.transcript.text.rstrip().endswith("hello")
        assert run.usage.prompt_tokens == run.usage.computed_tokens == len(run.transcript) - len(b"hello")


async def test_a_run_goes_on_from_a_transcript() -> None:
    async with ScriptedRuntime(["one", "two"]) as lm:
        program = echo(system="Be brief.")
        async with program.stream("first", lm=lm) as run:
            await events_of(run)
        async with program.stream("second", lm=lm, transcript=run.transcript) as again:
            await events_of(again)
        text = again.transcript.text
        assert text.count("Be brief.") == 1
        assert text.index("first") < text.index("one") < text.index("second") < text.index("two")
        assert again.transcript.token_ids[: len(run.transcript)] == run.transcript.token_ids


async def test_one_program_runs_many_times_at_once() -> None:
    program = agent()

    def script(request: ScriptedRequest) -> object:
        return final_answer(Answer(text=request.prompt.split("user\n")[1].split("<")[0]))

    async with ScriptedRuntime(script) as lm:
        got: dict[int, str] = {}

        async def one(i: int) -> None:
            got[i] = (await program.run(f"q{i}", lm=lm)).text

        async with anyio.create_task_group() as group:
            for i in range(8):
                group.start_soon(one, i)
        assert got == {i: f"q{i}" for i in range(8)}
        assert lm.stats().leased == 0


async def test_tool_turns_and_their_events() -> None:
    script = [call("double", x=4), final_answer(Answer(text="8"))]
    async with ScriptedRuntime(script) as lm:
        async with agent().stream("twice 4?", lm=lm) as run:
            events = await events_of(run)
        assert run.output == Answer(text="8")
        ours = [e for e in events if not isinstance(e, TextGenerated | GenerationEnded)]
        names = [type(e).__name__ + ":" + e.path for e in ours if "Generation" not in type(e).__name__]
        assert names == [
            "RunStarted:",
            "NodeStarted:think",
            "NodeEnded:think",
            "NodeStarted:tools",
            "ToolStarted:tools",
            "ToolEnded:tools",
            "NodeEnded:tools",
            "NodeStarted:observe",
            "NodeEnded:observe",
            "NodeStarted:think#2",
            "NodeEnded:think#2",
            "RunEnded:",
        ]
        assert [e.seq for e in events] == sorted({e.seq for e in events})
        assert {e.run for e in events} == {run.id}
        ended = events[-1]
        assert isinstance(ended, RunEnded)
        assert ended.status == "done"
        assert_cached(run, at_least=0.4)


async def test_tokens_are_told_once_and_with_their_path() -> None:
    async with ScriptedRuntime(["one two three"]) as lm:
        async with echo().stream("x", lm=lm) as run:
            texts = [e for e in await events_of(run) if isinstance(e, TextGenerated)]
        assert "".join(e.text for e in texts) == "one two three"
        assert {e.path for e in texts} == {"say"}


async def test_usage_and_explain_count_what_steps_generate() -> None:
    async def ask(ctx: Ctx, x: object) -> str:
        return (await (ctx.transcript + user("q")).gen(str)).value

    async with ScriptedRuntime(["abc"]) as lm:
        async with step_program(ask).stream(None, lm=lm) as run:
            await events_of(run)
        assert run.output == "abc"
        assert run.usage.output_tokens == 3
        assert "ask: prompt" in run.explain()
        with pytest.raises(AgentreeError, match="no transcript"):
            _ = run.transcript


async def test_goto_decides_where_successors_go_on() -> None:
    g = Graph("search", input=str, output=str)

    @g.step
    async def search(ctx: Ctx, x: str) -> str:
        async with ctx.lm.fork([ctx.lm.transcript(user(x))], each=3) as kids:
            tries = await kids.gen(str, temperature=1.0)
            ctx.goto(kids.keep(tries[1:2])[0])
        return tries[1].value

    @g.llm(str)
    def finish(ctx: Ctx, x: str) -> Message:
        return user("Finish.")

    g.edge(g.start, search)
    g.edge(search, finish)
    g.edge(finish, g.end)
    async with ScriptedRuntime({"search": ["a", "b", "c"], "finish": "done"}) as lm:
        async with g.compile().stream("start", lm=lm) as run:
            await events_of(run)
        assert run.output == "done"
        text = run.transcript.text
        assert text.index("start") < text.index("b<") < text.index("Finish.") < text.index("done")
        assert "a<" not in text
        assert lm.stats().leased == 0


async def test_sampling_is_a_function_of_seed_and_path() -> None:
    seeds: list[int] = []

    async def draw(ctx: Ctx, x: object) -> None:
        one = await (ctx.transcript + user("q")).gen(str, temperature=1.0)
        two = await (ctx.transcript + user("q")).gen(str, temperature=1.0)
        seeds.extend([one.seed, two.seed])

    async with ScriptedRuntime({"": "x"}) as lm:
        await step_program(draw).run(None, lm=lm, seed=1)
        await step_program(draw).run(None, lm=lm, seed=1)
        await step_program(draw).run(None, lm=lm, seed=2)
    assert seeds[0] != seeds[1]
    assert seeds[:2] == seeds[2:4]
    assert not set(seeds[4:]) & set(seeds[:2])


# --------------------------------------------------------------------------------------------- state


@dataclass
class Notes:
    found: list[str] = field(default_factory=list[str])


def noting() -> Program[Notes, str, int]:
    g = Graph("noting", state=Notes, input=str, output=int)

    @g.step
    async def note(ctx: Ctx[Notes], x: str) -> int:
        ctx.state.found.append(x)
        return len(ctx.state.found)

    @g.step
    async def swap(ctx: Ctx[Notes], n: int) -> int:
        ctx.state = Notes([*ctx.state.found, "swapped"])
        return n

    @g.step
    async def count(ctx: Ctx[Notes], n: int) -> int:
        return len(ctx.state.found)

    g.edge(g.start, note)
    g.edge(note, swap)
    g.edge(swap, count)
    g.edge(count, g.end)
    return g.compile()


async def test_state_is_fresh_for_each_run_or_the_callers_own() -> None:
    async with ScriptedRuntime([]) as lm:
        assert await noting().run("a", lm=lm) == 2
        assert await noting().run("a", lm=lm) == 2
        mine = Notes(["old"])
        assert await noting().run("new", lm=lm, state=mine) == 3
        assert mine.found == ["old", "new"]
        with pytest.raises(GraphError, match="has state Notes, not str"):
            await noting().run("a", lm=lm, state="wrong")  # pyright: ignore[reportArgumentType]


async def test_a_state_that_needs_arguments_must_be_given() -> None:
    class Needs:
        def __init__(self, x: int) -> None:
            self.x = x

    g = Graph("g", state=Needs, input=int, output=int)

    @g.step
    async def get(ctx: Ctx[Needs], x: int) -> int:
        return ctx.state.x

    g.edge(g.start, get)
    g.edge(get, g.end)
    async with ScriptedRuntime([]) as lm:
        assert await g.compile().run(1, lm=lm, state=Needs(5)) == 5
        with pytest.raises(GraphError, match="pass state="):
            await g.compile().run(1, lm=lm)


# ------------------------------------------------------------------------------------------ failures


async def test_a_steps_exception_is_raised_as_it_is() -> None:
    error = KeyError("mine")

    async def fail(ctx: Ctx, x: object) -> None:
        raise error

    async with ScriptedRuntime([]) as lm:
        with pytest.raises(KeyError) as caught:
            await step_program(fail).run(1, lm=lm)
        assert caught.value is error
        with pytest.raises(KeyError) as caught:
            async with step_program(fail).stream(1, lm=lm) as run:
                events = await events_of(run)
                assert isinstance(events[-1], RunEnded)
                assert events[-1].status == "failed"
                assert "KeyError" in events[-1].error
                assert any(isinstance(e, NodeEnded) and "KeyError" in e.error for e in events)
        assert caught.value is error


async def test_a_failed_run_is_reported_even_if_nobody_reads() -> None:
    async def fail(ctx: Ctx, x: object) -> None:
        raise ValueError("x")

    async with ScriptedRuntime([]) as lm:
        with pytest.raises(ValueError, match="x"):
            async with step_program(fail).stream(1, lm=lm):
                await anyio.sleep(0.05)


async def test_an_exception_in_the_readers_block_comes_through() -> None:
    async def forever(ctx: Ctx, x: object) -> None:
        await anyio.sleep_forever()

    async with ScriptedRuntime([]) as lm:
        with pytest.raises(ZeroDivisionError):
            async with step_program(forever).stream(1, lm=lm):
                raise ZeroDivisionError


async def test_retries_count_attempts_and_raise_the_last_error() -> None:
    seen: list[int] = []
    g = Graph("g", input=int, output=int)

    @g.step(retries=2)
    async def flaky(ctx: Ctx, good: int) -> int:
        seen.append(ctx.attempt)
        if ctx.attempt < good:
            raise ValueError(f"attempt {ctx.attempt}")
        return ctx.attempt

    g.edge(g.start, flaky)
    g.edge(flaky, g.end)
    program = g.compile()
    async with ScriptedRuntime([]) as lm:
        assert await program.run(3, lm=lm) == 3
        assert seen == [1, 2, 3]
        with pytest.raises(ValueError, match="attempt 3"):
            await program.run(4, lm=lm)


async def test_a_step_that_takes_too_long() -> None:
    g = Graph("g", input=int, output=int)

    @g.step(timeout=0.01)
    async def slow(ctx: Ctx, x: int) -> int:
        await anyio.sleep(10)
        return x

    g.edge(g.start, slow)
    g.edge(slow, g.end)
    async with ScriptedRuntime([]) as lm:
        with pytest.raises(TimeoutError, match=r"'slow' took longer than 0\.01 s"):
            await g.compile().run(1, lm=lm)


async def test_wrong_returns_are_named() -> None:
    def plain(ctx: Ctx, x: object) -> Any:
        return 1

    g: Any = Graph("g", input=str, output=str)

    @g.llm(str)
    def prompt(ctx: Ctx, x: str) -> str:
        return x

    g.edge(g.start, prompt)
    g.edge(prompt, g.end)
    async with ScriptedRuntime(["x"]) as lm:
        with pytest.raises(GraphError, match="'plain' returned int, nothing to await"):
            await step_program(plain).run(1, lm=lm)
        with pytest.raises(GraphError, match="'prompt' returned str: its function must return a Message"):
            await g.compile().run("x", lm=lm)


async def test_a_value_that_no_case_takes() -> None:
    g: Any = Graph("g", input=object, output=object)

    @g.step
    async def anything(ctx: Ctx, x: Any) -> Any:
        return x

    g.edge(g.start, anything)
    g.branch(anything).case(int, g.end)
    program = g.compile()
    async with ScriptedRuntime([]) as lm:
        assert await program.run(1, lm=lm) == 1
        with pytest.raises(GraphError, match=r"no case for str a \(there are: int\)"):
            await program.run("a", lm=lm)


async def test_a_value_that_its_type_refuses() -> None:
    class Even(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def even(cls, n: int) -> int:
            if n % 2:
                raise ValueError("odd")
            return n

    g = Graph("g", input=str, output=Even)

    @g.llm(Even)
    def ask(ctx: Ctx, x: str) -> Message:
        return user(x)

    g.edge(g.start, ask)
    g.edge(ask, g.end)
    async with ScriptedRuntime(['{"n": 3}']) as lm:
        with pytest.raises(InvalidValue) as caught:
            await g.compile().run("x", lm=lm)
        assert caught.value.text == '{"n": 3}'
        assert caught.value.transcript.text.endswith('{"n": 3}')


async def test_a_closed_runtime() -> None:
    async with ScriptedRuntime(["x"]) as lm:
        pass
    with pytest.raises(RuntimeClosed):
        await echo().run("x", lm=lm)


# ---------------------------------------------------------------------------------------- cancelling


async def slow_step(ctx: Ctx, x: object) -> None:
    await anyio.sleep_forever()


async def test_cancel_ends_the_stream_and_there_is_no_output() -> None:
    async with ScriptedRuntime([]) as lm:
        async with step_program(slow_step).stream(1, lm=lm) as run:
            events: list[Event] = []
            async for event in run:
                events.append(event)
                if isinstance(event, NodeStarted):
                    run.cancel()
        assert isinstance(events[-1], RunEnded)
        assert events[-1].status == "cancelled"
        assert [e.error for e in events if isinstance(e, NodeEnded)] == ["cancelled"]
        with pytest.raises(AgentreeError, match="was cancelled"):
            _ = run.output


async def test_leaving_early_cancels_and_everything_can_still_be_read() -> None:
    script = [call("double", x=4), Reply(final_answer(Answer(text="8")), 1000)]
    async with ScriptedRuntime(script) as lm:
        async with agent().stream("twice 4?", lm=lm) as run:
            async for event in run:
                if isinstance(event, NodeStarted) and event.path == "think#2":
                    break
        assert run.usage.prompt_tokens > 0
        assert "double" in run.transcript.text
        assert "think" in run.explain()
        rest = await events_of(run)
        assert isinstance(rest[-1], RunEnded)
        assert rest[-1].status == "cancelled"
        assert await events_of(run) == []
        lm.check()
        assert lm.stats().leased == lm.stats().private == 0


async def test_output_before_the_end_is_refused() -> None:
    async with ScriptedRuntime([]) as lm, step_program(slow_step).stream(1, lm=lm) as run:
        with pytest.raises(AgentreeError, match="still going on"):
            _ = run.output


async def test_cancellation_from_outside_is_told_apart() -> None:
    async with ScriptedRuntime([]) as lm, lm.events() as stream:
        with anyio.move_on_after(0.05) as scope:
            await step_program(slow_step).run(1, lm=lm)
        assert scope.cancelled_caught
        seen: list[Event] = []
        async for event in stream:
            seen.append(event)
            if isinstance(event, RunEnded):
                break
        assert isinstance(seen[0], RunStarted)
        assert isinstance(seen[-1], RunEnded)
        assert seen[-1].status == "cancelled"


async def test_a_tool_that_is_cancelled_is_told_as_interrupted() -> None:
    @tool
    async def hang(x: int) -> int:
        """Hang."""
        await anyio.sleep_forever()
        return x

    async with ScriptedRuntime([call("hang", x=1)]) as lm:
        async with agent(tools=[hang]).stream("go", lm=lm) as run:
            events: list[Event] = []
            async for event in run:
                events.append(event)
                if isinstance(event, ToolStarted):
                    run.cancel()
        (ended,) = [e for e in events if isinstance(e, ToolEnded)]
        assert ended.error
        assert "interrupted" in ended.content


async def test_tool_started_comes_before_a_slow_tool_ends() -> None:
    release = anyio.Event()

    @tool
    async def wait(x: int) -> int:
        """Wait."""
        await release.wait()
        return x

    async with ScriptedRuntime([call("wait", x=1), final_answer(Answer(text="1"))]) as lm:
        async with agent(tools=[wait]).stream("go", lm=lm) as run:
            async for event in run:
                if isinstance(event, ToolStarted):
                    release.set()
        assert run.output.text == "1"


async def test_own_events_travel_in_the_stream() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Found(Event):
        what: str

    async def emit(ctx: Ctx, x: object) -> str:
        await ctx.emit(Found(what="gold"))
        return "ok"

    async with ScriptedRuntime([]) as lm:
        async with step_program(emit).stream(1, lm=lm) as run:
            (found,) = [e for e in await events_of(run) if isinstance(e, Found)]
        assert (found.what, found.path, found.run) == ("gold", "emit", run.id)
        assert changed(found, seq=0).seq == 0


# --------------------------------------------------------------------------------------------- tools


async def test_calls_of_one_turn_run_together_and_answer_in_order() -> None:
    both: anyio.Event = anyio.Event()
    started: list[str] = []

    @tool
    async def meet(name: str) -> str:
        """Meet the other."""
        started.append(name)
        if len(started) == 2:
            both.set()
        await both.wait()
        if name == "a":
            await anyio.sleep(0.02)
        return f"met {name}"

    g = Graph("g", input=ToolCalls, output=list[ToolResult])
    act = g.tools(meet)
    g.edge(g.start, act)
    g.edge(act, g.end)
    calls = ToolCalls((ToolCall("1", "meet", {"name": "a"}), ToolCall("2", "meet", {"name": "b"})))
    async with ScriptedRuntime([]) as lm:
        results = await g.compile().run(calls, lm=lm)
    assert [r.content for r in results] == ["met a", "met b"]


async def test_one_failing_call_leaves_its_siblings_alone() -> None:
    @tool
    def risky(x: int) -> int:
        """Fail on 1."""
        if x == 1:
            raise OSError("disk full")
        return x

    g = Graph("g", input=ToolCalls, output=list[ToolResult])
    act = g.tools(risky)
    g.edge(g.start, act)
    g.edge(act, g.end)
    calls = ToolCalls(tuple(ToolCall(str(i), "risky", {"x": i}) for i in range(3)))
    unknown = ToolCalls((ToolCall("1", "nothing", {}), ToolCall("2", "risky", {"x": "no"})))
    async with ScriptedRuntime([]) as lm:
        results = await g.compile().run(calls, lm=lm)
        assert [(r.content, r.error) for r in results] == [
            ("0", False),
            ("OSError: disk full", True),
            ("2", False),
        ]
        assert "call" not in results[1].content.replace("disk full", "")
        missing, wrong = await g.compile().run(unknown, lm=lm)
        assert missing.error
        assert "there is no tool 'nothing'" in missing.content
        assert wrong.error
        assert "wrong arguments" in wrong.content


async def test_a_tool_may_be_called_so_many_times() -> None:
    @tool(max_calls=1)
    def once(x: int) -> int:
        """Once."""
        return x

    script = [call("once", x=1), call("once", x=2), final_answer(Answer(text="done"))]
    async with ScriptedRuntime(script) as lm:
        async with agent(tools=[once]).stream("go", lm=lm) as run:
            ended = [e for e in await events_of(run) if isinstance(e, ToolEnded)]
        assert [e.error for e in ended] == [False, True]
        assert "may be called 1 times" in ended[1].content


# -------------------------------------------------------------------------------------------- run_sync


def test_run_sync_works_twice() -> None:
    program = echo()
    with ScriptedRuntime(["a", "b"]) as lm:
        assert program.run_sync("x", lm=lm) == "a"
        assert program.run_sync("x", lm=lm) == "b"


async def test_run_sync_inside_a_loop_says_what_to_write() -> None:
    async with ScriptedRuntime(["a"]) as lm:
        with pytest.raises(AgentreeError, match=r"use 'await program.run\(...\)'"):
            echo().run_sync("x", lm=lm)


def test_run_sync_after_a_closed_loop() -> None:
    asyncio.run(asyncio.sleep(0))
    with ScriptedRuntime(["a"]) as lm:
        assert echo().run_sync("x", lm=lm) == "a"


async def test_an_iterator_is_not_left_open() -> None:
    async with ScriptedRuntime(["a"]) as lm, echo().stream("x", lm=lm) as run:
        iterator: AsyncIterator[Event] = aiter(run)
        assert isinstance(await anext(iterator), RunStarted)


# --------------------------------------------------------------------------------------------- limits


def endless(x: int = 0) -> Any:
    """A script that never stops calling, with new arguments each time."""
    count = iter(range(1000))

    def script(request: ScriptedRequest) -> ToolCall:
        return call("double", x=next(count) if x == 0 else x)

    return script


async def test_turns_run_out() -> None:
    async with ScriptedRuntime(endless()) as lm:
        with pytest.raises(LimitReached) as caught:
            await agent(Limits(turns=3)).run("go", lm=lm)
        error = caught.value
        assert error.limit == "turns"
        assert "3 turns are used up" in str(error)
        assert error.transcript is not None
        assert error.transcript.text.count('"double"') >= 3
        assert isinstance(error.partial, Message)


async def test_an_answer_in_the_last_turn_is_taken() -> None:
    async with ScriptedRuntime([call("double", x=1), final_answer(Answer(text="2"))]) as lm:
        assert await agent(Limits(turns=2)).run("go", lm=lm) == Answer(text="2")


async def test_answer_on_limit_is_forced_to_the_output_type() -> None:
    script = {"think#5": final_answer(Answer(text="gave up")), "think": endless()}
    async with ScriptedRuntime(script) as lm:
        async with agent(Limits(turns=3, on_limit="answer")).stream("go", lm=lm) as run:
            events = await events_of(run)
        assert run.output == Answer(text="gave up")
        last = [e for e in events if isinstance(e, NodeStarted)][-1]
        assert (last.path, last.kind) == ("think#5", "last turn")
        assert "gave up" in run.transcript.text


async def test_identical_calls_are_stopped() -> None:
    async with ScriptedRuntime(endless(7)) as lm:
        with pytest.raises(
            LimitReached, match="'double' is called 3 times with the same arguments"
        ) as caught:
            await agent(Limits(turns=20)).run("go", lm=lm)
        assert caught.value.limit == "repeats"


async def test_a_repeated_call_is_answered_with_what_is_known() -> None:
    script = {"think#3": final_answer(Answer(text="14")), "think": endless(7)}
    async with ScriptedRuntime(script) as lm:
        async with agent(Limits(repeats=2, on_limit="answer")).stream("go", lm=lm) as run:
            events = await events_of(run)
        assert run.output == Answer(text="14")
        assert len([e for e in events if isinstance(e, ToolStarted)]) == 1
        assert run.transcript.text.count("\n14<") == 2


async def test_tool_calls_run_out_before_they_are_made() -> None:
    async with ScriptedRuntime(endless()) as lm:
        with pytest.raises(LimitReached) as caught:
            async with agent(Limits(tool_calls=2)).stream("go", lm=lm) as run:
                events = await events_of(run)
                assert len([e for e in events if isinstance(e, ToolStarted)]) == 2
        assert caught.value.limit == "tool_calls"


async def test_tokens_run_out_before_the_next_turn() -> None:
    async with ScriptedRuntime(endless()) as lm:
        spent = 0
        with pytest.raises(LimitReached) as caught:
            async with agent(Limits(tokens=2000)).stream("go", lm=lm) as run:
                await events_of(run)
                spent = run.usage.prompt_tokens + run.usage.output_tokens
        assert caught.value.limit == "tokens"
        assert 1000 < spent < 2000 + 128


async def test_time_runs_out() -> None:
    program = step_program(slow_step, limits=Limits(seconds=0.02))
    async with ScriptedRuntime([]) as lm:
        with pytest.raises(LimitReached, match=r"0\.02 seconds are over"):
            await program.run(1, lm=lm)


async def test_time_runs_out_during_a_tool_and_the_model_answers() -> None:
    @tool
    async def hang(x: int) -> int:
        """Hang."""
        await anyio.sleep_forever()
        return x

    script = [call("hang", x=1), final_answer(Answer(text="no time"))]
    async with ScriptedRuntime(script) as lm:
        program = agent(Limits(seconds=0.1, on_limit="answer"), tools=[hang])
        async with program.stream("go", lm=lm) as run:
            await events_of(run)
        assert run.output == Answer(text="no time")
        assert "Error: interrupted: its result is unknown" in run.transcript.text


async def test_max_visits_bounds_an_edge() -> None:
    g = Graph("g", input=int, output=int)

    @g.step
    async def a(ctx: Ctx, x: int) -> int:
        return x + 1

    @g.step
    async def b(ctx: Ctx, x: int) -> int:
        return x

    g.edge(g.start, a)
    g.edge(a, b, max_visits=3)
    g.branch(b).case(int, g.end, where=lambda x: x >= 3).otherwise(a)
    program = g.compile()
    async with ScriptedRuntime([]) as lm:
        assert await program.run(0, lm=lm) == 3
        with pytest.raises(LimitReached, match="the edge 'a' -> 'b' was passed 3 times") as caught:
            await program.run(-1, lm=lm)
        assert caught.value.partial == 3
