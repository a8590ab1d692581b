"""The journal of one run while it goes on: facts are noted at once, and durable before a successor starts."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from agentree.errors import JournalError
from agentree.graph.journal.beat import Beat
from agentree.graph.journal.facts import Fact, Kind, Status
from agentree.graph.journal.file import JournalFile
from agentree.graph.journal.lock import RunLock
from agentree.graph.journal.past import Past

PAUSE = 0.5
"""Seconds between two looks whether somebody wants the run to stop."""


class RunLog:
    """Collects the facts of one run and writes them in order, those of several branches together.

    Writing happens in a worker thread, one transaction at a time: whoever waits for facts of its own finds
    those of the others written with them.
    """

    def __init__(self, file: JournalFile, lock: RunLock, run: str, past: Past) -> None:
        self.run = run
        self.past = past
        self.stopped: Callable[[], None] = lambda: None
        """Called when somebody has asked to cancel the run."""
        self.cancelled = False
        """Whether it was."""
        self._file = file
        self._run_lock = lock
        self._beat = Beat(file, run)
        self._waiting: list[Fact] = []
        self._noted = 0
        self._durable = 0
        self._broken: JournalError | None = None
        self._lock = anyio.Lock()
        self._limiter = anyio.CapacityLimiter(1)

    def note(self, kind: Kind, path: str, **body: Any) -> Fact:
        """Add a fact. It is durable after the next `sync`."""
        fact = Fact(kind, path, body, time.time())
        self._waiting.append(fact)
        self._noted += 1
        return fact

    def withdraw(self, fact: Fact) -> bool:
        """Take a fact back that is not written yet; False where it is, or is being written."""
        at = next((i for i, one in enumerate(self._waiting) if one is fact), None)
        if at is None:
            return False
        del self._waiting[at]
        self._noted -= 1
        return True

    async def sync(self, status: Status | None = None) -> None:
        """Return once everything noted so far is durable.

        Raises JournalError where it can't be written, now and ever after: the file must not have gaps.
        """
        mine = self._noted
        if self._durable >= mine and status is None and self._broken is None:
            return
        async with self._lock:
            if self._broken is not None:
                raise JournalError(str(self._broken)) from self._broken
            if self._durable >= mine and status is None:
                return
            facts, self._waiting = self._waiting, []
            await self._write(facts, status)

    async def _write(self, facts: Sequence[Fact], status: Status | None) -> None:
        stop = False
        with anyio.CancelScope(shield=True):
            try:
                stop = await anyio.to_thread.run_sync(
                    partial(self._file.append, self.run, facts, status), limiter=self._limiter
                )
            except JournalError as e:
                self._broken = e
                raise
        self._durable += len(facts)
        if stop and status is None:
            self._stop()

    async def listen(self, over: anyio.Event) -> None:
        """Hear of a cancellation also while no fact is written, until the run is over."""
        while not over.is_set():
            with anyio.move_on_after(PAUSE):
                await over.wait()
            if self._run_lock.rung() and not over.is_set() and await self._is_unwanted():
                self._stop()
                return

    async def _is_unwanted(self) -> bool:
        with suppress(JournalError):  # the next fact tells what is wrong with the file
            header = await anyio.to_thread.run_sync(self._file.header, self.run, limiter=self._limiter)
            return header.stop
        return False

    def _stop(self) -> None:
        self.cancelled = True
        self.stopped()

    def keep_time(self) -> None:
        """From now on tell that the run is worked on: somebody limits the time of it."""
        self._beat.start()

    async def close(self) -> None:
        """Nobody works on the run any more."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._beat.stop)

    async def answers(self) -> dict[str, Any]:
        """Answers given so far, by question."""
        return await anyio.to_thread.run_sync(self._file.answers, self.run, limiter=self._limiter)

    async def end(self, status: Status, **body: Any) -> None:
        """Write the run's end, and whatever was noted before it."""
        with anyio.CancelScope(shield=True):
            self.note("waiting" if status == "waiting" else "ended", "", status=status, **body)
            await self.sync(status)
