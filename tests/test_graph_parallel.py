"""Several tool calls in one turn: from the constraint to the results, in the order of the calls."""

from collections import Counter
from typing import Any

import anyio
import pytest

from agentree.errors import GraphError, LimitReached
from agentree.events import ToolEnded, ToolStarted
from agentree.graph import Ctx, Graph, Limits, react
from agentree.graph.worked import worked_turns
from agentree.messages import Message, user
from agentree.testing import ScriptedRequest, ScriptedRuntime, ScriptError, final_answer
from agentree.tools import ToolCall, ToolCalls, ToolResult, tool, tool_result

pytestmark = pytest.mark.anyio


RAN: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def forget() -> None:
    RAN.clear()


@tool
async def look(word: str) -> str:
    """Look a word up."""
    RAN[word] += 1
    await anyio.sleep(0.02 if word == "slow" else 0)
    if word == "bad":
        raise OSError("no such page")
    return f"found {word}"


def calls(*words: str) -> str:
    listed = ", ".join(f'{{"name": "look", "arguments": {{"word": "{word}"}}}}' for word in words)
    return f"[{listed}]"


async def events(script: Any, *, limits: Limits | None = None) -> tuple[Any, list[Any]]:
    agent = react(tools=[look], output=int, parallel=True, limits=limits or Limits(repeats=2))
    async with ScriptedRuntime(script) as lm, agent.stream("go", lm=lm) as run:
        found = [event async for event in run]
        lm.check()
    return run, found


async def test_several_calls_run_side_by_side_and_answer_in_order() -> None:
    run, found = await events([calls("slow", "quick"), calls("one"), final_answer(7)])
    assert run.output == 7
    acts = [(type(e).__name__, e.call) for e in found if isinstance(e, ToolStarted | ToolEnded)]
    assert acts[:4] == [
        ("ToolStarted", "call_1"),
        ("ToolStarted", "call_2"),
        ("ToolEnded", "call_2"),
        ("ToolEnded", "call_1"),
    ]
    assert acts[4:] == [("ToolStarted", "call_3"), ("ToolEnded", "call_3")]
    assert "tool\nfound slow\nfound quick<" in run.transcript.text


async def test_a_call_that_fails_leaves_its_siblings_alone() -> None:
    run, found = await events([calls("a", "bad", "b"), final_answer(1)])
    assert [e.error for e in found if isinstance(e, ToolEnded)].count(True) == 1
    assert "found a\nError: OSError: no such page\nfound b<" in run.transcript.text


async def test_a_repeated_call_beside_a_new_one_is_answered_from_memory() -> None:
    run, _ = await events([calls("a"), calls("a", "b"), calls("bad"), calls("bad", "c"), final_answer(1)])
    assert Counter({"a": 1, "b": 1, "bad": 1, "c": 1}) == RAN
    assert "found a\nfound b<" in run.transcript.text
    assert "Error: OSError: no such page\nfound c<" in run.transcript.text


async def test_twins_of_one_turn_run_once() -> None:
    run, _ = await events([calls("a", "a", "b"), final_answer(1)])
    assert Counter({"a": 1, "b": 1}) == RAN
    assert "found a\nfound a\nfound b<" in run.transcript.text


async def test_a_turn_of_nothing_but_repeats_is_the_limit() -> None:
    with pytest.raises(LimitReached, match="'look' is called 2 times") as caught:
        await events([calls("a", "b"), calls("b", "a")])
    assert caught.value.limit == "repeats"
    assert sum(RAN.values()) == 2


async def test_of_a_turn_the_calls_that_fit_are_made() -> None:
    with pytest.raises(LimitReached, match="3 tool calls") as caught:
        await events([calls("a", "b"), calls("c", "d")], limits=Limits(tool_calls=3))
    assert caught.value.limit == "tool_calls"
    assert RAN == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize(
    "said",
    [
        '[{"name": "final_answer", "arguments": {"answer": 1}}]',
        "[]",
        calls(*"abcdefghi"),
        calls("a")[1:-1],
    ],
)
async def test_what_a_parallel_turn_can_not_be(said: str) -> None:
    with pytest.raises(ScriptError):
        await events([said])


async def test_one_call_at_a_time_without_parallel() -> None:
    async with ScriptedRuntime([calls("a", "b")]) as lm:
        with pytest.raises(ScriptError):
            await react(tools=[look], output=int).run("go", lm=lm)


async def test_a_graph_of_ones_own() -> None:
    g = Graph("own", input=str, output=str)

    @g.llm(str, tools=[look], parallel=True, system="Look things up.")
    def think(ctx: Ctx, given: str | list[ToolResult]) -> Message:
        return user(given) if isinstance(given, str) else tool_result(given)

    act = g.tools(look, parallel=1)
    g.edge(g.start, think)
    g.branch(think).case(ToolCalls, act).case(str, g.end)
    g.edge(act, think)
    script = [ToolCalls((ToolCall("", "look", {"word": "x"}), ToolCall("", "look", {"word": "y"})))]
    async with ScriptedRuntime([*script, final_answer("both")]) as lm:
        run = await g.compile(limits=Limits(turns=3)).run("go", lm=lm)
    assert run == "both"
    assert list(RAN) == ["x", "y"]


async def test_a_limit_inside_a_turn_still_ends_in_an_answer() -> None:
    def script(request: ScriptedRequest) -> object:
        return final_answer(0) if request.path.endswith("#3") else calls("a", "b")

    limits = Limits(repeats=2, on_limit="answer")
    run, _ = await events(script, limits=limits)
    assert run.output == 0
    assert sum(RAN.values()) == 2


def test_parallel_without_tools() -> None:
    g: Any = Graph("g", input=str, output=str)
    with pytest.raises(GraphError, match="'think': parallel=True is for tool calls: give it tools"):

        @g.llm(str, parallel=True)
        def think(ctx: Ctx, x: str) -> Message:
            return user(x)


def test_worked_turns_are_lists() -> None:
    said = [m.text for m in worked_turns([look], int, parallel=True) if m.role == "assistant"]
    assert [text[0] for text in said] == ["[", "{"]


async def test_what_is_told_of_calls_when_a_run_is_cancelled() -> None:
    @tool
    async def wait(word: str) -> str:
        """Wait for ever, unless it is quick."""
        await anyio.sleep(0 if word == "quick" else 1000)
        return word

    g = Graph("g", input=ToolCalls, output=list[ToolResult])
    act = g.tools(wait, parallel=1)
    g.edge(g.start, act)
    g.edge(act, g.end)
    words = ("quick", "slow", "queued")
    given = ToolCalls(tuple(ToolCall(w, "wait", {"word": w}) for w in words))
    told: list[tuple[str, str, str]] = []
    async with ScriptedRuntime([]) as lm, g.compile().stream(given, lm=lm) as run:
        async for event in run:
            if isinstance(event, ToolStarted):
                told.append(("started", event.call, ""))
                if event.call == "slow":
                    run.cancel()
            if isinstance(event, ToolEnded):
                told.append(("ended", event.call, event.content))
    assert told == [
        ("started", "quick", ""),
        ("ended", "quick", "quick"),
        ("started", "slow", ""),
        ("ended", "slow", "interrupted: its result is unknown"),
        ("ended", "queued", "not started: the run was cut off before"),
    ]
