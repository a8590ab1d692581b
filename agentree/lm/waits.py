"""How long agents are away between two uses of what they hold: measured, and expected from the mean."""

import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

UNKNOWN = 1.0
"""Seconds that are expected while nothing was measured."""
WEIGHT = 32
"""Measurements that a mean remembers: older ones fade, as what a tool does may change."""

_PLACE = re.compile(r"\[\d+\]|#\d+")


def after(path: str) -> str:
    """What an agent does after a visit that calls no tool: the same for every branch and visit of a node."""
    return f"after {_PLACE.sub('', path)}"


def tool(name: str) -> str:
    """What an agent does that has called a tool."""
    return f"tool {name}"


@dataclass
class _Mean:
    seconds: float = 0.0
    count: int = 0

    def add(self, seconds: float) -> None:
        self.count = min(self.count + 1, WEIGHT)
        self.seconds += (seconds - self.seconds) / self.count


class Waits:
    """Mean seconds for each thing that agents do while they are away. Safe from any thread.

    A turn may start several things, which run side by side: their set has a mean of its own, and until it has
    been seen the longest of them counts.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._means: dict[tuple[str, ...], _Mean] = {}
        self._overall = _Mean()
        self._away: dict[str, tuple[tuple[str, ...], float]] = {}

    def expect(self, what: Iterable[str]) -> float:
        """Seconds that an agent is expected to be away for these things."""
        with self._lock:
            return self._expect(_key(what))

    def leave(self, owner: str, what: Iterable[str]) -> float:
        """An owner goes away to do these things; returns the seconds until it is expected back."""
        key = _key(what)
        with self._lock:
            self._away[owner] = key, self._clock()
            return self._expect(key)

    def back(self, owner: str) -> None:
        """An owner uses what it holds again. Harmless if it was not away."""
        with self._lock:
            key, since = self._away.pop(owner, (None, 0.0))
            if key is not None:
                seconds = self._clock() - since
                self._means.setdefault(key, _Mean()).add(seconds)
                self._overall.add(seconds)

    def forget(self, owner: str) -> None:
        """An owner will not come back: that tells nothing of how long anything takes."""
        with self._lock:
            self._away.pop(owner, None)

    def forget_run(self, run: str) -> None:
        """The same for all owners named `run` or `run/...`."""
        with self._lock:
            for owner in [o for o in self._away if o == run or o.startswith(f"{run}/")]:
                del self._away[owner]

    def _expect(self, key: tuple[str, ...]) -> float:
        if found := self._means.get(key):
            return found.seconds
        parts = [found.seconds for part in key if (found := self._means.get((part,)))]
        if parts:
            return max(parts)
        return self._overall.seconds if self._overall.count else UNKNOWN


def _key(what: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(what)))
