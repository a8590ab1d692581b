"""The stream of a run: one order, an end on every way out, and readers that are slow or absent."""

from itertools import pairwise
from typing import Any

import anyio
import pytest

from agentree.errors import LimitReached, RuntimeClosed
from agentree.events import Dropped, Event, Forked, RunEnded, RunStarted, TextGenerated
from agentree.graph import Ctx, Graph, Limits
from agentree.graph.program import Program
from agentree.messages import Message, user
from agentree.testing import ScriptedRuntime

pytestmark = pytest.mark.anyio


def one_step(fn: Any, limits: Limits | None = None) -> Program[None, Any, Any]:
    g: Any = Graph("one", input=int, output=int)
    node = g.step(fn)
    g.edge(g.start, node)
    g.edge(node, g.end)
    return g.compile(limits=limits)


async def fine(ctx: Ctx, given: int) -> int:
    return given


async def fails(ctx: Ctx, given: int) -> int:
    raise OSError("no")


async def hangs(ctx: Ctx, given: int) -> int:
    await anyio.sleep_forever()
    return given


async def asks(ctx: Ctx, given: int) -> int:
    return (await ctx.transcript.gen(int)).value


class Stop(BaseException):
    """What no `except Exception` catches, as Ctrl-C is."""


async def stops(ctx: Ctx, given: int) -> int:
    raise Stop


@pytest.mark.parametrize(
    ("fn", "status", "raised"),
    [
        (fine, "done", None),
        (fails, "failed", OSError),
        (hangs, "limit", LimitReached),
        (asks, "failed", RuntimeClosed),
        (stops, "cancelled", BaseException),
    ],
)
async def test_every_way_out_ends_the_stream(
    fn: Any, status: str, raised: type[BaseException] | None
) -> None:
    seen: list[Event] = []
    caught: BaseException | None = None
    lm = ScriptedRuntime([])
    await lm.__aenter__()
    try:
        async with one_step(fn, Limits(seconds=0.05)).stream(3, lm=lm) as run:
            if fn is asks:
                await lm.__aexit__(None, None, None)
            seen.extend([event async for event in run])
            assert [event async for event in run] == [], "it stays closed"
    except BaseException as e:
        caught = e
    finally:
        await lm.__aexit__(None, None, None)
    if raised is None:
        assert caught is None
    else:
        assert isinstance(caught, raised)
    if fn is not stops:  # that one ends the reader's own task too
        assert isinstance(seen[0], RunStarted)
        assert isinstance(seen[-1], RunEnded)
        assert seen[-1].status == status
        assert all(a.seq < b.seq for a, b in pairwise(seen))
    assert not lm.bus.watched


async def test_a_slow_reader_is_told_what_it_missed_and_still_sees_the_end() -> None:
    async def chatty(ctx: Ctx, given: int) -> int:
        for i in range(given):
            await ctx.emit(TextGenerated(request=i, text="x"))
            if i % 1000 == 0:
                await ctx.emit(Forked(n=i, shared_tokens=0))
        return given

    async with ScriptedRuntime([]) as lm, one_step(chatty).stream(25_000, lm=lm) as run:
        await run._over.wait()
        seen = [event async for event in run]
    lost = [event for event in seen if isinstance(event, Dropped)]
    assert [event.facts for event in lost] == [0]
    assert lost[0].count == 25_000 + 25 + 4 - (len(seen) - 1)
    assert len(seen) == 10_001
    assert isinstance(seen[-1], RunEnded)
    assert [event.n for event in seen if isinstance(event, Forked)] == list(range(0, 25_000, 1000))
    assert all(a.seq < b.seq for a, b in pairwise(seen))


async def test_a_reader_of_one_run_sees_nothing_of_others() -> None:
    program = one_step(fine)
    async with ScriptedRuntime([]) as lm:
        async with program.stream(1, lm=lm) as first, program.stream(2, lm=lm) as second:
            found = {run.id: [event async for event in run] for run in (first, second)}
        for run, events in found.items():
            assert {event.run for event in events} == {run}
            assert len(events) == 4


async def test_nobody_reads_and_nothing_is_kept() -> None:
    g = Graph("g", input=int, output=str)

    @g.llm(str, max_tokens=8)
    def say(ctx: Ctx, given: int) -> Message:
        return user(str(given))

    g.edge(g.start, say)
    g.edge(say, g.end)
    async with ScriptedRuntime(lambda request: "x") as lm:
        for i in range(3):
            await g.compile().run(i, lm=lm)
        assert not lm.bus.watched
