"""What was generated in a run, as the engine tells it: also what steps generate by themselves."""

import threading
from collections.abc import Generator
from contextlib import contextmanager

from agentree.events import Bus, Event, GenerationEnded


class Recorder:
    """The finished generations of one run, in the order they ended."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._ended: list[GenerationEnded] = []

    @property
    def generations(self) -> list[GenerationEnded]:
        """Those so far."""
        with self._lock:
            return list(self._ended)

    @contextmanager
    def listening(self, bus: Bus) -> Generator[None]:
        """Record what the bus carries while the block lasts, on whatever thread emits it."""

        def take() -> None:
            found = [e for e in subscription.take() if self._is_ours(e)]
            if found:
                with self._lock:
                    self._ended.extend(e for e in found if isinstance(e, GenerationEnded))

        subscription = bus.subscribe(lambda: None)
        subscription.wake = take
        try:
            yield
        finally:
            bus.unsubscribe(subscription)

    def _is_ours(self, event: Event) -> bool:
        return isinstance(event, GenerationEnded) and event.run == self._run
