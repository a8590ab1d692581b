"""What has left the tree, why and when: remembered within bounds, to explain later misses."""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from agentree.runtime.cache.node import WIDTH, Digests, Space, common

Place: TypeAlias = tuple[Space, int, bytes]
"""Namespace, digest of everything before, first token: where in the tree something used to begin."""


@dataclass(frozen=True, slots=True)
class Ghost:
    """A run of tokens that left the tree."""

    key: bytes
    start: int
    clock: int
    reason: Literal["evicted", "revoked", "discarded"]
    by: str
    """Who needed the room."""
    owner: str
    """Whose lease on it was revoked."""


class Ghosts:
    """The latest of them, up to `records` runs of together at most `tokens` tokens."""

    def __init__(self, *, records: int, tokens: int) -> None:
        self._records = records
        self._tokens = tokens
        self._held = 0
        self._ghosts: OrderedDict[Place, Ghost] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ghosts)

    @property
    def tokens(self) -> int:
        """Tokens remembered."""
        return self._held

    def add(self, space: Space, before: int, after: int, ghost: Ghost) -> None:
        """Remember a run. `before` and `after`: digests of the prefix up to its begin and its end.

        Grows the latest run instead where this one ends where that one begins.
        """
        if self._ghosts:
            place, last = next(reversed(self._ghosts.items()))
            if (
                place[0] == space
                and place[1] == after
                and last.start == ghost.start + len(ghost.key) // WIDTH
                and (last.reason, last.by, last.owner) == (ghost.reason, ghost.by, ghost.owner)
            ):
                self._pop(place)
                ghost = replace(ghost, key=ghost.key + last.key)
        place = (space, before, ghost.key[:WIDTH])
        self._pop(place)
        self._ghosts[place] = ghost
        self._held += len(ghost.key) // WIDTH
        while len(self._ghosts) > self._records or self._held > self._tokens:
            self._pop(next(iter(self._ghosts)))

    def find(self, space: Space, before: int, first: bytes) -> Ghost | None:
        """The run that used to begin with the token `first` after a prefix."""
        return self._ghosts.get((space, before, first))

    def revive(self, space: Space, before: int, key: bytes, start: int) -> None:
        """`key` is back in the tree behind a prefix: keep only what of the old runs lies beyond it."""
        at = 0
        while at < len(key):
            place = (space, before, key[at : at + WIDTH])
            ghost = self._ghosts.get(place)
            if ghost is None:
                return
            self._pop(place)
            same = common(ghost.key, 0, key, at)
            before = Digests.extend(before, key[at : at + same], start + at // WIDTH)
            if same < len(ghost.key):
                rest = replace(ghost, key=ghost.key[same:], start=ghost.start + same // WIDTH)
                self._ghosts[space, before, rest.key[:WIDTH]] = rest
                self._held += len(rest.key) // WIDTH
            at += same

    def _pop(self, place: Place) -> None:
        ghost = self._ghosts.pop(place, None)
        if ghost is not None:
            self._held -= len(ghost.key) // WIDTH
