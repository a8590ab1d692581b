"""The templates as programs: what they build, what they ask, and what goes on from where."""

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import validate
from pydantic import BaseModel, Field

from agentree.errors import ConstraintError, GraphError, InvalidArgument, LimitReached
from agentree.events import STOPPED, NodeEnded, ToolStarted
from agentree.graph import Graph, Limits, Program, best_of_n, collect, map_reduce, react, tree_of_thought
from agentree.graph.clip import clip_tokens
from agentree.graph.final import final_outline, final_turn
from agentree.graph.worked import MOST, worked_turns
from agentree.messages import system, user
from agentree.testing import ScriptedRequest, ScriptedRuntime, ScriptError, assert_cached, final_answer
from agentree.tools import Tool, ToolCall, ToolCalls, calculator, file_tools, tool, tool_call

pytestmark = pytest.mark.anyio


class Reading(BaseModel):
    city: str
    celsius: float


class Weather(Enum):
    SUN = "sun"
    RAIN = "rain"


class Trip(BaseModel):
    days: int = Field(ge=2, le=14)
    weather: Weather
    stops: list[Reading] = Field(min_length=2)
    note: str | None = None


@tool
async def search(query: str) -> str:
    """Search the encyclopedia.

    Args:
        query: What to look for.
    """
    return f"page about {query}"


@tool
def plan(trip: Trip, kind: Literal["short", "long"], email: str = "a@b.c") -> str:
    """Plan a trip."""
    return f"{trip.days} {kind}"


@tool
def convert(amount: float, to: str) -> str:
    """Convert an amount of money, such as into "EUR".

    Args:
        to: A currency, such as "USD" or "EUR".
    """
    return f"{amount} {to}"


@tool
def now() -> str:
    """The time."""
    return "noon"


def call(name: str, **args: Any) -> ToolCall:
    return ToolCall("", name, args)


# ---------------------------------------------------------------------------------------------- react

ALL: list[Tool[..., Any]] = [calculator, search, plan, convert, now]


@pytest.mark.parametrize("one", ALL, ids=lambda t: str(getattr(t, "name", t)))
@pytest.mark.parametrize("output", [str, Reading, int, Trip, list[str]], ids=str)
def test_worked_calls_are_valid_for_their_tools(one: Tool[..., Any], output: Any) -> None:
    turns = worked_turns([one], output)
    assert 4 <= len(turns) <= 4 * MOST
    form, take = final_turn(output)
    for question, made, result, final in zip(*(iter(turns),) * 4, strict=True):
        assert [m.role for m in (question, made, result, final)] == ["user", "assistant", "tool", "assistant"]
        spoken = json.loads(made.text)
        assert spoken["name"] == one.name
        validate(spoken["arguments"], dict(one.schema))
        one.bind(spoken["arguments"])
        take(form.model_validate_json(final.text))


def test_worked_calls_are_few_and_name_several_tools() -> None:
    turns = worked_turns(ALL, str)
    assert len(turns) == 4 * MOST
    assert len({json.loads(turn.text)["name"] for turn in turns[1::4]}) == MOST


def test_what_is_said_of_the_final_answer() -> None:
    assert final_outline(str) == '{"name": "final_answer", "arguments": {"answer": "..."}}'
    assert final_outline(Reading) == '{"name": "final_answer", "arguments": {"city": "...", "celsius": ...}}'


async def test_react_calls_a_tool_and_answers() -> None:
    agent = react(tools=[calculator, search], output=Reading, instructions="Answer with facts.")
    script = [
        call("search", query="Oslo"),
        call("calculator", expression="1+2"),
        final_answer(Reading(city="Oslo", celsius=3)),
    ]
    async with ScriptedRuntime(script) as lm:
        async with agent.stream("How warm is Oslo?", lm=lm) as run:
            _ = [e async for e in run]
        assert run.output == Reading(city="Oslo", celsius=3)
        text = run.transcript.text
        assert (
            text.index("Answer with facts.") < text.index("How warm is Oslo?") < text.index("page about Oslo")
        )
        assert_cached(run, at_least=0.6)


async def test_the_static_prefix_is_the_same_whatever_the_order_of_tools() -> None:
    async with ScriptedRuntime([final_answer("a"), final_answer("b")]) as lm:
        for tools in ([calculator, search], [search, calculator]):
            agent = react(tools=tools, output=str, examples=[user("hello")])
            async with agent.stream("q", lm=lm) as run:
                _ = [e async for e in run]
        assert (run.usage.computed_tokens or 0) <= 1  # a full hit: nothing, or its last token


async def test_react_takes_worked_turns() -> None:
    worked = [user("Hi"), tool_call(call("now"))]
    async with ScriptedRuntime([final_answer("x")]) as lm:
        async with react(tools=[now], output=str, examples=worked).stream("q", lm=lm) as run:
            _ = [e async for e in run]
        assert run.transcript.text.count("<|im_start|>user") == 2


async def test_react_never_runs_the_same_call_twice() -> None:
    script = {"think#3": final_answer("noon"), "think": call("now")}
    async with ScriptedRuntime(script) as lm:
        async with react(tools=[now], output=str).stream("When?", lm=lm) as run:
            events = [e async for e in run]
        assert run.output == "noon"
        assert len([e for e in events if isinstance(e, ToolStarted)]) == 1


async def test_the_users_limits_are_the_users() -> None:
    async with ScriptedRuntime(lambda request: call("search", query=request.path)) as lm:
        with pytest.raises(LimitReached):
            await react(tools=[search], output=str, limits=Limits(turns=2)).run("q", lm=lm)


@pytest.mark.parametrize(
    ("limits", "called"),
    [(Limits(turns=2, on_limit="answer"), 2), (Limits(tool_calls=1, on_limit="answer"), 1), (None, 8)],
    ids=["turns", "calls", "default"],
)
@pytest.mark.parametrize(
    ("output", "answer"), [(str, "it is late"), (Reading, Reading(city="Oslo", celsius=3)), (int, 7)], ids=str
)
async def test_at_the_limit_one_more_turn_must_be_the_answer(
    limits: Limits | None, called: int, output: Any, answer: object
) -> None:
    """The model would go on to call for ever; the last turn can't hold anything but the answer."""
    asked: list[str] = []

    def script(request: ScriptedRequest) -> object:
        asked.append(request.path)
        if len(asked) > max(called, 2):
            return final_answer(answer)
        return call("search", query=f"attempt {len(asked)}")

    given: Any = {} if limits is None else {"limits": limits}
    agent = react(tools=[search], output=output, **given)
    async with ScriptedRuntime(script) as lm:
        async with agent.stream("q", lm=lm) as run:
            events = [event async for event in run]
        assert run.output == answer
        assert type(run.output) is type(answer)
        assert len([event for event in events if isinstance(event, ToolStarted)]) == called
        (error,) = (event.error for event in events if isinstance(event, NodeEnded) and event.error)
        assert error.startswith(STOPPED), "what a limit stopped has not failed"
        assert run.transcript.text.rstrip().endswith(tool_text(answer))
        # The same turn as a call is refused by its constraint: nothing but the answer can be written.
        asked.clear()
    async with ScriptedRuntime(lambda request: call("search", query=str(request.max_tokens) * 3)) as lm:
        with pytest.raises(ScriptError, match="must follow"):
            await react(tools=[search], output=output, limits=Limits(turns=1, on_limit="answer")).run(
                "q", lm=lm
            )


def tool_text(answer: object) -> str:
    values = answer.model_dump() if isinstance(answer, BaseModel) else {"answer": answer}
    return json.dumps({"name": "final_answer", "arguments": values})


async def test_several_calls_in_one_turn_are_answered_in_one_message() -> None:
    g = react(tools=[search], output=str)
    both = ToolCalls((call("search", query="a"), call("search", query="b")))
    async with ScriptedRuntime([]) as lm:
        results = g._definition.nodes["tools"]
        assert results.kind == "tools"
        assert lm.transcript(tool_call(both)).text.count('"search"') == 2


async def test_long_results_are_cut_with_a_notice() -> None:
    @tool
    def dump(n: int) -> str:
        """Dump."""
        return "0123456789" * n

    async with ScriptedRuntime([call("dump", n=100_000), final_answer("ok")]) as lm:
        async with react(tools=[dump], output=str).stream("q", lm=lm) as run:
            _ = [e async for e in run]
        assert "cut: the whole has" in run.transcript.text
        assert len(run.transcript) < 4000


@given(st.text(max_size=300), st.integers(40, 200))
def test_clipping_keeps_head_and_tail(text: str, limit: int) -> None:
    def count(given: str) -> int:
        return len(given.encode())

    cut = clip_tokens(count, text, limit)
    assert count(cut) <= max(limit, 60)
    if count(text) <= limit:
        assert cut == text
    else:
        assert f"{count(text):,} tokens" in cut


def test_react_without_tools() -> None:
    with pytest.raises(GraphError, match="needs at least one tool"):
        react(tools=[], output=str)


def test_react_with_an_output_that_can_not_be_forced() -> None:
    class Opaque:
        pass

    with pytest.raises(ConstraintError, match="Opaque"):
        react(tools=[now], output=Opaque)


def test_react_over_files(tmp_path: Any) -> None:
    explained = react(tools=[*file_tools(tmp_path), calculator], output=str).explain()
    assert "call calculator, read_file, search_files" in explained or "search_files" in explained


# ------------------------------------------------------------------------------------------ best_of_n


async def test_best_of_n_takes_the_majority() -> None:
    script = {"attempt": ["rain", "sun", "sun"]}
    async with ScriptedRuntime(script) as lm:
        async with best_of_n(output=Weather, n=3, instructions="Look out.").stream("?", lm=lm) as run:
            _ = [e async for e in run]
        assert run.output is Weather.SUN
        assert run.transcript.text.endswith("sun")
        assert "Look out." in run.transcript.text
        prompt = len(run.transcript) - len("sun")
        # Three samples over one prompt: computed once, and the siblings share its last row.
        assert lm.stats().computed_tokens == prompt


async def test_outputs_that_are_no_classes() -> None:
    verdict: Program[None, str, Literal["yes", "no"]] = best_of_n(output=Literal["yes", "no"], n=2)
    either = react(tools=[calculator], output=Literal["yes", "no"] | int)
    notes = map_reduce(item=Literal["+", "-"], output=Literal["good", "bad"] | None)
    script = {"attempt": "yes", "think": final_answer(7), "read": "+", "combine": None}
    async with ScriptedRuntime(script) as lm:
        assert await verdict.run("?", lm=lm) == "yes"
        assert await either.run("?", lm=lm) == 7
        assert await notes.run(["a", "b"], lm=lm) is None


async def test_best_of_n_takes_what_the_user_picks() -> None:
    script = {"attempt": [Reading(city=c, celsius=t) for c, t in (("A", 1), ("B", 9), ("C", 5))]}
    warmest = best_of_n(output=Reading, n=3, pick=lambda rs: max(rs, key=lambda r: r.celsius))
    async with ScriptedRuntime(script) as lm:
        async with warmest.stream("?", lm=lm) as run:
            _ = [e async for e in run]
        assert run.output.city == "B"
        assert '"B"' in run.transcript.text


# ----------------------------------------------------------------------------------------- map_reduce


async def test_map_reduce_reads_each_and_combines() -> None:
    script: Mapping[str, Any] = {f"read[{i}]": Reading(city=f"c{i}", celsius=i) for i in range(3)}
    async with ScriptedRuntime({**script, "combine": "all"}) as lm:
        program = map_reduce(item=Reading, output=str, instructions="Read.")
        async with program.stream(["a", "b", "c"], lm=lm) as run:
            _ = [e async for e in run]
        assert run.output == "all"
        assert [f'"c{i}"' in run.transcript.text for i in range(3)] == [True] * 3
        assert run.transcript.text.count("<|im_start|>user") == 1
        assert await program.run([], lm=lm) == "all"
        with pytest.raises(GraphError, match="a list of texts, not one text"):
            await program.run("one", lm=lm)


# ------------------------------------------------------------------------------------ tree_of_thought


class Move(BaseModel):
    n: int


def size(move: Move) -> float:
    return move.n


def moves(values: Sequence[int]) -> Any:
    queue = iter(values)

    def script(request: ScriptedRequest) -> object:
        return Move(n=next(queue))

    return script


async def test_bfs_keeps_the_best_and_goes_on_from_their_transcripts() -> None:
    program = tree_of_thought(thought=Move, value=size, breadth=3, width=2, depth=2, instructions="Go.")
    async with ScriptedRuntime(moves([1, 5, 3, 10, 11, 12, 20, 21, 22])) as lm:
        async with program.stream("task", lm=lm) as run:
            _ = [e async for e in run]
        assert run.output == [Move(n=3), Move(n=22)]
        text = run.transcript.text
        assert text.index("Go.") < text.index("task") < text.index('{"n": 3}') < text.index('{"n": 22}')
        by_level = [e.computed_tokens for e in run._shared.record.generations]
        assert by_level[0] >= len(lm.transcript(system("Go."), user("task")))
        assert sum(by_level[i] for i in (1, 2, 4, 5, 7, 8)) <= 6  # siblings share the whole prompt
        assert lm.stats().leased == 0
        lm.check()


async def test_equal_thoughts_are_kept_once() -> None:
    program = tree_of_thought(thought=Move, value=size, breadth=3, width=2, depth=2)
    async with ScriptedRuntime(moves([5, 5, 1, 7, 7, 7, 9, 1, 1])) as lm:
        assert await program.run("task", lm=lm) == [Move(n=1), Move(n=9)]


async def test_dfs_turns_back_where_nothing_is_worth_going_on() -> None:
    program = tree_of_thought(
        thought=Move, value=size, breadth=2, width=2, depth=2, search="dfs", instructions="Go."
    )
    async with ScriptedRuntime(moves([5, 3, 0, 0, 4, 1])) as lm:
        assert await program.run("task", lm=lm) == [Move(n=3), Move(n=4)]
    async with ScriptedRuntime(moves([0, 0])) as lm:
        assert await program.run("task", lm=lm) == []


Judgement: Any = Literal["sure", "no"]


async def test_the_model_judges() -> None:
    queue = iter([1, 2, 3, 4])

    def script(request: ScriptedRequest) -> object:
        if "How good" not in request.prompt:
            return Move(n=next(queue))
        return "sure" if '{"n": 2}' in request.prompt or '{"n": 3}' in request.prompt else "no"

    program = tree_of_thought(thought=Move, value=Judgement, breadth=2, width=1, depth=2)
    async with ScriptedRuntime(script) as lm:
        assert await program.run("task", lm=lm) == [Move(n=2), Move(n=3)]


def test_tree_of_thought_refuses_what_has_no_order() -> None:
    with pytest.raises(GraphError, match="whose first option is the best"):
        tree_of_thought(thought=Move, value=Reading)
    with pytest.raises(InvalidArgument, match="breadth=0"):
        tree_of_thought(thought=Move, value=float, breadth=0)


def test_programs_of_templates_have_the_names_that_are_given() -> None:
    made: dict[str, Any] = {
        "react": partial(react, tools=[search], output=str),
        "tree_of_thought": partial(tree_of_thought, thought=str, value=len),
        "best_of_n": partial(best_of_n, output=str),
        "map_reduce": partial(map_reduce, item=str, output=str),
    }
    for template, make in made.items():
        assert make().name == template
        assert make(name="buyer").name == "buyer"
    g: Any = Graph("both", input=str, output=list)
    buyer, seller = (g.call(made["react"](name=name)) for name in ("buyer", "seller"))
    g.fork(g.start, buyer, seller)
    g.edge(g.join([buyer, seller], collect(str)), g.end)
    assert "buyer  [call]" in g.compile().explain() and "seller  [call]" in g.compile().explain()
