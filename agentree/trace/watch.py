"""Carries events from a bus to whoever shows or stores them, on a thread of its own.

A thread, so that the view stays alive while a user's step blocks the event loop, and so that a slow
terminal or disk slows neither the engine nor the agents.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from agentree.events import Bus, Event

TICK = 1 / 8
"""Seconds between two drawings, at least."""
SHARE = 0.005
"""Of one thread's time that showing takes while it goes on: the rest of 1 % is for its beginning and end."""
SLOWEST = 2.0
"""Seconds between two drawings, at most: the view goes on whatever it takes."""
PAUSE = 0.1
"""Seconds that events may gather before they are taken as one batch."""
CAPACITY = 200_000
"""Events that may wait before the oldest are dropped."""


class Sink(Protocol):
    """Somewhere events go. All methods are called from one thread."""

    def feed(self, batch: Sequence[Event]) -> None:
        """Take new events, oldest first."""
        ...

    def tick(self) -> None:
        """Draw, where there is something to draw on. Called a few times a second."""
        ...

    def close(self) -> None:
        """No more events come."""
        ...


class Watch:
    """Feeds sinks while its `with` block runs; leaving it delivers what is left and closes them.

    A sink that raises gets nothing more and stands in `failures`; the others and the run go on.
    """

    def __init__(self, bus: Bus, sinks: Sequence[Sink]) -> None:
        self.failures: list[tuple[Sink, Exception]] = []
        self._bus = bus
        self._sinks = list(sinks)
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="agentree-trace", daemon=True)

    def __enter__(self) -> Self:
        self._subscription = self._bus.subscribe(self._wake.set, capacity=CAPACITY)
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None, /
    ) -> None:
        self._bus.unsubscribe(self._subscription)
        self._stop.set()
        self._wake.set()
        try:
            self._thread.join()
        except KeyboardInterrupt:
            self._thread.join(timeout=1.0)
            raise

    def _loop(self) -> None:
        due, spent = 0.0, time.thread_time()
        while not self._stop.wait(PAUSE):
            self._wake.wait(max(due - time.monotonic(), 0.0))
            self._wake.clear()
            self._deliver()
            if time.monotonic() >= due:
                self._each(lambda sink: sink.tick())
                used, spent = time.thread_time() - spent, time.thread_time()
                due = time.monotonic() + max(TICK, min(used / SHARE, SLOWEST))
        self._deliver()
        self._each(lambda sink: sink.close())

    def _deliver(self) -> None:
        batch = self._subscription.take()
        if batch:
            self._each(lambda sink: sink.feed(batch))

    def _each(self, action: Callable[[Sink], None]) -> None:
        for sink in list(self._sinks):
            try:
                action(sink)
            except Exception as error:
                self.failures.append((sink, error))
                self._sinks.remove(sink)
                with suppress(Exception):  # what it holds, a terminal's state for one, is still given back
                    sink.close()
