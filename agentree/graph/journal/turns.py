"""Connections of one process to one file write in turns.

SQLite makes writers wait by sleeping and trying again, without an order: a hundred of them starve some. So it
is left to decide between processes only.
"""

import os
import threading
from pathlib import Path
from weakref import WeakValueDictionary


class Turn:
    """Held by the connection that writes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class _Turns:
    """Those of this process, by file, as long as somebody has it open."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as a forked child must: it has none of the threads that may hold a lock."""
        self._lock = threading.Lock()
        self._known: WeakValueDictionary[Path, Turn] = WeakValueDictionary()

    def of(self, path: Path) -> Turn:
        with self._lock:
            turn = self._known.get(path)
            if turn is None:
                turn = self._known[path] = Turn()
            return turn


_turns = _Turns()
os.register_at_fork(after_in_child=_turns.forget)


def turn_of(path: Path) -> Turn:
    """The turn of a file, by its resolved path: the same for all who have it open in this process."""
    return _turns.of(path)
