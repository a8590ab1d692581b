"""Plans and explanations of programs that call others: what is called stands below its call."""

from pathlib import Path

import pytest

from agentree.graph import Ctx, Graph, Limits, Program
from agentree.messages import Message, user
from agentree.testing import ScriptedRequest, ScriptedRuntime
from agentree.trace import JSONLWriter, Watch, explain, read_trace


def judge() -> Program[None, str, bool]:
    g = Graph("judge", input=str, output=bool)

    @g.llm(bool, max_tokens=8, system="You judge.")
    def fine(ctx: Ctx, text: str) -> Message:
        return user(text)

    g.edge(g.start, fine)
    g.edge(fine, g.end)
    return g.compile(limits=Limits(turns=3))


def panel() -> Program[None, str, bool]:
    """A program that calls one that calls one."""
    g = Graph("panel", input=str, output=bool)
    called = g.call(judge(), transcript="fork")
    g.edge(g.start, called)
    g.edge(called, g.end)
    return g.compile()


def titles() -> Program[None, str, str]:
    g = Graph("titles", input=str, output=str)

    @g.llm(str, max_tokens=8)
    def suggest(ctx: Ctx, topic: str) -> Message:
        return user(topic)

    called = g.call(panel())

    @g.step
    async def decide(ctx: Ctx, good: bool) -> str | None:
        return "fine" if good else None

    g.edge(g.start, suggest)
    g.edge(suggest, called)
    g.edge(called, decide)

    @g.step
    async def again(ctx: Ctx, nothing: None) -> str:
        return "something else"

    g.branch(decide).case(str, g.end).otherwise(again)
    g.edge(again, suggest, max_visits=1)
    return g.compile(limits=Limits(turns=9))


def test_the_plan_of_a_called_program_stands_below_its_call() -> None:
    lines = titles().explain().splitlines()
    at = lines.index("panel  [call]")
    assert lines[at : at + 16] == [
        "panel  [call]",
        "│  with a transcript of its own",
        "│  panel: str -> bool",
        "│  start",
        "│  judge  [call]",
        "│  │  go on from here, and come back",
        "│  │  judge: str -> bool  (turns <= 3)",
        "│  │  start",
        "│  │  fine  [llm]",
        "│  │  │  begin with system",
        "│  │  │  extend a new transcript with the prompt",
        "│  │  │  generate bool, at most 8 tokens",
        "│  │  │  release fine",
        "│  │  end",
        "│  end",
        "decide  [step]",
    ]
    with ScriptedRuntime([]) as lm:
        assert "begin with system: " in titles().explain(lm=lm)


@pytest.mark.anyio
async def test_what_it_took_stands_at_its_own_nodes(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"

    def answer(request: ScriptedRequest) -> object:
        return "#2" in request.path if request.path.startswith("panel") else "a title"

    async with ScriptedRuntime(answer) as lm:
        with Watch(lm.bus, [JSONLWriter(path)]):
            async with titles().stream("tides", lm=lm) as run:
                _ = [event async for event in run]
        text = run.explain()
    assert run.output == "fine"
    lines = text.splitlines()
    at = lines.index("│  │  fine  [llm]")
    assert lines[at + 1].startswith("│  │  │  panel/judge/fine: prompt ")
    told = [line for line in lines[at:] if line.startswith("│  │  │  panel#2/judge/fine: prompt ")]
    assert len(told) == 1
    assert lines[lines.index("panel  [call]") + 1] == "│  panel: str -> bool", "nothing is told twice"
    assert text.count("panel/judge/fine: prompt") == 1
    assert explain(read_trace(path)).partition("\n")[2] == text
