"""The order of eviction: sorted, persistent, and cheap however many leaves there are."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentree.runtime.cache import Cache, Node
from agentree.runtime.cache.order import Entry, Order


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=200))
def test_order_is_a_sorted_list(operations: list[tuple[bool, int]]) -> None:
    order: Order[str] = Order()
    plain: list[Entry[str]] = []
    for number, (add, value) in enumerate(operations):
        if add or not plain:
            entry: Entry[str] = ((value,), number, "")
            order.add(entry)
            plain.append(entry)
            plain.sort()
        else:
            order.remove(plain.pop(value % len(plain)))
        assert list(order) == plain and len(order) == len(plain)
        assert order.first() == (plain[0] if plain else None)


def test_order_grows_and_shrinks_across_runs() -> None:
    order: Order[None] = Order()
    entries: list[Entry[None]] = [((i * 7919 % 5000,), i, None) for i in range(5000)]
    for entry in entries:
        order.add(entry)
    assert list(order) == sorted(entries)
    for entry in entries[::2]:
        order.remove(entry)
    assert list(order) == sorted(entries[1::2])
    for absent in (entries[0], ((9999,), 0, None)):
        with pytest.raises(KeyError):
            order.remove(absent)
    for entry in entries[1::2]:
        order.remove(entry)
    assert order.first() is None and len(order) == 0


@dataclass(frozen=True, eq=False)
class Counted:
    """A key that counts how often it is looked at."""

    last_use: int
    looks: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        Counted.looks += 1
        return isinstance(other, Counted) and self.last_use == other.last_use

    def __lt__(self, other: "Counted") -> bool:
        Counted.looks += 1
        return self.last_use < other.last_use


class Visits:
    """A policy that counts which nodes it ranks."""

    def __init__(self) -> None:
        self.nodes = 0

    def __call__(self, node: Node) -> tuple[Counted]:
        self.nodes += 1
        return (Counted(node.last_use),)


def visits(leaves: int, evict: int) -> tuple[int, int]:
    """(keys compared, nodes ranked) by evicting from a tree with so many leaves of one token."""
    policy = Visits()
    cache = Cache(leaves + 1000, policy=policy)
    for i in range(leaves):
        ids = np.array([i % 10, i], np.int32)
        match = cache.match(ids)
        cache.publish(ids, np.concatenate([match.slots, cache.allocate(2 - match.length)]), match.length)
    assert len(cache._tree.order) == leaves
    # Touching every leaf in between must not leave stale entries for the eviction to step over.
    for i in range(0, leaves, 3):
        cache.match(np.array([i % 10, i], np.int32))
    Counted.looks = policy.nodes = 0
    assert cache.evict(evict) == evict
    counted = Counted.looks, policy.nodes
    if leaves < 2000:
        cache.check()
    return counted


@pytest.mark.parametrize("evict", [1, 64])
def test_eviction_visits_what_it_evicts_and_log_of_the_leaves(evict: int) -> None:
    for leaves in (500, 50_000):
        looks, ranked = visits(leaves, evict)
        assert ranked <= 2 * evict + 2
        assert looks <= 6 * evict * math.log2(leaves)


def test_lru_order_is_exact_over_many_leaves() -> None:
    cache = Cache(5000, policy="lru")
    rng = np.random.default_rng(1)
    for i in range(1000):
        cache.publish(np.array([i, 1, 2], np.int32), cache.allocate(3), 0)
    touched = [int(i) for i in rng.permutation(1000)]
    for i in touched:
        cache.match(np.array([i, 1, 2], np.int32))
    for i in touched:
        assert cache.evict(3) == 3
        assert cache.find_miss(np.array([i, 1, 2], np.int32)) is not None
        miss = cache.find_miss(np.array([i, 1, 2], np.int32))
        assert miss is not None and miss.reason == "evicted" and miss.at == 0
    assert cache.tree == 0


def test_a_full_pool_is_evicted_a_little_ahead_and_never_what_is_leased() -> None:
    cache = Cache(2048)
    kept = cache.publish(range(1024), cache.allocate(1024), 0)
    cache.lease(kept.node, owner="a", next_use=1.0)
    cache.publish(range(2000, 3024), cache.allocate(1024), 0)
    cache.allocate(1)
    assert (cache.free, cache.evicted_tokens) == (4, 5)
    cache.allocate(1022)
    assert (cache.free, cache.evicted_tokens, cache.idle) == (1, 1024, 1024)
    cache.allocate(2)
    assert (cache.free, cache.evicted_tokens) == (0, 1025)
