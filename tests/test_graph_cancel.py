"""Cancelled at every await point: nothing is left running, leased or open, and what was finished is told."""

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agentree import events as ev
from agentree.graph import Ctx, Graph, Limits
from agentree.graph.program import Program
from agentree.messages import Message, user
from agentree.testing import Reply, ScriptedRequest, ScriptedRuntime, final_answer
from agentree.tools import ToolCall, ToolCalls, ToolResult, tool, tool_result

pytestmark = pytest.mark.anyio
PATIENCE = 40
"""Turns of the event loop within which a cancelled run is over."""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


INSIDE: Counter[str] = Counter()
"""Tools and steps of the user that are running."""


@tool
async def look(word: str) -> str:
    """Look a word up.

    Args:
        word: What to look up.
    """
    INSIDE["look"] += 1
    try:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        return f"found {word}"
    finally:
        INSIDE["look"] -= 1


def program() -> Program[None, str, str]:
    """A plan, a map over agents with tools, a search that forks by itself, and a join."""
    g = Graph("everything", input=str, output=str)

    @g.llm(list[str], max_tokens=60, system="You plan.")
    def plan(ctx: Ctx, text: str) -> Message:
        return user(text)

    @g.llm(str, tools=[look], parallel=True)
    def think(ctx: Ctx, given: str | list[ToolResult]) -> Message:
        return user(given) if isinstance(given, str) else tool_result(given)

    act = g.tools(look, parallel=1)

    @g.step
    async def search(ctx: Ctx, text: str) -> str:
        INSIDE["search"] += 1
        try:
            async with ctx.transcript.fork(2) as kids:
                found = await kids.gen(bool)
                ctx.goto(kids.keep([kids[0]])[0])
            return f"{text} {sum(g.value for g in found)}"
        finally:
            INSIDE["search"] -= 1

    def joined(texts: Sequence[str]) -> str:
        return "; ".join(texts)

    g.edge(g.start, plan)
    g.map(plan, think)
    g.branch(think).case(ToolCalls, act).case(str, search)
    g.edge(act, think)
    g.edge(g.join(search, joined), g.end)
    return g.compile(limits=Limits(turns=5))


def answer(request: ScriptedRequest) -> object:
    """Two calls, then an answer; each some turns of the event loop late."""
    if request.path == "plan":
        value: object = ["a", "b"]
    elif request.path.startswith("think"):
        calls = ToolCalls(tuple(ToolCall("", "look", {"word": w}) for w in ("x", request.path)))
        value = final_answer("done") if "#" in request.path else calls
    else:
        value = True
    return Reply(value, seconds=0.0005)


@dataclass
class Told:
    """Events of one run, as far as they must come in pairs."""

    events: list[ev.Event] = field(default_factory=list[ev.Event])

    def unpaired(self) -> list[object]:
        """What began and did not end, or the other way round."""
        left: Counter[object] = Counter()
        for event in self.events:
            match event:
                case ev.NodeStarted() | ev.NodeEnded():
                    left["node", event.path] += 1 if isinstance(event, ev.NodeStarted) else -1
                case ev.GenerationStarted() | ev.GenerationEnded():
                    left[event.request] += 1 if isinstance(event, ev.GenerationStarted) else -1
                case ev.RunStarted() | ev.RunEnded():
                    left["run"] += 1 if isinstance(event, ev.RunStarted) else -1
                case _:
                    pass
        return [key for key, count in left.items() if count]

    def calls(self) -> dict[tuple[str, str], list[str]]:
        """What was told of each tool call."""
        told: dict[tuple[str, str], list[str]] = {}
        for event in self.events:
            if isinstance(event, ev.ToolStarted):
                told.setdefault((event.path, event.call), []).append("started")
            elif isinstance(event, ev.ToolEnded):
                said = event.content.partition(":")[0] if event.error else "ended"
                told.setdefault((event.path, event.call), []).append(said)
        return told


ALLOWED = (["started", "ended"], ["started", "interrupted"], ["not started"])


def living() -> int:
    """Tasks of this event loop."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        trio: Any = sys.modules["trio"]
        return trio.lowlevel.current_statistics().tasks_living


async def settle() -> None:
    """Let callbacks that are on their way run."""
    for _ in range(5):
        await anyio.lowlevel.checkpoint()


async def cut(
    start: Callable[[ScriptedRuntime], Awaitable[object]],
    after: int,
    stop: Callable[[], None],
    lm: ScriptedRuntime,
) -> tuple[object, int]:
    """Run until it is over, or until `stop` was called `after` turns; what came, and the turns since."""
    result: object = None
    over = False
    turns = 0

    async def work() -> None:
        nonlocal result, over
        try:
            result = await start(lm)
        finally:
            over = True

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        for _ in range(after):
            await anyio.lowlevel.checkpoint()
            if over:
                break
        else:
            stop()
            while not over:
                turns += 1
                await anyio.lowlevel.checkpoint()
    return result, turns


async def cancelled_at(after: int, program: Program[None, str, str], lm: ScriptedRuntime) -> bool:
    """Cancel a run after so many turns of the event loop, and look for what is left; whether it was over."""
    before, told = living(), Told()
    listening = lm.bus.subscribe(lambda: None)
    scope = anyio.CancelScope()

    async def run(lm: ScriptedRuntime) -> object:
        with scope:
            return await program.run("go", lm=lm, seed=1)
        return None

    result, turns = await cut(run, after, scope.cancel, lm)
    await settle()
    assert turns <= PATIENCE
    assert living() == before
    assert not +INSIDE
    stats = lm.stats()
    assert (stats.private, stats.leased) == (0, 0)
    lm.check()
    told.events = listening.take()
    lm.bus.unsubscribe(listening)
    assert not told.unpaired(), told.unpaired()
    assert all(said in ALLOWED for said in told.calls().values()), told.calls()
    ended = [e.status for e in told.events if isinstance(e, ev.RunEnded)]
    if result is not None:
        assert (result, ended) == ("done 2; done 2", ["done"])
        return True
    assert ended in ([], ["cancelled"], ["done"])
    return False


async def test_cancelled_at_every_await_point() -> None:
    everything = program()
    async with ScriptedRuntime(answer) as lm:
        for after in range(5000):
            if await cancelled_at(after, everything, lm):
                break
        else:
            raise AssertionError("it never came to its end")
    assert after > 60, "the run is cancelled in many places"
