"""Runs with a journal: crash in the same process, resume, people, refusals; on asyncio and on trio."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from journal_harness import Stop
from pydantic import BaseModel

from agentree.graph import Ctx, Graph, Limits, Program
from agentree.messages import Message, user
from agentree.testing import ScriptedRequest, ScriptedRuntime, final_answer
from agentree.tools import Tool, ToolCall, ToolCalls, ToolResult, tool, tool_result

pytestmark = pytest.mark.anyio
Script = dict[str, Any]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "runs.journal"


class Answer(BaseModel):
    text: str


@dataclass
class Notes:
    seen: list[str] = field(default_factory=list[str])


class Diary:
    """What really happened, and where it shall stop happening."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.crash_at = ""

    def __call__(self, what: str) -> None:
        self.done.append(what)
        if what == self.crash_at:
            self.crash_at = ""
            raise Stop(what)


def looping(diary: Diary, tools: Sequence[Tool[..., Any]]) -> Program[Notes, str, str]:
    """A tool loop with state, and a step at the end that generates by itself."""
    g = Graph("loop", state=Notes, input=str, output=str)

    @g.llm(Answer, tools=list(tools), parallel=True, max_tokens=200, temperature=0.8, system="Use tools.")
    def think(ctx: Ctx[Notes], message: str | Message) -> Message:
        diary(f"prompt {len(ctx.state.seen)}")
        return message if isinstance(message, Message) else user(message)

    act = g.tools(*tools)

    @g.step
    async def observe(ctx: Ctx[Notes], results: list[ToolResult]) -> Message:
        ctx.state.seen.append(results[0].content)
        diary(f"observe {ctx.state.seen}")
        return tool_result(results)

    @g.step
    async def finish(ctx: Ctx[Notes], answer: Answer) -> str:
        first = await ctx.transcript.gen(str, max_tokens=20, temperature=1.0)
        diary("finish, first")
        second = await first.transcript.gen(str, max_tokens=20)
        diary("finish, second")
        return f"{answer.text} {first.value} {second.value} {ctx.state.seen} {len(ctx.transcript)}"

    g.edge(g.start, think)
    g.branch(think).case(ToolCalls, act).case(Answer, finish)
    g.edge(act, observe)
    g.edge(observe, think)
    g.edge(finish, g.end)
    return g.compile(limits=Limits(turns=3, tool_calls=3))


def add_tool(diary: Diary, **options: Any) -> Tool[..., Any]:
    @tool(**options)
    async def add(x: int) -> int:
        """Add one.

        Args:
            x: A number.
        """
        diary(f"add {x}")
        await anyio.lowlevel.checkpoint()
        return x + 1

    return add


def call(x: int) -> ToolCall:
    return ToolCall("", "add", {"x": x})


LOOP: Script = {
    "think": ToolCalls((call(1), call(2))),
    "think#2": '[{"name": "add", "arguments": {"x": 5}}]',
    "think#3": final_answer(Answer(text="six")),
    "finish": ["once", "twice"],
}


class Lm(ScriptedRuntime):
    """A scripted runtime that tells what was asked."""

    def __init__(self, script: Script) -> None:
        self.asked: list[str] = []
        self._left: dict[str, list[Any]] = {
            path: [*a] if isinstance(a, list) else [a] for path, a in script.items()
        }
        super().__init__(self._answer)

    def _answer(self, request: ScriptedRequest) -> Any:
        self.asked.append(request.path)
        return self._left[request.path].pop(0)


async def test_a_finished_run_is_not_run_again(journal: Path) -> None:
    diary = Diary()
    program = looping(diary, [add_tool(diary)])
    async with Lm(LOOP) as lm:
        plain = await program.run("go", lm=lm, seed=3)
    done = list(diary.done)
    async with Lm(LOOP) as lm:
        assert await program.run("go", lm=lm, seed=3, journal=journal, run_id="a") == plain
        asked = list(lm.asked)
        assert await program.resume("a", lm=lm, journal=journal) == plain
        assert lm.asked == asked
    assert diary.done == done * 2


@pytest.mark.parametrize("at", range(10))
async def test_nothing_that_is_finished_is_done_again(journal: Path, at: int) -> None:
    diary = Diary()
    program = looping(diary, [add_tool(diary, pure=True)])
    async with Lm(LOOP) as lm:
        plain = await program.run("go", lm=lm, seed=3)
    whole, diary.done = list(diary.done), []
    if at >= len(whole):
        pytest.skip("so many things don't happen")
    diary.crash_at = whole[at]
    async with Lm(LOOP) as lm:
        with pytest.raises(Stop):
            await program.run("go", lm=lm, seed=3, journal=journal, run_id="a")
        assert await program.resume("a", lm=lm, journal=journal) == plain
    again = [what for what in whole if diary.done.count(what) > 1]
    # A step is repeated from its start; calls of a turn that fails are stopped, and pure ones made again.
    together = {"finish, second": ["finish, first"], "add 1": ["add 2"], "add 2": ["add 1"]}
    assert {whole[at]} <= set(again) <= {whole[at], *together.get(whole[at], ())}
    assert set(diary.done) == set(whole)
    assert len(lm.asked) == 5, "no generation is made twice"
