"""Mistakes of a newcomer: each error names the node that is wrong, and what to write instead."""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel

from agentree.errors import AgentreeError, GraphError, InvalidArgument
from agentree.graph import Ctx, Graph, Limits, best, best_of_n, collect
from agentree.messages import Message, user
from agentree.testing import ScriptedRuntime
from agentree.tools import ToolCalls, tool


class Note(BaseModel):
    text: str


class Report(BaseModel):
    text: str


@dataclass
class Notes:
    found: list[str] = field(default_factory=list[str])


@tool
def look(word: str) -> str:
    """Look a word up."""
    return word


def research(**options: Any) -> tuple[Any, Any, Any, Any]:
    """A graph for three branches: its nodes, not wired yet."""
    g: Any = Graph("research", input=str, output=Report, **options)

    @g.step
    async def questions(ctx: Ctx, topic: str) -> list[str]:
        return [f"{topic}: {what}?" for what in ("who", "when", "why")]

    @g.llm(Note)
    def answer(ctx: Ctx, question: str) -> Message:
        return user(question)

    @g.llm(Report)
    def write(ctx: Ctx, notes: list[Note]) -> Message:
        return user(f"{len(notes)} notes")

    return g, questions, answer, write


def run(g: Any, **options: Any) -> None:
    script = {"answer": Note(text="x"), "write": Report(text="y"), "": "free text"}
    with ScriptedRuntime(script) as lm:
        g.compile(**options).run_sync("tea", lm=lm)


def forgot_the_join() -> None:
    g, questions, answer, write = research()
    g.edge(g.start, questions)
    g.map(questions, answer)
    g.edge(answer, write)
    g.edge(write, g.end)
    run(g)


def arms(output: Any = Report) -> tuple[Any, Any, Any, Any]:
    """A graph that forks into two nodes, which nothing joins yet."""
    g: Any = Graph("arms", input=str, output=output)

    @g.llm(Note)
    def one(ctx: Ctx, x: str) -> Message:
        return user(x)

    @g.llm(Note)
    def two(ctx: Ctx, x: str) -> Message:
        return user(x)

    @g.llm(Report)
    def write(ctx: Ctx, notes: list[Note]) -> Message:
        return user(f"{len(notes)} notes")

    g.fork(g.start, one, two)
    return g, one, two, write


def left_the_arms_open() -> None:
    g, _, _, write = arms()
    g.edge(write, g.end)
    g.compile()


def led_the_arms_to_the_next_node() -> None:
    g, one, two, write = arms()
    g.edge(one, write)
    g.edge(two, write)
    g.edge(write, g.end)
    g.compile()


def led_one_arm_to_the_next_node() -> None:
    g, one, _, write = arms()
    g.edge(one, write)
    g.edge(write, g.end)
    g.compile()


def left_the_arms_open_before_the_end() -> None:
    g: Any = Graph("g", input=str, output=list[str])

    @g.llm(str)
    def one(ctx: Ctx, x: str) -> Message:
        return user(x)

    @g.llm(str)
    def two(ctx: Ctx, x: str) -> Message:
        return user(x)

    g.fork(g.start, one, two)
    g.edge(one, g.end)
    g.compile()


def left_an_arm_open() -> None:
    g, one, _, _ = arms(output=Note)
    g.edge(one, g.end)
    g.compile()


def joined_arms_that_are_no_list() -> None:
    g, one, two, _ = arms()
    g.join(one, two, collect(Note))


def joined_arms_that_are_no_list_without_a_reducer() -> None:
    g, one, two, _ = arms()
    g.join(one, two)


def mapped_over_a_text() -> None:
    g: Any = Graph("g", input=str, output=list)

    @g.step
    async def topic(ctx: Ctx, x: str) -> str:
        return x

    @g.llm(Note)
    def answer(ctx: Ctx, x: str) -> Message:
        return user(x)

    g.edge(g.start, topic)
    g.edge(g.join(g.map(topic, answer), collect(Note)), g.end)
    run(g)


def an_edge_in_place_of_the_map() -> None:
    g, questions, answer, write = research()
    g.edge(g.start, questions)
    g.edge(questions, answer)
    g.edge(answer, write)
    g.edge(write, g.end)
    run(g)


def joined_what_never_forked() -> None:
    g: Any = Graph("g", input=str, output=list)

    @g.llm(Note)
    def answer(ctx: Ctx, x: str) -> Message:
        return user(x)

    g.edge(g.start, answer)
    g.edge(g.join(answer, collect(Note)), g.end)
    run(g)


def forgot_the_end() -> None:
    g, questions, answer, write = research()
    g.edge(g.start, questions)
    g.edge(g.join(g.map(questions, answer), collect(Note)), write)
    run(g)


def two_edges_for_a_choice() -> None:
    g, questions, _, write = research()
    g.edge(g.start, questions)
    g.edge(questions, write)
    g.edge(questions, g.end)
    run(g)


def called_the_function_in_place_of_wiring_the_node() -> None:
    g, questions, _, _ = research()

    def plain(ctx: Ctx, x: str) -> Message:
        return user(x)

    g.edge(g.start, questions)
    g.edge(questions, plain)


def returned_text_in_place_of_a_message() -> None:
    g: Any = Graph("g", input=str, output=str)

    @g.llm(str)
    def ask(ctx: Ctx, x: str) -> str:
        return x

    g.edge(g.start, ask)
    g.edge(ask, g.end)
    run(g)


def a_step_that_is_not_async() -> None:
    g: Any = Graph("g", input=str, output=str)

    @g.step
    def shout(ctx: Ctx, x: str) -> str:
        return x.upper()


def a_step_that_yields() -> None:
    g: Any = Graph("g", input=str, output=str)

    @g.step
    async def shout(ctx: Ctx, x: str) -> AsyncIterator[str]:
        yield x


def an_async_prompt() -> None:
    g: Any = Graph("g", input=str, output=str)

    @g.llm(str)
    async def ask(ctx: Ctx, x: str) -> Message:
        return user(x)


def no_ctx() -> None:
    g: Any = Graph("g", input=str, output=str)

    @g.step
    async def shout(x: str) -> str:
        return x.upper()


def forgot_the_parentheses() -> None:
    g: Any = Graph("g", input=str, output=str)

    @g.llm
    def ask(ctx: Ctx, x: str) -> Message:
        return user(x)

    g.edge(g.start, ask)
    g.edge(ask, g.end)
    run(g)


def an_agent_without_a_limit() -> None:
    g: Any = Graph("g", input=str, output=str)

    @g.llm(str, tools=[look])
    def think(ctx: Ctx, x: Any) -> Message:
        return user(str(x))

    act = g.tools(look)
    g.edge(g.start, think)
    g.branch(think).case(ToolCalls, act).case(str, g.end)
    g.edge(act, think)
    run(g)


def a_branch_that_forgets_the_answer() -> None:
    g: Any = Graph("g", input=str, output=str)

    @g.llm(str, tools=[look])
    def think(ctx: Ctx, x: Any) -> Message:
        return user(str(x))

    act = g.tools(look)
    g.edge(g.start, think)
    g.branch(think).case(ToolCalls, act)
    g.edge(act, think)
    run(g, limits=Limits())


def a_winner_of_a_list() -> None:
    g, questions, answer, write = research()
    g.edge(g.start, questions)
    g.edge(g.join(g.map(questions, answer), collect(Note), keep="winner"), write)


def a_winner_where_a_list_is_due() -> None:
    g, questions, answer, write = research()
    g.edge(g.start, questions)
    g.edge(g.join(g.map(questions, answer), best(lambda note: 1.0)), write)
    g.edge(write, g.end)
    run(g)


def wrote_state_in_a_branch() -> None:
    g, questions, answer, write = research(state=Notes)

    @g.step
    async def remember(ctx: Ctx[Notes], note: Note) -> Note:
        ctx.state.found.append(note.text)
        return note

    g.edge(g.start, questions)
    g.map(questions, answer)
    g.edge(answer, remember)
    g.edge(g.join(remember, collect(Note)), write)
    g.edge(write, g.end)
    run(g)


def ran_a_graph() -> None:
    g, questions, _, _ = research()
    g.edge(g.start, questions)
    g.run_sync("tea")


def a_list_of_tools_in_place_of_tools() -> None:
    g: Any = Graph("g", input=str, output=str)
    g.tools([look])


def a_function_in_place_of_a_tool() -> None:
    g: Any = Graph("g", input=str, output=str)

    def plain(word: str) -> str:
        return word

    @g.llm(str, tools=[plain])
    def think(ctx: Ctx, x: Any) -> Message:
        return user(str(x))


def branches() -> tuple[Any, Any, Any, Any]:
    """A graph with two nodes for branches, and one that takes what they give."""
    g, _, answer, write = research()

    @g.llm(Note)
    def doubt(ctx: Ctx, question: str) -> Message:
        return user(question)

    return g, answer, doubt, write


def a_join_without_a_reducer() -> None:
    g, answer, doubt, _ = branches()
    g.join(g.fork(g.start, answer, doubt))


def a_reducer_that_was_not_called() -> None:
    g, answer, doubt, _ = branches()
    g.join(g.fork(g.start, answer, doubt), collect)


def a_selector_that_was_not_called() -> None:
    g, answer, doubt, _ = branches()
    g.join(g.fork(g.start, answer, doubt), best)


def a_list_in_place_of_nodes() -> None:
    g, answer, doubt, _ = branches()
    g.fork(g.start, [answer, doubt])


def an_edge_to_a_list() -> None:
    g, answer, doubt, _ = branches()
    g.edge(g.start, [answer, doubt])


def a_name_in_place_of_a_node() -> None:
    g, answer, _, _ = branches()
    g.edge("start", answer)


def a_keep_that_is_none() -> None:
    g, answer, doubt, _ = branches()
    g.join(g.fork(g.start, answer, doubt), collect(Note), keep="all")


class Plan(BaseModel):
    questions: list[str]


def mapped_over_a_model() -> None:
    g, questions, answer, write = research()

    @g.step
    async def plan(ctx: Ctx, topics: list[str]) -> Any:
        return Plan(questions=topics)

    g.edge(g.start, questions)
    g.edge(questions, plan)
    g.edge(g.join(g.map(plan, answer), collect(Note)), write)
    g.edge(write, g.end)
    run(g)


def an_output_of_another_type() -> None:
    g: Any = Graph("count", input=str, output=int)

    @g.step
    async def count(ctx: Ctx, x: str) -> Any:
        return f"{len(x)}"

    g.edge(g.start, count)
    g.edge(count, g.end)
    run(g)


def step_of(fn: Any) -> None:
    """Run one step."""
    g: Any = Graph("one", input=str, output=str)
    node = g.step(fn)
    g.edge(g.start, node)
    g.edge(node, g.end)
    run(g)


def called_a_node() -> None:
    _, _, answer, _ = research()

    async def ask(ctx: Ctx, x: str) -> Any:
        return answer(ctx, x)

    step_of(ask)


def forgot_to_await() -> None:
    async def ask(ctx: Ctx, x: str) -> Any:
        return ctx.lm.transcript(user(x)).gen(str)

    step_of(ask)


def returned_the_generation() -> None:
    async def ask(ctx: Ctx, x: str) -> Any:
        return await ctx.lm.transcript(user(x)).gen(str)

    step_of(ask)


def went_to_a_generation() -> None:
    async def ask(ctx: Ctx, x: str) -> Any:
        found: Any = await ctx.lm.transcript(user(x)).gen(str)
        ctx.goto(found)

    step_of(ask)


def went_to_a_text() -> None:
    async def ask(ctx: Ctx, x: str) -> Any:
        there: Any = x
        ctx.goto(there)

    step_of(ask)


def emitted_a_text() -> None:
    async def tell(ctx: Ctx, x: str) -> Any:
        said: Any = "hello"
        await ctx.emit(said)

    step_of(tell)


def picked_by_a_name() -> None:
    choose: Any = "first"
    best_of_n(output=str, pick=choose)


MISTAKES: dict[Callable[[], None], tuple[str, str]] = {
    forgot_the_join: ("'answer'", "g.join(answer, collect(Note))"),
    left_the_arms_open: (
        "the fork after 'start' is open",
        "g.edge(g.join([one, two], collect(Note)), write)",
    ),
    led_the_arms_to_the_next_node: ("in place of", "g.edge(g.join([one, two], collect(Note)), write)"),
    led_one_arm_to_the_next_node: ("in place of", "g.edge(g.join([one, two], collect(Note)), write)"),
    left_the_arms_open_before_the_end: ("'one'", "g.edge(g.join([one, two], collect(str)), g.end)"),
    left_an_arm_open: ("'two' leads nowhere", "g.edge(g.join([one, two], collect(Note)), write)"),
    joined_arms_that_are_no_list: ("one list", "g.join([one, two], collect(Note))"),
    joined_arms_that_are_no_list_without_a_reducer: ("one list", "g.join([one, two], collect(Finding))"),
    mapped_over_a_text: ("'topic'", "return a list"),
    an_edge_in_place_of_the_map: ("'questions'", "g.map(questions, answer)"),
    joined_what_never_forked: ("'answer'", "use g.edge, or fork first"),
    forgot_the_end: ("'write'", "g.edge(write, g.end)"),
    two_edges_for_a_choice: ("'questions'", "g.branch(questions)"),
    called_the_function_in_place_of_wiring_the_node: ("'plain'", "@g.step or @g.llm"),
    returned_text_in_place_of_a_message: ("'ask'", "user('...')"),
    a_step_that_yields: ("'shout'", "return a value, don't yield"),
    a_step_that_is_not_async: ("'shout'", "'async def'"),
    an_async_prompt: ("'ask'", "write 'def'"),
    no_ctx: ("'shout'", "(ctx, value)"),
    forgot_the_parentheses: ("'ask'", "@g.llm(str)"),
    an_agent_without_a_limit: ("think -> tools -> think", "limits=Limits(turns=...)"),
    a_branch_that_forgets_the_answer: ("'think'", ".case(str, <node>)"),
    a_winner_of_a_list: ("'answer'", "best, vote, first"),
    a_winner_where_a_list_is_due: ("'join_answer'", "collect(Note)"),
    wrote_state_in_a_branch: ("'remember'", "after the join"),
    ran_a_graph: ("'research'", "g.compile().run_sync"),
    a_list_of_tools_in_place_of_tools: ("tools()", "*tools"),
    a_function_in_place_of_a_tool: ("'think'", "@tool"),
    a_join_without_a_reducer: ("answer, doubt", "g.join(..., collect(Finding))"),
    a_reducer_that_was_not_called: ("answer, doubt", "collect(Finding)"),
    a_selector_that_was_not_called: ("answer, doubt", "best(lambda result: ...)"),
    a_list_in_place_of_nodes: ("not to a list", "g.fork(<node>, answer, doubt)"),
    an_edge_to_a_list: ("not to a list", "g.fork(<node>, answer, doubt)"),
    a_name_in_place_of_a_node: ("'start'", "g.start"),
    a_keep_that_is_none: ("keep='all'", "'winner'"),
    mapped_over_a_model: ("'plan' gave Plan", "its field 'questions'"),
    called_a_node: ("'answer' is a node", "g.edge(..., answer)"),
    forgot_to_await: ("'one' gives str", "return await"),
    returned_the_generation: ("'one' gives str", ".value"),
    went_to_a_generation: ("ctx.goto(", "generation.transcript"),
    went_to_a_text: ("ctx.goto('tea')", "ctx.lm.transcript(...)"),
    emitted_a_text: ("ctx.emit('hello')", "agentree.Event"),
    picked_by_a_name: ("pick='first'", "a function"),
    an_output_of_another_type: ("'count' gives int", "str 3"),
}


@pytest.mark.parametrize(("mistake", "said"), MISTAKES.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_the_error_names_what_is_wrong_and_what_to_write(
    mistake: Callable[[], None], said: tuple[str, str]
) -> None:
    with pytest.raises((AgentreeError, AttributeError)) as caught:
        mistake()
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert [part for part in said if part not in text] == [], text


def test_a_failing_step_says_which_visit_it_was() -> None:
    g: Any = Graph("g", input=str, output=str)

    @g.step
    async def fail(ctx: Ctx, x: str) -> str:
        raise OSError("disk full")

    g.edge(g.start, fail)
    g.edge(fail, g.end)
    with pytest.raises(OSError, match="disk full") as caught:
        run(g)
    assert caught.value.__notes__[0].startswith("in node 'fail', visit 'fail' of run ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_tokens": "10"}, "max_tokens='10' is no whole number"),
        ({"max_tokens": 0}, "max_tokens=0 is out of range"),
        ({"max_tokens": True}, "max_tokens=True"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"temperature": -1}, "temperature=-1.0"),
        ({"stop": "END"}, r"write stop=\['END'\]"),
        ({"stop": [1]}, r"stop\[0\]=1"),
        ({"think": -1}, "think=-1"),
        ({"system": 5}, "system=5 is no string"),
    ],
)
def test_options_of_an_llm_node_are_those_of_gen(options: dict[str, Any], words: str) -> None:
    g = Graph("bad", input=str, output=str)
    with pytest.raises(InvalidArgument, match=words):
        g.llm(str, **options)
    if options.keys() <= {"max_tokens", "temperature"}:
        with pytest.raises(InvalidArgument, match=words):
            g.sample(2, str, **options)


@pytest.mark.asyncio
async def test_a_stream_of_events_is_read_in_a_block() -> None:
    g: Any = Graph("echo", input=str, output=str)

    @g.step
    async def echo(ctx: Ctx, given: str) -> str:
        return given

    g.edge(g.start, echo)
    g.edge(echo, g.end)
    lm: Any = ScriptedRuntime(lambda _request: "")
    words = r"write `async with program\.stream\(\.\.\.\) as run:` and use run"
    with pytest.raises(InvalidArgument, match=words):
        async for _ in g.compile().stream("x", lm=lm):
            pass
    with pytest.raises(InvalidArgument, match=words + r"\.output inside of it"):
        _ = g.compile().stream("x", lm=lm).output


async def shout(ctx: Ctx, x: str) -> str:
    """A step."""
    return x.upper()


def passed_on(ctx: Ctx, x: str) -> Awaitable[str]:
    """A plain function that gives what another one does."""
    return shout(ctx, x)


def anything(ctx: Ctx, x: str) -> Any:
    """Not said."""
    return shout(ctx, x)


def unannotated(ctx: Any, x: Any):
    """Not said either."""
    return shout(ctx, x)


@functools.wraps(shout)
def wrapped(*args: Any) -> Any:
    """Its annotations are those of another function."""
    return shout(*args)


class Shouter:
    """Called like a function."""

    async def __call__(self, ctx: Ctx, x: str) -> str:
        return x.upper()

    async def method(self, ctx: Ctx, x: str) -> str:
        """A step too."""
        return x.upper()

    def plain(self, ctx: Ctx, x: str) -> str | None:
        """None."""
        return x


class Plain:
    """Called like a function, and gives nothing to await."""

    def __call__(self, ctx: Ctx, x: str) -> list[str]:
        return [x]


def loud(how: int, ctx: Ctx, x: str) -> str:
    """Nothing to await."""
    return x * how


@pytest.mark.parametrize(
    "fn",
    [
        shout, passed_on, anything, unannotated, wrapped, Shouter(), Shouter().method,
        functools.partial(shout), functools.partial(Shouter()), lambda ctx, x: shout(ctx, x),  # pyright: ignore
    ],
)  # fmt: skip
def test_whatever_may_give_something_to_await_is_a_step(fn: Any) -> None:
    g: Any = Graph("g", input=str, output=str)
    node = g.step(fn)
    g.edge(g.start, node)
    g.edge(node, g.end)
    with ScriptedRuntime([]) as lm:
        assert g.compile().run_sync("tea", lm=lm) == "TEA"


@pytest.mark.parametrize("fn", [Shouter().plain, Plain(), functools.partial(loud, 2)])
def test_what_gives_nothing_to_await_is_no_step(fn: Any) -> None:
    g: Any = Graph("g", input=str, output=str)
    with pytest.raises(GraphError, match="nothing to await: write 'async def'"):
        g.step(fn)
