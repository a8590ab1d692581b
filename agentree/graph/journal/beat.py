"""Tells now and then that a process works on a run, so that a limit in seconds holds also if it is killed."""

import threading
from contextlib import suppress

from agentree.errors import JournalError
from agentree.graph.journal.file import JournalFile

PERIOD = 1.0
"""Seconds between two signs of life: so much more or less a limit is exact for each time a run is killed."""


class Beat:
    """A thread that writes the time into the run's row: also while a step keeps the event loop waiting."""

    def __init__(self, file: JournalFile, run: str) -> None:
        self._file = file
        self._run = run
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, if it has not begun."""
        if self._thread is None and not self._over.is_set():
            self._thread = threading.Thread(target=self._go, name=f"beat of {self._run}", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End it; returns once nothing is being written any more. Harmless when it never began."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _go(self) -> None:
        while not self._over.wait(PERIOD):
            # A file that can't be written to stops the run at its next fact, with the reason.
            with suppress(JournalError):
                self._file.beat(self._run)


def worked_until(last: float, beat: float, now: float) -> float:
    """When a process that was killed stopped to work on a run, at the latest.

    Args:
        last: Time of its last fact.
        beat: When it told last that it works; earlier than `last` where it had no need to.
        now: When another process goes on.
    """
    return max(last, min(max(last, beat) + PERIOD, now))
