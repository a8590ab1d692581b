"""The testing kit itself: scripts, forced tokens, replays, and the switch against real models."""

import json
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from pydantic import BaseModel

from agentree.errors import AgentreeError, ContextOverflow, RuntimeClosed
from agentree.events import to_dict
from agentree.graph import Ctx, Graph, Program, Run, react
from agentree.lm import Runtime
from agentree.messages import Message, user
from agentree.testing import (
    ReplayRuntime,
    Reply,
    ScriptedRequest,
    ScriptedRuntime,
    ScriptError,
    assert_cached,
    final_answer,
    forbid_models,
)
from agentree.testing.script import keys_of
from agentree.tools import ToolCall, ToolCalls, calculator, tool

pytestmark = pytest.mark.anyio


class City(BaseModel):
    name: str
    people: int


@tool
def look(word: str) -> str:
    """Look a word up."""
    return word


def cities() -> Program[None, str, City]:
    g = Graph("cities", input=str, output=City)

    @g.llm(str, system="Know cities.")
    def think(ctx: Ctx, x: str) -> Message:
        return user(x)

    @g.llm(City)
    def city(ctx: Ctx, x: str) -> Message:
        return user("As JSON.")

    g.edge(g.start, think)
    g.edge(think, city)
    g.edge(city, g.end)
    return g.compile()


async def finished(program: Program[Any, Any, Any], value: Any, lm: Runtime) -> Run[Any]:
    async with program.stream(value, lm=lm) as run:
        async for _ in run:
            pass
    return run


@pytest.mark.parametrize("jump_forward", [True, False])
async def test_values_texts_and_counters(jump_forward: bool) -> None:
    script = ["Bern it is.", City(name="Bern", people=5)]
    async with ScriptedRuntime(script, jump_forward=jump_forward) as lm:
        run = await finished(cities(), "Swiss?", lm)
        assert run.output == City(name="Bern", people=5)
        usage, stats = run.usage, lm.stats()
        assert usage.output_tokens == len("Bern it is.") + len('{"name": "Bern", "people": 5}')
        assert (usage.forced_tokens or 0) > 0 if jump_forward else usage.forced_tokens == 0
        assert stats.computed_tokens == usage.computed_tokens
        assert stats.free + stats.private + stats.tree == stats.pool
        assert stats.private == stats.leased == 0
        lm.check()


async def test_computed_is_what_was_never_seen() -> None:
    async with ScriptedRuntime(["Bern it is.", City(name="Bern", people=5)] * 2) as lm:
        cold = await finished(cities(), "Swiss?", lm)
        warm = await finished(cities(), "Swiss?", lm)
        assert warm.transcript.token_ids == cold.transcript.token_ids
        assert (warm.usage.computed_tokens or 0) <= 2  # full hits compute their last token again
        assert_cached(warm, at_least=0.98)
        with pytest.raises(AssertionError, match="prompt tokens were cached"):
            assert_cached(cold, at_least=0.9)


async def test_scripts_by_path_node_and_function() -> None:
    assert keys_of("solve/answer[3]#2") == ["solve/answer[3]#2", "solve/answer[3]", "answer", ""]
    seen: list[ScriptedRequest] = []

    def say(request: ScriptedRequest) -> str:
        seen.append(request)
        return "text"

    async with ScriptedRuntime({"think": say, "city": {"name": "x", "people": 1}}) as lm:
        assert (await cities().run("q", lm=lm)).name == "x"
    assert seen[0].path == "think"
    assert "Know cities." in seen[0].prompt


async def test_a_script_that_is_over_or_knows_nobody() -> None:
    async with ScriptedRuntime({"think": ["once"], "city": City(name="a", people=1)}) as lm:
        await cities().run("q", lm=lm)
        with pytest.raises(ScriptError, match="the script for 'think' has 1 answers, and 'think' asks"):
            await cities().run("q", lm=lm)
    async with ScriptedRuntime({"other": "x"}) as lm:
        with pytest.raises(ScriptError, match="no answer for 'think': it knows 'other'"):
            await cities().run("q", lm=lm)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ('{"name": "a", "people": "many"}', "no token of it is allowed"),
        ('{"name": "a"', "must follow"),
        ('{"name": "a", "people": 1} and more', "the value is complete|no token of it is allowed"),
        ("[]", "must follow"),
    ],
)
async def test_an_answer_that_the_constraint_forbids(answer: str, why: str) -> None:
    async with ScriptedRuntime({"think": "x", "city": answer}) as lm:
        with pytest.raises(ScriptError, match=f"for 'city' is not what the request allows: .*({why})"):
            await cities().run("q", lm=lm)
        lm.check()


async def test_text_in_a_turn_with_tools_is_told_how_to_script_it() -> None:
    async with ScriptedRuntime({"think": "It is 4."}) as lm:
        with pytest.raises(ScriptError, match=r"must follow; a turn with tools .* or final_answer\(value\)"):
            await react(tools=[calculator], output=str).run("q", lm=lm)


async def test_an_answer_that_is_cut_short() -> None:
    async with ScriptedRuntime(['{"name": "a", "people": ']) as lm:
        with pytest.raises(ScriptError):
            await (lm.transcript(user("x"))).gen(City)
    async with ScriptedRuntime(["much too long"]) as lm:
        made = await lm.transcript(user("x")).gen(str, max_tokens=4)
        assert (made.value, made.finish_reason) == ("much", "length")


async def test_exceptions_and_delays() -> None:
    async with ScriptedRuntime([ConnectionError("down"), Reply("late", seconds=0.01)]) as lm:
        t = lm.transcript(user("x"))
        with pytest.raises(ConnectionError, match="down"):
            await t.gen(str)
        assert (await t.gen(str)).value == "late"


async def test_a_delayed_answer_can_be_cancelled() -> None:
    async with ScriptedRuntime({"": Reply("late", seconds=1000)}) as lm:
        t = lm.transcript(user("x"))
        with anyio.move_on_after(0.02) as scope:
            await t.gen(str)
        assert scope.cancelled_caught
        lm.check()
        assert lm.stats().private == 0


async def test_closing_fails_what_is_delayed() -> None:
    lm = ScriptedRuntime({"": Reply("late", seconds=1000)})
    failed: list[BaseException] = []

    async def ask() -> None:
        try:
            await t.gen(str)
        except RuntimeClosed as e:
            failed.append(e)

    async with anyio.create_task_group() as group, lm:
        t = lm.transcript(user("x"))
        group.start_soon(ask)
        await anyio.sleep(0.02)
    assert len(failed) == 1


async def test_a_pool_that_is_too_small() -> None:
    async with ScriptedRuntime(["x"], kv_tokens=64) as lm:
        with pytest.raises(ContextOverflow):
            await lm.transcript(user("a" * 200)).gen(str, max_tokens=8)


async def test_a_small_pool_evicts_and_goes_on() -> None:
    async with ScriptedRuntime({"": "ok"}, kv_tokens=256) as lm:
        for i in range(6):
            text = f"{i}" * 60
            assert (await lm.transcript(user(text)).gen(str, max_tokens=8)).value == "ok"
            lm.check()
        assert lm.stats().evicted_tokens > 0


async def test_tool_turns() -> None:
    calls = ToolCalls((ToolCall("", "look", {"word": "a"}), ToolCall("", "look", {"word": "b"})))
    async with ScriptedRuntime([ToolCall("", "look", {"word": "hi"}), final_answer(7), calls]) as lm:
        t = lm.transcript(user("x"), tools=[look])
        first = await t.call([look], output=int)
        assert first.value == ToolCalls((ToolCall("call_1", "look", {"word": "hi"}),))
        assert (await first.transcript.call([look], output=int)).value == 7
        both = await t.call([look], output=int, parallel=True)
        assert isinstance(both.value, ToolCalls)
        assert [c.args["word"] for c in both.value.calls] == ["a", "b"]


async def test_scores_streams_and_forks() -> None:
    async with ScriptedRuntime({"": "one two"}) as lm:
        t = lm.transcript(user("x"))
        assert await t.score(["ab", ""]) == [-2.0, 0.0]
        async with t.stream(str) as stream:
            assert "".join([piece async for piece in stream]) == "one two"
        async with t.fork(3) as kids:
            assert [g.value for g in await kids.gen(Literal["one two", "x"])] == ["one two"] * 3
        assert lm.stats().leased == 0


async def test_replays_say_the_same_again(tmp_path: Path) -> None:
    trace = tmp_path / "run.jsonl"
    script = ["Bern it is.", City(name="Bern", people=5)]
    async with ScriptedRuntime(script) as lm, cities().stream("Swiss?", lm=lm) as run:
        lines = [json.dumps(to_dict(event)) async for event in run]
    trace.write_text("\n".join(["", *lines]))
    async with ReplayRuntime(trace) as lm:
        again = await finished(cities(), "Swiss?", lm)
        assert again.output == run.output
        assert again.transcript.token_ids == run.transcript.token_ids
        with pytest.raises(ScriptError, match="records 1 generations at 'think'"):
            await cities().run("Swiss?", lm=lm)
    with pytest.raises(ScriptError, match="records no generation of 'nobody'"):
        ReplayRuntime(trace, run="nobody")
    trace.write_text("{no json")
    with pytest.raises(ScriptError, match="line 1 is no JSON"):
        ReplayRuntime(trace)


async def test_real_models_can_be_forbidden() -> None:
    with forbid_models():
        with pytest.raises(AgentreeError, match="real models are forbidden here"):
            async with Runtime():
                pass
        async with ScriptedRuntime(["x"]) as lm:
            assert (await lm.transcript(user("q")).gen(str)).value == "x"
