"""Who owns each slot of the KV pool. A slot holds one token's K and V in all layers."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from agentree.runtime.cache.errors import CacheError

Ints: TypeAlias = npt.NDArray[np.int32]


FREE, PRIVATE, TREE = range(3)
"""A slot is exactly one of: nobody's, private to one request which alone knows of it, one tree node's."""

NAMES = ("free", "private", "tree")


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
        return self._counts[FREE]

    @property
    def private(self) -> int:
        """Slots owned by requests."""
        return self._counts[PRIVATE]

    @property
    def tree(self) -> int:
        """Slots owned by nodes of the tree."""
        return self._counts[TREE]

    def take(self, n: int) -> Ints:
        """`n` free slots, private from now on. The caller has made sure that there are so many."""
        top = self.free
        taken = self._stack[top - n : top][::-1].copy()
        self.move(taken, FREE, PRIVATE)
        return taken

    def move(self, slots: Ints, source: int, target: int) -> None:
        """The one place where ownership changes: all of `slots` pass from `source` to `target`.

        Slots that come from outside of the cache go through `require` first.
        """
        n = len(slots)
        self._owner[slots] = target
        self._counts[source] -= n
        self._counts[target] += n
        if target == FREE:
            self._stack[self.free - n : self.free] = slots

    def require(self, slots: Ints, owner: int) -> None:
        """Raise CacheError unless `owner` has all of `slots` and each is named once."""
        at = slots.astype(np.intp)
        order = np.arange(len(at), dtype=np.int32)
        try:
            owners = self._owner.take(at)
            self._place[at] = order
        except IndexError as error:
            raise CacheError(f"a slot outside of 0..{self.size - 1} among {slots!r}") from error
        if owners.tobytes() != bytes((owner,)) * len(at):
            first = int((owners != owner).argmax())
            raise CacheError(f"slot {slots[first]} is {NAMES[owners[first]]}, not {NAMES[owner]}")
        if self._place.take(at).tobytes() != order.tobytes():
            raise CacheError(f"a slot occurs twice among {slots!r}")

    def check(self) -> None:
        """Raise CacheError unless counts, states and the free stack agree."""
        counts = [int(n) for n in np.bincount(self._owner, minlength=3)]
        if counts != self._counts:
            raise CacheError(f"slots are counted as {self._counts} but are {counts} (free, private, tree)")
        stack = np.sort(self._stack[: self.free])
        if not np.array_equal(stack, np.flatnonzero(self._owner == FREE)):
            raise CacheError("the stack of free slots does not hold exactly the free slots")
