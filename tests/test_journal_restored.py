"""What a resumed run must know again: ways, states, counts, limits, races."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from journal_harness import Stop, once

from agentree.errors import LimitReached
from agentree.graph import Ctx, Graph, Limits, collect, first
from agentree.graph.journal.past import Past
from agentree.graph.journal.reading import Runs
from agentree.messages import Message, user
from agentree.testing import ScriptedRequest, ScriptedRuntime, final_answer
from agentree.tools import ToolCall, ToolCalls, ToolResult, tool, tool_result

pytestmark = pytest.mark.anyio


async def test_the_way_that_was_taken_is_gone_again(journal: Path) -> None:
    flips = [True, False]
    stop = once()
    g = Graph("ways", input=str, output=str)

    @g.step
    async def begin(ctx: Ctx, text: str) -> str:
        return text

    @g.step
    async def left(ctx: Ctx, text: str) -> str:
        stop()
        return "left"

    @g.step
    async def right(ctx: Ctx, text: str) -> str:
        return "right"

    g.edge(g.start, begin)
    g.branch(begin).case(str, left, where=lambda text: flips.pop(0)).otherwise(right)
    g.edge(left, g.end)
    g.edge(right, g.end)
    program = g.compile()
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(Stop):
            await program.run("go", lm=lm, journal=journal, run_id="a")
        assert await program.resume("a", lm=lm, journal=journal) == "left"
    assert flips == [False]


@dataclass
class Ticket:
    number: int


async def test_a_called_program_has_the_state_that_it_began_with(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter(range(1, 10))
    stop = once()

    class Numbered(Ticket):
        def __init__(self, number: int | None = None) -> None:
            super().__init__(next(numbers) if number is None else number)

    inner = Graph("inner", state=Numbered, input=str, output=int)

    @inner.step
    async def read(ctx: Ctx[Numbered], text: str) -> int:
        stop()
        return ctx.state.number

    inner.edge(inner.start, read)
    inner.edge(read, inner.end)
    g = Graph("outer", input=str, output=int)
    call = g.call(inner.compile())
    g.edge(g.start, call)
    g.edge(call, g.end)
    program = g.compile()
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(Stop):
            await program.run("go", lm=lm, journal=journal, run_id="a")
        assert await program.resume("a", lm=lm, journal=journal) == 1


@tool(retries=1, pure=True)
async def add(x: int) -> int:
    """Add one.

    Args:
        x: A number.
    """
    if x > 100:
        raise ValueError("too large")
    return x + 1


def loop(limits: Limits, stop: Callable[[], None], told: list[ToolResult]) -> Any:
    g = Graph("loop", input=str, output=str)

    @g.llm(str, tools=[add], max_tokens=100)
    def think(ctx: Ctx, message: str | Message) -> Message:
        return message if isinstance(message, Message) else user(message)

    act = g.tools(add)

    @g.step
    async def observe(ctx: Ctx, results: list[ToolResult]) -> Message:
        stop()
        told.extend(results)
        return tool_result(results)

    g.edge(g.start, think)
    g.branch(think).case(ToolCalls, act).case(str, g.end)
    g.edge(act, observe)
    g.edge(observe, think)
    return g.compile(limits=limits)


def adding(request: ScriptedRequest) -> Any:
    turn = int(request.path.partition("#")[2] or 1)
    return ToolCall("", "add", {"x": turn}) if turn < 4 else final_answer("done")


@pytest.mark.parametrize(
    ("limits", "which"), [(Limits(tool_calls=2), "tool_calls"), (Limits(tokens=400), "tokens")]
)
async def test_a_limit_counts_what_was_used_before(journal: Path, limits: Limits, which: str) -> None:
    async with ScriptedRuntime(adding) as lm:
        plain: list[ToolResult] = []
        with pytest.raises(LimitReached):
            await loop(limits, lambda: None, plain).run("go", lm=lm)
        told: list[ToolResult] = []
        program = loop(limits, once(), told)
        with pytest.raises(Stop):
            await program.run("go", lm=lm, journal=journal, run_id="a")
        with pytest.raises(LimitReached) as hit:
            await program.resume("a", lm=lm, journal=journal)
    assert hit.value.limit == which
    assert told == plain


async def test_repeats_and_calls_per_tool_count_what_was_before(journal: Path) -> None:
    def same(request: ScriptedRequest) -> Any:
        return ToolCall("", "add", {"x": 1})

    stop = once()
    told: list[ToolResult] = []
    program = loop(Limits(turns=9, repeats=2), stop, told)
    async with ScriptedRuntime(same) as lm:
        with pytest.raises(Stop):
            await program.run("go", lm=lm, journal=journal, run_id="a")
        with pytest.raises(LimitReached, match="called 2 times with the same arguments"):
            await program.resume("a", lm=lm, journal=journal)
    assert len(told) == 1


async def test_what_a_step_generated_counts_also_when_it_comes_from_the_journal(journal: Path) -> None:
    g = Graph("steps", input=str, output=str)
    stop = once()
    stopping: list[bool] = []

    @g.step
    async def write(ctx: Ctx, text: str) -> str:
        made = await (ctx.transcript + user("x" * 200)).gen(str, max_tokens=20)
        if stopping:
            stop()
        return made.value

    @g.llm(str, max_tokens=20)
    def say(ctx: Ctx, text: str) -> Message:
        return user("x" * 200)

    g.edge(g.start, write)
    g.edge(write, say)
    g.edge(say, g.end)
    program = g.compile(limits=Limits(tokens=400))
    async with ScriptedRuntime(lambda request: "ok") as lm:
        with pytest.raises(LimitReached):
            await program.run("go", lm=lm)
        stopping.append(True)
        with pytest.raises(Stop):
            await program.run("go", lm=lm, journal=journal, run_id="a")
        for _ in range(2):
            with pytest.raises(LimitReached):
                await program.resume("a", lm=lm, journal=journal)


async def test_corrections_in_a_row_go_on(journal: Path) -> None:
    @tool(retries=1)
    async def strict(x: int) -> int:
        """Take a number.

        Args:
            x: A number.
        """
        from agentree.tools import ToolRetry

        raise ToolRetry("smaller")

    stop = once()
    told: list[str] = []
    g = Graph("loop", input=str, output=str)

    @g.llm(str, tools=[strict], max_tokens=100)
    def think(ctx: Ctx, message: str | Message) -> Message:
        return message if isinstance(message, Message) else user(message)

    act = g.tools(strict)

    @g.step
    async def observe(ctx: Ctx, results: list[ToolResult]) -> Message:
        stop()
        told.append(results[0].content)
        return tool_result(results)

    g.edge(g.start, think)
    g.branch(think).case(ToolCalls, act).case(str, g.end)
    g.edge(act, observe)
    g.edge(observe, think)
    program = g.compile(limits=Limits(turns=5))

    def asking(request: ScriptedRequest) -> Any:
        turn = int(request.path.partition("#")[2] or 1)
        return ToolCall("", "strict", {"x": turn}) if turn < 3 else final_answer("done")

    async with ScriptedRuntime(asking) as lm:
        with pytest.raises(Stop):
            await program.run("go", lm=lm, journal=journal, run_id="a")
        assert await program.resume("a", lm=lm, journal=journal) == "done"
    assert told == ["smaller", "smaller. Don't call 'strict' again: go on without it."]


async def test_losers_of_an_earlier_race_are_not_taken_for_those_of_a_later_one(journal: Path) -> None:
    stop = once()
    g = Graph("races", input=int, output=str)

    @g.step
    async def begin(ctx: Ctx, lap: int) -> int:
        return lap

    @g.step
    async def quick(ctx: Ctx, lap: int) -> str:
        if lap == 2:
            await ready.wait()
            stop()
            await anyio.sleep_forever()
        await ready.wait()
        return "quick"

    @g.step
    async def prepare(ctx: Ctx, lap: int) -> int:
        return lap

    @g.step
    async def slow(ctx: Ctx, lap: int) -> str:
        ready.set()
        if lap == 1 or not stopped:
            await anyio.sleep_forever()
        return f"slow in lap {lap}"

    @g.step
    async def again(ctx: Ctx, said: str) -> int | str:
        nonlocal ready
        ready = anyio.Event()
        return 2 if said == "quick" else said

    ready = anyio.Event()
    stopped: list[bool] = []
    g.edge(g.start, begin)
    g.fork(begin, quick, prepare)
    g.edge(prepare, slow)
    g.edge(g.join([quick, slow], first(str)), again)
    g.branch(again).case(int, begin).case(str, g.end)
    program = g.compile(limits=Limits(turns=9, seconds=60))
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(Stop):
            await program.run(1, lm=lm, journal=journal, run_id="a")
        stopped.append(True)
        ready = anyio.Event()
        assert await program.resume("a", lm=lm, journal=journal) == "slow in lap 2"


async def test_seconds_go_on_from_what_was_worked(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = once()
    g = Graph("timed", input=str, output=str)

    @g.step
    async def early(ctx: Ctx, text: str) -> str:
        return text

    @g.step
    async def late(ctx: Ctx, text: str) -> str:
        stop()
        return text

    g.edge(g.start, early)
    g.edge(early, late)
    g.edge(late, g.end)
    program = g.compile(limits=Limits(seconds=50))

    def worked(self: Past, since: float = 0.0) -> float:
        return seconds[0]

    async with ScriptedRuntime({}) as lm:
        with pytest.raises(Stop):
            await program.run("go", lm=lm, journal=journal, run_id="a")
        monkeypatch.setattr(Past, "seconds", worked)
        seconds = [60.0]
        with pytest.raises(LimitReached, match="50 seconds are over") as over:
            await program.resume("a", lm=lm, journal=journal)
        assert over.value.partial == "go"
        seconds = [40.0]
        assert await program.resume("a", lm=lm, journal=journal) == "go"


async def test_the_same_question_asked_twice_keeps_both_answers(journal: Path) -> None:
    stop = once()
    g = Graph("twice", input=str, output=str)

    @g.step
    async def ask(ctx: Ctx, text: str) -> str:
        prompt = ctx.transcript + user(text)
        said = [(await prompt.gen(str, max_tokens=8, seed=1)).value for _ in range(2)]
        stop()
        return " ".join(said)

    g.edge(g.start, ask)
    g.edge(ask, g.end)
    program = g.compile()
    # A server that is not deterministic: what it said first and second stays so.
    async with ScriptedRuntime({"ask": ["one", "two"]}) as lm:
        with pytest.raises(Stop):
            await program.run("go", lm=lm, journal=journal, run_id="a")
        assert await program.resume("a", lm=lm, journal=journal) == "one two"


async def test_what_came_before_is_on_disk(journal: Path) -> None:
    def on_disk(kind: str, path: str) -> bool:
        with Runs(journal) as runs:
            return any((fact.kind, fact.path) == (kind, path) for fact in runs.show("a").facts)

    async def until(kind: str, path: str) -> None:
        with anyio.fail_after(20):
            while not on_disk(kind, path):  # noqa: ASYNC110  another process could only look, too
                await anyio.sleep(0.01)

    @tool
    async def early() -> str:
        """Be first."""
        assert on_disk("call started", "tools")
        return "early"

    @tool
    async def late() -> str:
        """Wait until the end of the first is known."""
        await until("call ended", "tools")
        return "late"

    g = Graph("order", input=str, output=list[int])

    @g.llm(str, tools=[early, late], parallel=True, max_tokens=200)
    def think(ctx: Ctx, text: str) -> Message:
        return user(text)

    act = g.tools(early, late)

    @g.step
    async def one(ctx: Ctx, results: list[ToolResult]) -> list[int]:
        assert [result.content for result in results] == ["early", "late"]
        assert on_disk("node ended", "tools")
        return [0, 1]

    @g.step
    async def branch(ctx: Ctx, i: int) -> int:
        assert on_disk("node ended", "one")
        assert on_disk("node started", f"branch[{i}]")
        if i == 1:
            # The other one waits at the join, and has nothing to lose.
            await until("node ended", "branch[0]")
        return i

    @g.step
    async def never(ctx: Ctx, text: str) -> list[int]:
        return []

    g.edge(g.start, think)
    g.branch(think).case(ToolCalls, act).case(str, never)
    g.edge(act, one)
    g.edge(g.join(g.map(one, branch), collect(int)), g.end)
    g.edge(never, g.end)
    calls = ToolCalls((ToolCall("", "early", {}), ToolCall("", "late", {})))
    async with ScriptedRuntime({"think": calls}) as lm:
        assert await g.compile().run("go", lm=lm, journal=journal, run_id="a") == [0, 1]
