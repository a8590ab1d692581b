"""Who owns each slot of the KV pool. A slot holds one token's K and V in all layers."""

from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from agentree.runtime.cache.errors import CacheError

Ints: TypeAlias = npt.NDArray[np.int32]


class Owner(IntEnum):
    """At any time a slot is exactly one of these."""

    FREE = 0
    PRIVATE = 1
    """Of one request, which alone knows of it."""
    TREE = 2
    """Of exactly one node of the radix tree."""


class Slots:
    """Ownership of `size` slots, numbered from 0. `free + private + tree == size` always."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"a pool needs at least one slot, not {size!r}")
        self.size = size
        self._owner = np.zeros(size, np.int8)
        # A stack that hands out low numbers first: neighbours in a row tend to be neighbours in memory.
        self._stack = np.arange(size - 1, -1, -1, dtype=np.int32)
        self._place = np.empty(size, np.int32)
        self._counts = [size, 0, 0]

    @property
    def free(self) -> int:
        """Slots that nobody owns."""
        return self._counts[Owner.FREE]

    @property
    def private(self) -> int:
        """Slots owned by requests."""
        return self._counts[Owner.PRIVATE]

    @property
    def tree(self) -> int:
        """Slots owned by nodes of the tree."""
        return self._counts[Owner.TREE]

    def take(self, n: int) -> Ints:
        """`n` free slots, private from now on. The caller has made sure that there are so many."""
        top = self.free
        taken = self._stack[top - n : top][::-1].copy()
        self.move(taken, Owner.FREE, Owner.PRIVATE)
        return taken

    def move(self, slots: Ints, source: Owner, target: Owner) -> None:
        """The one place where ownership changes: all of `slots` pass from `source` to `target`.

        Nothing changes if it raises. Raises CacheError where a slot is not owned by `source`, is named
        twice or does not exist.
        """
        n = len(slots)
        if not n:
            return
        self.require(slots, source)
        self._owner[slots] = target
        self._counts[source] -= n
        self._counts[target] += n
        if target is Owner.FREE:
            self._stack[self.free - n : self.free] = slots

    def require(self, slots: Ints, owner: Owner) -> None:
        """Raise CacheError unless `owner` has all of `slots` and each is named once."""
        order = np.arange(len(slots), dtype=np.int32)
        try:
            strangers = self._owner[slots] != owner
            self._place[slots] = order
        except IndexError as error:
            raise CacheError(f"a slot outside of 0..{self.size - 1} among {slots!r}") from error
        if strangers.any():
            at = int(slots[strangers.argmax()])
            raise CacheError(f"slot {at} is {Owner(int(self._owner[at])).name}, not {owner.name}")
        if (self._place[slots] != order).any():
            raise CacheError(f"a slot occurs twice among {slots!r}")

    def check(self) -> None:
        """Raise CacheError unless counts, states and the free stack agree."""
        counts = [int(n) for n in np.bincount(self._owner, minlength=3)]
        if counts != self._counts:
            raise CacheError(f"slots are counted as {self._counts} but are {counts} (free, private, tree)")
        stack = np.sort(self._stack[: self.free])
        if not np.array_equal(stack, np.flatnonzero(self._owner == Owner.FREE)):
            raise CacheError("the stack of free slots does not hold exactly the free slots")
