"""One edge of the radix tree, and how token ids are compared."""

from collections.abc import Hashable
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from agentree.runtime.cache.slots import Ints

if TYPE_CHECKING:
    from agentree.runtime.cache.holds import Lease, Reference
    from agentree.runtime.cache.order import Entry

WIDTH = 4
"""Bytes of a token id: edges are kept as the bytes of int32 ids, which compare at the speed of memcmp."""

Space: TypeAlias = tuple[object, ...]
"""A namespace with the type of each part beside it, so that 1, 1.0, True and "1" are four tenants."""


def typed(namespace: Hashable) -> Space:
    """The key of a namespace. Tuples are taken apart; other values count with their type."""
    if isinstance(namespace, tuple):
        parts = cast("tuple[Hashable, ...]", namespace)
        return (type(parts), *map(typed, parts))
    return (type(namespace), namespace)


def spelled(space: Space) -> str:
    """A namespace as its owner wrote it: the inverse of `typed`, for people to read."""
    return repr(_plain(space))


def _plain(space: object) -> object:
    kind, *parts = cast("tuple[type, *tuple[object, ...]]", space)
    return tuple(map(_plain, parts)) if issubclass(kind, tuple) else parts[0]


class Node:
    """The tokens between two branching points, with the slots that hold their K and V.

    `locks`, `leases` and `references` count the holds on this node and on all nodes below it, so a hold on
    a node covers its whole path. What is held right here is in `leased_by` and `referred_by`.
    """

    __slots__ = (
        "attached", "born", "children", "dead", "digest", "entry", "key", "last_use", "leased_by", "leases",
        "locks", "number", "parent", "references", "referred_by", "revoked", "slots", "space", "start",
    )  # fmt: skip

    def __init__(
        self,
        *,
        number: int,
        parent: "Node | None",
        space: Space,
        key: bytes,
        slots: Ints,
        start: int,
        now: int,
    ) -> None:
        self.number = number
        self.parent = parent
        self.space = space
        self.key = key
        self.slots = slots
        self.start = start
        """Position of the first token in the sequence."""
        self.born = now
        """When these tokens were published. Never later than any node below."""
        self.last_use = now
        """When they were last matched or published. Never earlier than any node below."""
        self.children: dict[bytes, Node] = {}
        self.locks = 0
        self.leases = 0
        self.references = 0
        self.leased_by: list[Lease] | None = None
        self.referred_by: list[Reference] | None = None
        self.dead = False
        """Its last user said that it was the last."""
        self.revoked: str | None = None
        """Who held the last lease on it, if that was revoked."""
        self.attached = True
        """False once it has left the tree."""
        self.entry: Entry[Node] | None = None
        """Where it stands in the order of eviction; None while it can't be evicted."""
        self.digest = 0
        """Hash of the sequence up to the end of this node: names a prefix after it has left the tree."""

    def __len__(self) -> int:
        return len(self.slots)

    def __repr__(self) -> str:
        return f"<node {self.number}: tokens {self.start}..{self.start + len(self)}>"

    @property
    def next_use(self) -> float:
        """When a lease or reference right here expects to need it; infinite if none says."""
        holds = (*(self.leased_by or ()), *(self.referred_by or ()))
        return min((hold.next_use for hold in holds), default=float("inf"))


def common(a: bytes, at_a: int, b: bytes, at_b: int) -> int:
    """Length in bytes, whole tokens, of the common prefix of `a[at_a:]` and `b[at_b:]`.

    Gallops: doubling windows are compared as slices, and only the first that differs is looked into.
    """
    limit = min(len(a) - at_a, len(b) - at_b)
    done, window = 0, 16 * WIDTH
    while done < limit:
        stop = min(limit, done + window)
        left, right = a[at_a + done : at_a + stop], b[at_b + done : at_b + stop]
        if left != right:
            differs = np.frombuffer(left, np.int32) != np.frombuffer(right, np.int32)
            return done + WIDTH * int(differs.argmax())
        done, window = stop, 2 * window
    return limit


class Digests:
    """Multilinear hashing modulo 2**64: each position has its weight, a prefix hashes to a weighted sum.

    Extending a prefix adds to its digest, whichever way the tokens are cut into nodes.
    """

    _weights: npt.NDArray[np.uint64] = np.empty(0, np.uint64)

    @classmethod
    def extend(cls, digest: int, key: bytes, start: int) -> int:
        """Digest of a prefix of length `start` with digest `digest`, followed by the tokens of `key`."""
        ids = np.frombuffer(key, np.int32).astype(np.uint64) + np.uint64(1)
        stop = start + len(ids)
        weights = cls._weights
        if stop > len(weights):
            cls._weights = weights = _weights(2 * stop)
        return (digest + int(np.dot(ids, weights[start:stop]))) & 0xFFFF_FFFF_FFFF_FFFF


def _weights(n: int) -> npt.NDArray[np.uint64]:
    """Pseudo-random odd numbers for positions below `n`: the finalizer of splitmix64 over a Weyl sequence."""
    z = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)
