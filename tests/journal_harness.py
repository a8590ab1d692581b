"""Stops runs at a write of their journal or at a step, and reads what was written."""

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentree.errors import AgentreeError, JournalError
from agentree.graph import Ctx, Graph, Program
from agentree.graph.journal.facts import Fact, Status
from agentree.graph.journal.file import JournalFile

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""A folder in memory where there is one: what is tested is the order of writes, not the disk's patience."""


@contextmanager
def stopping(after: int) -> Generator[None]:
    """So many writes work, then none."""
    real, left = JournalFile.append, [after]

    def append(self: JournalFile, run: str, facts: Sequence[Fact], status: Status | None = None) -> bool:
        left[0] -= 1
        if left[0] < 0:
            raise JournalError("stopped here")
        return real(self, run, facts, status)

    JournalFile.append = append
    try:
        yield
    finally:
        JournalFile.append = real


def facts(journal: Path) -> Sequence[Fact]:
    """All of the run "run"."""
    file = JournalFile(journal)
    found = file.facts("run")
    file.close()
    return found


def generated(journal: Path) -> list[tuple[str, str]]:
    """Place and content (all tokens before it, the seed, the limits) of each generation."""
    return sorted((fact.path, fact.body["key"]) for fact in facts(journal) if fact.kind == "generation")


def ended(journal: Path) -> list[str]:
    """Places of visits that ended."""
    return sorted(fact.path for fact in facts(journal) if fact.kind == "node ended")


class Stop(AgentreeError):
    """Stops a run where a test wants it, also from inside of a tool."""


def once() -> Callable[[], None]:
    """Raises Stop at its first call."""
    left = [True]

    def stop() -> None:
        if left:
            left.pop()
            raise Stop

    return stop


def echo(name: str = "echo", *, out: Any = str, state: Any = None, fn: Any = None) -> Program[Any, str, Any]:
    """A program of one step, which gives what it is given or what `fn(ctx, text)` makes of it."""
    g: Any = Graph(name, state=state, input=str, output=out)

    async def say(ctx: Ctx[Any], text: str) -> Any:
        return fn(ctx, text) if fn else text

    say.__annotations__["return"] = out
    node = g.step(say)
    g.edge(g.start, node)
    g.edge(node, g.end)
    return g.compile()
