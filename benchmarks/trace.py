"""What the live console costs: `python -m benchmarks.trace`. Prints a markdown table.

Agents with scripted answers that take their time, and the console of a terminal of 80 x 40 cells drawn on
its own thread. CPU is that of the console's thread, from its first event to its summary; the run without a
console is measured beside it, so that what emitting events costs everybody else shows too.
"""

import argparse
import asyncio
import gc
import io
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import anyio
from rich.console import Console

from agentree import Ctx, Graph, Limits, Message, ToolCall, ToolCalls, ToolResult, tool, tool_result, user
from agentree.events import Event
from agentree.testing import Reply, ScriptedRequest, ScriptedRuntime, final_answer
from agentree.trace import Sink, Watch
from agentree.trace.console import ConsoleView


class Measured:
    """A sink that notes what its thread has used."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._began: float | None = None
        self.events = 0
        self.frames = 0
        self.cpu = 0.0

    def feed(self, batch: Sequence[Event]) -> None:
        """Pass on."""
        self._start()
        self.events += len(batch)
        self._sink.feed(batch)

    def tick(self) -> None:
        """Pass on."""
        self._start()
        self.frames += 1
        self._sink.tick()

    def close(self) -> None:
        """Pass on, and take the time."""
        self._sink.close()
        self.cpu = time.thread_time() - (self._began or 0.0)

    def _start(self) -> None:
        if self._began is None:
            self._began = time.thread_time()


@tool
async def look(word: str) -> str:
    """Look a word up."""
    await anyio.sleep(random.Random(word).random())
    return f"found {word}"


def agents(n: int) -> "Graph[None, str, list[str]]":
    """A map over `n` agents, each of which calls a tool before it answers."""
    g = Graph("agents", input=str, output=list[str])

    @g.step
    async def names(ctx: Ctx, text: str) -> list[str]:
        return [f"{text} {i}" for i in range(n)]

    @g.llm(str, tools=[look], max_tokens=400, system="Look things up, then answer.")
    def think(ctx: Ctx, given: str | list[ToolResult]) -> Message:
        return user(given) if isinstance(given, str) else tool_result(given)

    act = g.tools(look)

    @g.step
    async def done(ctx: Ctx, text: str) -> str:
        return text

    def listed(found: Sequence[str]) -> list[str]:
        return list(found)

    g.edge(g.start, names)
    g.map(names, think)
    g.branch(think).case(ToolCalls, act).case(str, done)
    g.edge(act, think)
    g.edge(g.join(done, listed), g.end)
    return g


def answer(request: ScriptedRequest) -> Reply:
    """Three calls, then an answer, each after some seconds."""
    seconds = 2 * random.Random(request.path).random()
    visit = int(request.path.partition("#")[2] or 1)
    if visit < 4:
        return Reply(ToolCall("", "look", {"word": request.path}), seconds=seconds)
    return Reply(final_answer("An answer of some length. " * 8), seconds=seconds)


@dataclass(frozen=True)
class Cost:
    """Of one run, in seconds."""

    wall: float
    process: float
    sink: Measured | None


async def measure(n: int, *, shown: bool) -> Cost:
    """One run of `n` agents."""
    sink: Measured | None = None
    if shown:
        terminal = Console(
            file=io.StringIO(), width=80, height=40, force_terminal=True, color_system="truecolor"
        )
        sink = Measured(ConsoleView(terminal))
    program = agents(n).compile(limits=Limits(turns=6))
    async with ScriptedRuntime(answer) as lm:
        gc.collect()
        gc.freeze()  # what earlier runs left behind is not this one's garbage to look through
        began, cpu = time.monotonic(), time.process_time()
        with Watch(lm.bus, [] if sink is None else [sink]):
            await program.run("What is agent", lm=lm)
        return Cost(time.monotonic() - began, time.process_time() - cpu, sink)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, nargs="+", default=[1, 10, 40])
    options = parser.parse_args()
    print("| agents | events | wall | frames | console | of wall | process with / without |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for n in options.agents:
        without = asyncio.run(measure(n, shown=False))
        cost = asyncio.run(measure(n, shown=True))
        sink = cost.sink
        if sink is not None:
            both = f"{cost.process:.2f} s / {without.process:.2f} s"
            share = f"{1000 * sink.cpu:.0f} ms | {sink.cpu / cost.wall:.2%}"
            run = f"{n} | {sink.events} | {cost.wall:.1f} s | {sink.frames}"
            print(f"| {run} | {share} | {both} |", flush=True)


if __name__ == "__main__":
    main()
