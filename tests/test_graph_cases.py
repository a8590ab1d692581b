"""Faults that users of agent frameworks met, in the smallest form that would show them here.

What other tests show already: a call cut off or prose in place of a call can't be generated (constraints), a
bad call stays in the transcript as it was generated, unequal branches, joins of joins, skipped arms, empty
maps (test_graph_fork), limits that keep the transcript (test_graph_run). Two final answers in one turn, or a
final answer beside a call, can't be written: the constraint of a turn has no such text. A join can't wait for
a branch that went elsewhere: compiling refuses ways out of a fork that don't pass its join.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentree.errors import AgentreeError, GraphError
from agentree.events import GenerationEnded, NodeStarted, ToolEnded
from agentree.graph import Ctx, Graph, collect, react
from agentree.testing import ScriptedRequest, ScriptedRuntime, final_answer
from agentree.tools import ToolCall, tool

pytestmark = pytest.mark.anyio


@tool
def note(text: str) -> str:
    """Write a note down."""
    return f"noted {text}"


def noting(turns: int) -> Any:
    def script(request: ScriptedRequest) -> object:
        turn = int(request.path.partition("#")[2] or 1)
        return final_answer("done") if turn > turns else ToolCall("", "note", {"text": f"item {turn}"})

    return script


async def test_prompt_tokens_grow_but_each_is_computed_once() -> None:
    async with ScriptedRuntime(noting(6)) as lm, react(tools=[note], output=str).stream("go", lm=lm) as run:
        turns = [e async for e in run if isinstance(e, GenerationEnded)]
    assert len(turns) == 7
    for before, after in pairwise(turns):
        said = before.sampled_tokens + before.forced_tokens
        assert after.cached_tokens >= before.prompt_tokens
        assert after.computed_tokens < 0.1 * after.prompt_tokens
        assert after.computed_tokens <= after.prompt_tokens - before.prompt_tokens - said + 8
    assert run.usage.computed_tokens is not None
    assert run.usage.computed_tokens <= len(run.transcript)


async def test_a_second_run_shares_the_static_prefix() -> None:
    agent = react(tools=[note], output=str)
    async with ScriptedRuntime(noting(1)) as lm:
        await agent.run("one question", lm=lm)
        async with agent.stream("quite another question", lm=lm) as run:
            first = next(e for e in [e async for e in run] if isinstance(e, GenerationEnded))
    assert first.cached_tokens > 0.9 * first.prompt_tokens


async def test_errors_of_the_framework_never_become_tool_results() -> None:
    @tool
    async def misused(x: int) -> int:
        """Use the framework wrongly."""
        raise AgentreeError("the run is at fault, not the call")

    async with ScriptedRuntime([ToolCall("", "misused", {"x": 1})]) as lm:
        with pytest.raises(AgentreeError, match="the run is at fault"):
            await react(tools=[misused], output=str).run("go", lm=lm)


async def test_a_bad_call_is_answered_with_an_error_and_the_run_goes_on() -> None:
    @tool
    def even(x: int) -> int:
        """Take an even number."""
        if x % 2:
            raise ValueError("odd")
        return x

    script = [ToolCall("", "even", {"x": 1}), ToolCall("", "even", {"x": 2}), final_answer("2")]
    async with ScriptedRuntime(script) as lm, react(tools=[even], output=str).stream("go", lm=lm) as run:
        ended = [e async for e in run if isinstance(e, ToolEnded)]
    assert [(e.error, e.content) for e in ended] == [(True, "ValueError: odd"), (False, "2")]
    assert run.output == "2"


async def test_a_way_out_of_a_fork_is_refused() -> None:
    g: Any = Graph("g", input=object, output=object)

    def step(name: str) -> Any:
        async def run(ctx: Ctx, x: Any) -> Any:
            return x

        run.__name__ = name
        return g.step(run)

    a, b, c = step("a"), step("b"), step("c")
    g.edge(g.start, a)
    g.fork(a, b, c)
    join = g.join(c, collect(object))
    g.branch(b).case(int, join).otherwise(g.end)
    g.edge(join, g.end)
    with pytest.raises(GraphError, match="the fork after 'a' don't all meet"):
        g.compile()


async def test_every_visit_has_a_path_of_its_own() -> None:
    agent = react(tools=[note], output=str)
    async with ScriptedRuntime(noting(4)) as lm, agent.stream("go", lm=lm) as run:
        paths = [e.path async for e in run if isinstance(e, NodeStarted)]
    assert len(set(paths)) == len(paths)
    assert {"think", "think#2", "think#5", "tools#4"} <= set(paths)


def test_the_tests_that_cover_reported_cases_exist() -> None:
    here = Path(__file__).parent
    named = set(re.findall(r"`(test_\w+)\.(test_\w+)`", (here / "cases" / "README.md").read_text()))
    assert len(named) > 50
    lost = [
        f"{module}.{name}"
        for module, name in named
        if not (path := here / f"{module}.py").exists()
        or not re.search(rf"^(async )?def {name}\(", path.read_text(), re.MULTILINE)
    ]
    assert lost == []
