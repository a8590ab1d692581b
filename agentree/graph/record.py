"""What was generated in a run, as the engine tells it: also what steps generate by themselves."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from agentree.events import Bus, GenerationEnded


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

    def __len__(self) -> int:
        """How many have ended so far."""
        with self._lock:
            return len(self._ended)

    def spent(self, path: str, *, since: int) -> int:
        """Prompt and output tokens of a visit's own generations, without the first `since` of the run."""
        with self._lock:
            found = self._ended[since:]
        return sum(
            e.prompt_tokens + e.sampled_tokens + e.forced_tokens
            for e in found
            if e.path == path or e.path.startswith(f"{path}[")
        )

    @contextmanager
    def listening(self, bus: Bus) -> Generator[None]:
        """Record what the bus carries while the block lasts, on whatever thread emits it."""

        def take() -> None:
            # The text is in the transcript: kept here, it would be there twice.
            found = [replace(e, text="") for e in subscription.take() if isinstance(e, GenerationEnded)]
            with self._lock:
                self._ended += found

        subscription = bus.subscribe(lambda: None, run=self._run)
        subscription.wake = take
        try:
            yield
        finally:
            bus.unsubscribe(subscription)
