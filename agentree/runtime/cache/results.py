"""What the cache hands back: plain values."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from agentree.runtime.cache.holds import Lease, Revocation
from agentree.runtime.cache.node import Node
from agentree.runtime.cache.slots import Ints


class Match(NamedTuple):
    """The longest cached prefix. The slots stay valid while a lock on the node is held."""

    node: Node
    length: int
    slots: Ints


class Published(NamedTuple):
    """All tokens are in the tree now; `slots` is the whole row as the tree has it."""

    node: Node
    slots: Ints
    moved: int
    """Private slots that became the tree's."""
    freed: int
    """Private slots that were freed, because the tree had their tokens already."""


class Discarded(NamedTuple):
    """What `discard_since` took out of the tree."""

    tokens: int
    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True)
class Eviction:
    """Tokens left the tree to make room for `by`."""

    tokens: int
    by: str
    clock: int
    idle: int
    """For how many ticks of the clock the most recently used of them had not been used."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one owner has claimed, in tokens."""

    leased: int
    referenced: int
    evictable: int
    """Of these, how many no lock protects right now."""


Report: TypeAlias = Eviction | Revocation
