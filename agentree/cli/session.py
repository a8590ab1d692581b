"""Runs something over a runtime while its events are shown and stored."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from agentree.cli.files import TraceFile
from agentree.cli.report import DONE, FAILED
from agentree.cli.watching import view, watching
from agentree.lm import Runtime
from agentree.trace import Sink

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What the work gave, and the exit code: it failed if a trace that was asked for is incomplete."""

    value: T
    code: int


def run_over(
    model: str | None, work: Callable[[Runtime], Awaitable[T]], *, trace: str | None, quiet: bool
) -> Outcome[T]:
    """Open a runtime, do the work, close it; Ctrl-C and SIGTERM cancel the work and still close
    everything.

    Raises KeyboardInterrupt after a clean end by either, and whatever the work raises.
    """
    sinks: list[Sink] = []
    if trace is not None:
        sinks.append(TraceFile(trace))
    if not quiet and (shown := view()) is not None:
        sinks.append(shown)
    lm = Runtime(model) if model else Runtime()

    async def job() -> T:
        async with lm:
            return await work(lm)

    with watching(lm.bus, sinks) as watch:
        value = asyncio.run(job())
    return Outcome(value, FAILED if watch.failures else DONE)
