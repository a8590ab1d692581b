"""What a run holds in the cache while its nodes work: from first to last use, each path of tasks its own."""

import anyio
import pytest

from agentree.graph import Ctx, Graph, Limits, Program, collect
from agentree.lm import Runtime
from agentree.lm.waits import UNKNOWN
from agentree.messages import Message, user
from agentree.testing import ScriptedRuntime, final_answer
from agentree.testing.engine import ScriptedEngine
from agentree.tools import ToolCall, ToolCalls, ToolResult, tool, tool_result

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def leases(lm: Runtime) -> dict[str, int]:
    """Tokens leased by owner, the run's id left out."""
    engine = lm._home.session.engine()
    assert isinstance(engine, ScriptedEngine)
    return {name.partition("/")[2]: held.leased for name, held in engine._cache.owners().items()}


class Watched:
    """A program that notes who holds what while a node works."""

    def __init__(self, lm: Runtime) -> None:
        self.lm = lm
        self.seen: dict[str, dict[str, int]] = {}

    def note(self, name: str) -> None:
        self.seen[name] = leases(self.lm)


async def test_a_transcript_is_held_until_nobody_reads_it_again() -> None:
    lm = ScriptedRuntime(["one", "two"])
    w = Watched(lm)
    g = Graph("line", input=str, output=str)

    @g.llm(str)
    def ask(ctx: Ctx, x: str) -> Message:
        return user(x)

    @g.step
    async def between(ctx: Ctx, x: str) -> str:
        w.note("between")
        return x

    @g.llm(str)
    def again(ctx: Ctx, x: str) -> Message:
        return user(x)

    @g.step
    async def after(ctx: Ctx, x: str) -> str:
        w.note("after")
        return x

    for a, b in ((g.start, ask), (ask, between), (between, again), (again, after), (after, g.end)):
        g.edge(a, b)
    program: Program[None, str, str] = g.compile()
    async with lm:
        assert await program.run("go", lm=lm) == "two"
        assert w.seen["between"][""] > 0
        assert w.seen["after"] == {}, "the plan knows that nobody reads it again"
        assert lm.stats().leased == 0


async def test_the_wait_for_a_tool_is_learned_and_the_transcript_held_meanwhile() -> None:
    turns = [ToolCall("", "slow", {"x": 1}), ToolCall("", "slow", {"x": 2}), final_answer("done")]
    lm = ScriptedRuntime(turns)
    w = Watched(lm)

    @tool
    async def slow(x: int) -> int:
        """Take a while.

        Args:
            x: Any number.
        """
        w.note(f"slow {x}")
        await anyio.sleep(0.05)
        return x

    g = Graph("agent", input=str, output=str)

    @g.llm(str, tools=[slow])
    def think(ctx: Ctx, x: str | list[ToolResult]) -> Message:
        return user(x) if isinstance(x, str) else tool_result(*x)

    act = g.tools(slow)
    g.edge(g.start, think)
    g.branch(think).case(ToolCalls, act).case(str, g.end)
    g.edge(act, think)
    program = g.compile(limits=Limits(turns=9))
    async with lm:
        waits = lm._home.session.waits
        assert waits.expect(["tool slow"]) == UNKNOWN
        assert await program.run("go", lm=lm) == "done"
        assert 0.04 < waits.expect(["tool slow"]) < 0.6
        assert w.seen["slow 1"][""] > 0 and w.seen["slow 2"][""] > w.seen["slow 1"][""]
        assert not waits._away
        assert lm.stats().leased == 0


async def test_branches_and_called_programs_hold_for_themselves_and_let_go_at_their_end() -> None:
    lm = ScriptedRuntime(lambda r: f"said at {r.path}")
    w = Watched(lm)
    inner = Graph("inner", input=str, output=str)

    @inner.llm(str)
    def first(ctx: Ctx, x: str) -> Message:
        return user(x)

    @inner.step
    async def rest(ctx: Ctx, x: str) -> str:
        w.note("inner")
        return x

    @inner.llm(str)
    def second(ctx: Ctx, x: str) -> Message:
        return user(x)

    for a, b in ((inner.start, first), (first, rest), (rest, second), (second, inner.end)):
        inner.edge(a, b)
    g = Graph("outer", input=list[str], output=str)

    @g.step
    async def items(ctx: Ctx, x: list[str]) -> list[str]:
        return x

    @g.llm(str)
    def each(ctx: Ctx, x: str) -> Message:
        return user(x)

    @g.step
    async def inside(ctx: Ctx, x: str) -> str:
        w.note(f"inside {x[-2]}")
        return x

    @g.step
    async def joined(ctx: Ctx, x: list[str]) -> str:
        w.note("joined")
        return x[0]

    @g.llm(str)
    def more(ctx: Ctx, x: str) -> Message:
        return user(x)

    call = g.call(inner.compile())
    join = g.join([more], collect(str), keep="none")
    g.edge(g.start, items)
    g.map(items, each)
    g.edge(each, inside)
    g.edge(inside, more)
    g.edge(join, joined)
    g.edge(joined, call)
    g.edge(call, g.end)
    program = g.compile()
    async with lm:
        await program.run(["a", "b", "c"], lm=lm)
        assert lm.stats().leased == 0
    branches = [name for seen in w.seen.values() for name in seen]
    assert {"[0]", "[1]", "[2]"} <= set(branches), "a lease for each branch, not one for all"
    assert w.seen["joined"] == {}
    assert list(w.seen["inner"]) == ["inner"], "by the path of the node that called it"
