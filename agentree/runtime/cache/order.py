"""A sorted collection that persists between evictions: nothing is ever rebuilt over all of its members."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")

Key: TypeAlias = tuple[Any, ...]
Entry: TypeAlias = tuple[Key, int, T]
"""(key, unique number, member): the number decides between equal keys, members are never compared."""

LOAD = 256


class Order(Generic[T]):
    """Members by ascending key. Adding, removing and finding the first compare O(log n) keys.

    A list of sorted runs of at most `2 * LOAD` entries: both the run and the place in it are found by
    bisection, so that the work which does grow with the size is moving pointers within one run.
    """

    def __init__(self) -> None:
        self._runs: list[list[Entry[T]]] = []
        self._last: list[Entry[T]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Entry[T]]:
        for run in self._runs:
            yield from run

    def first(self) -> Entry[T] | None:
        """The entry with the smallest key."""
        return self._runs[0][0] if self._runs else None

    def add(self, entry: Entry[T]) -> None:
        """Put an entry in its place."""
        self._size += 1
        if not self._runs:
            self._runs.append([entry])
            self._last.append(entry)
            return
        at = bisect_left(self._last, entry)
        if at == len(self._last):
            at -= 1
            run = self._runs[at]
            run.append(entry)
            self._last[at] = entry
        else:
            run = self._runs[at]
            insort(run, entry)
        if len(run) > 2 * LOAD:
            upper = run[LOAD:]
            del run[LOAD:]
            self._last[at] = run[-1]
            self._runs.insert(at + 1, upper)
            self._last.insert(at + 1, upper[-1])

    def remove(self, entry: Entry[T]) -> None:
        """Take an entry out. Raises KeyError for one that is not in."""
        at = bisect_left(self._last, entry)
        if at == len(self._last):
            raise KeyError(entry)
        run = self._runs[at]
        place = bisect_left(run, entry)
        if run[place] is not entry:
            raise KeyError(entry)
        del run[place]
        self._size -= 1
        if not run:
            del self._runs[at], self._last[at]
        elif place == len(run):
            self._last[at] = run[-1]
