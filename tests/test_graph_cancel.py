"""Cancelled at every await point: nothing is left running, leased or open, and what was finished is told."""

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from tiny_models import tiny_llama

from agentree import events as ev
from agentree.graph import Ctx, Graph, Limits
from agentree.graph.program import Program
from agentree.lm import Runtime
from agentree.messages import Message, user
from agentree.testing import Reply, ScriptedRequest, ScriptedRuntime, final_answer
from agentree.tools import ToolCall, ToolCalls, ToolResult, tool, tool_result

pytestmark = pytest.mark.anyio
PATIENCE = 40
"""Turns of the event loop within which a cancelled run is over."""


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
    """Two calls, then an answer; each a turn of the event loop late."""
    if request.path == "plan":
        value: object = ["a", "b"]
    elif request.path.startswith("think"):
        calls = ToolCalls(tuple(ToolCall("", "look", {"word": w}) for w in ("x", request.path)))
        value = final_answer("done") if "#" in request.path else calls
    else:
        value = True
    return Reply(value, seconds=1e-6)


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


@dataclass
class Cut:
    """What came of a run that was cut off."""

    result: object = None
    turns: int = 0
    """Of the event loop, from the cut to the end."""
    stopped: bool = False
    over: bool = False


async def cut(work: Callable[[], Awaitable[object]], after: int, stop: Callable[[], object]) -> Cut:
    """Do the work to its end, or for so many turns of the event loop until it is stopped.

    `stop` returns False while there is nothing to be stopped.
    """
    found = Cut()

    async def job() -> None:
        try:
            found.result = await work()
        finally:
            found.over = True

    async with anyio.create_task_group() as group:
        group.start_soon(job)
        for _ in range(after):
            await anyio.lowlevel.checkpoint()
            if found.over:
                return found
        while not found.over:
            if not found.stopped:
                found.stopped = stop() is not False
            found.turns += found.stopped
            await anyio.lowlevel.checkpoint()
    return found


class Watched:
    """A runtime on which runs are cut off, one after the other, and nothing may be left of any."""

    def __init__(self, lm: ScriptedRuntime) -> None:
        self.lm = lm
        self.before = living()
        self.listening = lm.bus.subscribe(lambda: None)

    async def clean(self, found: Cut) -> str:
        """Look for what is left; how the run ended, "" if it had not begun."""
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        assert found.turns <= PATIENCE
        assert living() == self.before
        assert not +INSIDE
        stats = self.lm.stats()
        assert (stats.private, stats.leased) == (0, 0)
        self.lm.check()
        told = Told(self.listening.take())
        assert not told.unpaired(), told.unpaired()
        assert all(said in ALLOWED for said in told.calls().values()), told.calls()
        ended = [e.status for e in told.events if isinstance(e, ev.RunEnded)]
        assert len(ended) <= 1
        return "".join(ended)


Cutter = Callable[[ScriptedRuntime, Program[None, str, str], int], Awaitable[Cut]]


async def by_scope(lm: ScriptedRuntime, program: Program[None, str, str], after: int) -> Cut:
    """The caller's scope is cancelled, as by a time limit around it."""
    scope = anyio.CancelScope()

    async def work() -> object:
        with scope:
            return await program.run("go", lm=lm, seed=1)
        return None

    return await cut(work, after, scope.cancel)


async def by_run(lm: ScriptedRuntime, program: Program[None, str, str], after: int) -> Cut:
    """The run itself is cancelled, and its stream is read to the end."""
    runs: list[Any] = []

    async def work() -> object:
        async with program.stream("go", lm=lm, seed=1) as run:
            runs.append(run)
            events = [event async for event in run]
            last = events[-1] if events else None
            assert last is None or isinstance(last, ev.RunEnded)
            return run.output if last is not None and last.status == "done" else None

    def stop() -> bool:
        for run in runs:
            run.cancel()
        return bool(runs)

    return await cut(work, after, stop)


async def by_leaving(lm: ScriptedRuntime, program: Program[None, str, str], after: int) -> Cut:
    """The reader of the stream goes away after so many events."""

    async def work() -> object:
        async with program.stream("go", lm=lm, seed=1) as run:
            seen = 0
            async for event in run:
                seen += 1
                if isinstance(event, ev.RunEnded):
                    return run.output
                if seen > after:
                    break
        return None

    return await cut(work, 10**9, lambda: None)


async def by_task(lm: ScriptedRuntime, program: Program[None, str, str], after: int) -> Cut:
    """The task is cancelled the way that asyncio's Ctrl-C does it."""
    tasks: list[asyncio.Task[object]] = []

    async def work() -> object:
        tasks.append(asyncio.ensure_future(program.run("go", lm=lm, seed=1)))
        try:
            return await tasks[0]
        except asyncio.CancelledError:
            return None

    return await cut(work, after, lambda: any(task.cancel() for task in tasks))


async def cut_everywhere(cutter: Cutter, least: int, stride: int = 1) -> None:
    everything = program()
    async with ScriptedRuntime(answer) as lm:
        watched = Watched(lm)
        for after in range(0, 5000, stride):
            found = await cutter(lm, everything, after)
            ended = await watched.clean(found)
            if found.result is not None:
                assert (found.result, ended) == ("done 2; done 2", "done")
                assert after > least, "it is cut off in many places"
                return
            assert ended in ("", "cancelled", "done")
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("cutter", [by_scope, by_run])
async def test_cut_off_at_every_await_point(cutter: Cutter) -> None:
    await cut_everywhere(cutter, 30)


@pytest.mark.parametrize("path", ["plan", "think[0]", "think[1]#2", "search[0][1]"])
async def test_a_generation_that_would_take_for_ever(path: str) -> None:
    def hanging(request: ScriptedRequest) -> object:
        return Reply("[", seconds=1e6) if request.path == path else answer(request)

    everything = program()
    async with ScriptedRuntime(answer) as lm:
        await everything.run("go", lm=lm)
    async with ScriptedRuntime(hanging) as lm:
        watched = Watched(lm)
        for cutter in (by_scope, by_run):
            found = await cutter(lm, everything, 80)
            assert found.result is None
            assert await watched.clean(found) == "cancelled"


async def test_left_after_any_event() -> None:
    await cut_everywhere(by_leaving, 60, stride=5)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_is_cancelled_at_every_await_point() -> None:
    await cut_everywhere(by_task, 30)


@pytest.mark.parametrize("after", [4, 15, 24, 31, 37])
async def test_a_run_that_was_cut_off_goes_on_from_its_journal(after: int, tmp_path: Path) -> None:
    everything = program()
    journal = tmp_path / "runs.journal"
    async with ScriptedRuntime(answer) as lm:
        await everything.run("go", lm=lm)  # constraints are compiled: turns of the loop are turns of the run
        listening = lm.bus.subscribe(lambda: None)
        scope = anyio.CancelScope()

        async def work() -> object:
            with scope:
                return await everything.run("go", lm=lm, seed=1, journal=journal)
            return None

        found = await cut(work, after, scope.cancel)
        assert found.result is None
        run = [e.run for e in listening.take() if isinstance(e, ev.RunStarted)]
        if run:
            made = await everything.resume(run[0], lm=lm, journal=journal, uncertain="rerun")
            assert made == "done 2; done 2"
        stats = lm.stats()
        assert (stats.private, stats.leased) == (0, 0)


async def test_an_async_tool_stops_in_few_turns_of_the_loop() -> None:
    """Whatever it awaits: it is over, with its clean-up, before a hundredth of a second of turns."""
    stopped: list[str] = []

    @tool
    async def hang(how: str) -> str:
        """Wait for ever in some way."""
        try:
            if how == "sleep":
                await anyio.sleep_forever()
            elif how == "thread":
                await anyio.to_thread.run_sync(until.wait, abandon_on_cancel=True)
            else:
                while True:
                    await anyio.lowlevel.checkpoint()
        finally:
            stopped.append(how)
        return how

    until = threading.Event()
    hows = ("sleep", "thread", "spin")
    g = Graph("g", input=ToolCalls, output=list[ToolResult])
    act = g.tools(hang)
    g.edge(g.start, act)
    g.edge(act, g.end)
    given = ToolCalls(tuple(ToolCall(how, "hang", {"how": how}) for how in hows))
    async with ScriptedRuntime([]) as lm:
        watched = Watched(lm)
        scope = anyio.CancelScope()

        async def work() -> object:
            with scope:
                return await g.compile().run(given, lm=lm)
            return None

        found = await cut(work, 30, scope.cancel)
        assert sorted(stopped) == sorted(hows)
        assert found.turns <= PATIENCE
        assert await watched.clean(found) == "cancelled"
    until.set()


async def test_the_engine_gives_everything_back(tmp_path: Path) -> None:
    """The same on an engine with a model and a thread of its own, cut off in the midst of its steps."""
    g = Graph("texts", input=str, output=str)

    @g.llm(list[Literal["a", "b"]], max_tokens=20)
    def plan(ctx: Ctx, text: str) -> Message:
        return user(text)

    @g.llm(str, max_tokens=60)
    def write(ctx: Ctx, item: str) -> Message:
        return user(f"{item} " * 20)

    def joined(texts: Sequence[str]) -> str:
        return "".join(texts)

    g.edge(g.start, plan)
    g.map(plan, write)
    g.edge(g.join(write, joined), g.end)
    everything = g.compile()
    async with Runtime(tiny_llama(tmp_path), kv_tokens=600) as lm:
        began = anyio.current_time()
        await everything.run("go", lm=lm, seed=1)
        whole, cut_off = anyio.current_time() - began, 0
        before = living()
        for share in (0.0, 0.02, 0.05, 0.1, 0.3, 0.6):
            with anyio.move_on_after(share * whole) as scope:
                await everything.run("go", lm=lm, seed=2)
            assert living() == before
            if scope.cancelled_caught:
                assert (lm.stats().private, lm.stats().leased) == (0, 0)
                cut_off += 1
        assert cut_off >= 2
        stats = lm.stats()
        assert stats.free + stats.tree == stats.pool
        assert isinstance(await everything.run("go", lm=lm, seed=2), str)
