"""Matching, splitting, publishing, locking, namespaces, failed steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentree.errors import AgentreeError
from agentree.runtime.cache import Cache, CacheError, Lock, OutOfSlots, Published
from agentree.runtime.cache.node import Digests, common, typed

SPACE = ("model", "", "")


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def put(cache: Cache, tokens: np.ndarray, namespace: object = SPACE, *, by: str = "") -> Published:
    """Compute and publish a prompt as a request would, and end it."""
    match = cache.match(tokens, namespace)
    lock = cache.lock(match.node)
    row = np.concatenate([match.slots, cache.allocate(len(tokens) - match.length, by=by)])
    published = cache.publish(tokens, row, match.length, namespace)
    cache.unlock(lock)
    cache.check()
    return published


@given(st.binary(max_size=600), st.integers(0, 600), st.integers(0, 3))
def test_common_prefix_is_the_naive_one(text: bytes, at: int, skip: int) -> None:
    a = np.frombuffer(text, np.uint8).astype(np.int32)
    b = a.copy()
    b[at:] += 1
    skip = min(skip, len(a))
    naive = 0
    while naive < len(a) - skip and a[naive + skip] == b[naive + skip]:
        naive += 1
    assert common(a.tobytes(), 4 * skip, b.tobytes(), 4 * skip) == 4 * naive


@given(st.lists(st.integers(0, 49151), max_size=40), st.integers(0, 40))
def test_digest_does_not_depend_on_cuts(tokens: list[int], cut: int) -> None:
    key = ids(*tokens).tobytes()
    cut = min(cut, len(tokens))
    upper = Digests.extend(7, key[: 4 * cut], 3)
    assert Digests.extend(upper, key[4 * cut :], 3 + cut) == Digests.extend(7, key, 3)


def test_match_inside_an_edge_splits_there() -> None:
    cache = Cache(100)
    row = put(cache, np.arange(10, dtype=np.int32)).slots
    match = cache.match(ids(0, 1, 2, 3, 99), SPACE)
    assert match.length == 4 and list(match.slots) == list(row[:4])
    assert cache.nodes == 2
    cache.check()


def test_match_refreshes_the_half_that_it_matched() -> None:
    """A partly matched edge must not keep its old time as a whole."""
    cache = Cache(20, policy="lru")
    put(cache, np.arange(10, dtype=np.int32))
    put(cache, np.arange(100, 110, dtype=np.int32))
    cache.match(ids(0, 1, 2, 3, 4), SPACE)
    assert cache.evict(5) == 5
    assert cache.match(np.arange(10, dtype=np.int32), SPACE).length == 5
    assert cache.match(np.arange(100, 110, dtype=np.int32), SPACE).length == 10


def test_publish_remaps_duplicates() -> None:
    """Two requests compute the same prompt in one batch: one row survives, the other is remapped to it."""
    cache = Cache(100)
    tokens = np.arange(10, dtype=np.int32)
    first, second = cache.allocate(10), cache.allocate(10)
    one = cache.publish(tokens, first, 0, SPACE)
    two = cache.publish(tokens, second, 0, SPACE)
    assert (one.moved, one.freed) == (10, 0) and (two.moved, two.freed) == (0, 10)
    assert list(two.slots) == list(first) and two.node is one.node
    assert (cache.free, cache.private, cache.tree) == (90, 0, 10)
    again = cache.allocate(10)
    assert not set(again) & set(two.slots)
    cache.check()


def test_rows_grow_in_chunks() -> None:
    """One boundary between tree and private, whatever the chunks; the end meets what another published."""
    cache = Cache(100)
    tokens = np.arange(30, dtype=np.int32)
    row, owned, lock = ids(), 0, None
    other = put(cache, tokens[:20])
    for stop in (7, 15, 30):
        row = np.concatenate([row, cache.allocate(stop - len(row))])
        published = cache.publish(tokens[:stop], row, owned, SPACE)
        row, owned = published.slots, stop
        before, lock = lock, cache.lock(published.node)
        if before is not None:
            cache.unlock(before)
        cache.check()
    assert list(row[:20]) == list(other.slots)
    assert cache.match(tokens, SPACE).length == 30
    assert cache.locked == cache.tree == 30


def test_generated_tokens_are_found_next_turn() -> None:
    cache = Cache(300)
    turn = np.arange(150, dtype=np.int32)
    put(cache, turn)
    match = cache.match(np.arange(200, dtype=np.int32)[:-1], SPACE)
    assert match.length == 150


def test_empty_and_full_hits() -> None:
    cache = Cache(10)
    empty = cache.match(ids(), SPACE)
    assert empty.length == 0 and len(empty.slots) == 0
    nothing = cache.publish(ids(), ids(), 0, SPACE)
    assert (nothing.moved, nothing.freed) == (0, 0)
    cache.unlock(cache.lock(empty.node))
    put(cache, ids(1, 2, 3))
    assert cache.match(ids(1, 2, 3), SPACE).length == 3
    assert put(cache, ids(1, 2, 3)).moved == 0
    assert cache.find_miss(ids(), SPACE) is None
    cache.check()


def test_locked_leaf_survives_evict_all() -> None:
    cache = Cache(100)
    put(cache, np.arange(10, dtype=np.int32))
    put(cache, np.arange(50, 60, dtype=np.int32))
    match = cache.match(np.arange(5, dtype=np.int32), SPACE)
    lock = cache.lock(match.node)
    assert cache.evict(1000) == 15
    assert cache.match(np.arange(10, dtype=np.int32), SPACE).length == 5
    assert (cache.tree, cache.locked, cache.evictable) == (5, 5, 0)
    cache.unlock(lock)
    assert cache.evict(1000) == 5 and cache.tree == 0
    cache.check()


def test_lock_covers_exactly_the_matched_tokens_after_splits() -> None:
    cache = Cache(100)
    published = put(cache, np.arange(10, dtype=np.int32))
    lock = cache.lock(published.node)
    cache.match(np.arange(4, dtype=np.int32), SPACE)
    cache.match(np.arange(7, dtype=np.int32), SPACE)
    assert cache.locked == 10 and cache.evict(10) == 0
    cache.unlock(lock)
    assert cache.locked == 0 and cache.evict(10) == 10
    cache.check()


def test_receipts_are_good_once() -> None:
    cache = Cache(10)
    lock = cache.lock(put(cache, ids(1, 2)).node)
    cache.unlock(lock)
    with pytest.raises(CacheError, match="given back before"):
        cache.unlock(lock)
    with pytest.raises(CacheError, match="not held"):
        cache.unlock(Lock(lock.node))
    cache.check()


def test_evicted_nodes_can_not_be_locked_or_leased() -> None:
    cache = Cache(10)
    node = put(cache, ids(1, 2, 3)).node
    cache.evict(1)
    with pytest.raises(CacheError, match="has been evicted"):
        cache.lock(node)
    with pytest.raises(CacheError, match="has been evicted"):
        cache.lease(node, owner="a", next_use=1)
    assert cache.match(ids(1, 2, 3), SPACE).length == 2
    cache.check()


def test_out_of_slots_names_the_numbers_and_changes_nothing() -> None:
    cache = Cache(20)
    put(cache, np.arange(10, dtype=np.int32))
    lock = cache.lock(cache.match(np.arange(4, dtype=np.int32), SPACE).node)
    held = cache.allocate(6)
    with pytest.raises(OutOfSlots, match=r"11 slots are needed; 4 are free and 6 more") as caught:
        cache.allocate(11)
    assert (caught.value.needed, caught.value.free, caught.value.evictable) == (11, 4, 6)
    assert isinstance(caught.value, AgentreeError)
    assert (cache.free, cache.private, cache.tree) == (4, 6, 10)
    assert len(cache.allocate(10)) == 10
    cache.release(held)
    cache.unlock(lock)
    cache.check()


def test_eviction_takes_no_more_than_asked_for() -> None:
    cache = Cache(100)
    put(cache, np.arange(60, dtype=np.int32))
    assert cache.evict(7) == 7
    assert cache.tree == 53 and cache.evicted_tokens == 7
    assert cache.match(np.arange(60, dtype=np.int32), SPACE).length == 53


@pytest.mark.parametrize("slots", [[0], [0, 0], [99], [-1], [7]])
def test_release_refuses_what_is_not_private(slots: list[int]) -> None:
    cache = Cache(10)
    put(cache, ids(1, 2, 3))
    mine = cache.allocate(2)
    before = (cache.free, cache.private, cache.tree)
    wrong = [*slots, int(mine[0])] if slots == [0] else slots
    with pytest.raises(CacheError):
        cache.release(wrong)
    with pytest.raises(CacheError):
        cache.release([int(mine[0]), int(mine[0])])
    assert (cache.free, cache.private, cache.tree) == before
    cache.release(mine)
    cache.check()


def test_publish_refuses_rows_that_are_not_the_trees() -> None:
    cache = Cache(20)
    put(cache, ids(1, 2, 3))
    row = cache.allocate(3)
    with pytest.raises(CacheError, match="not what the tree has"):
        cache.publish(ids(1, 2, 3), row, 3, SPACE)
    with pytest.raises(CacheError, match="not what the tree has"):
        cache.publish(ids(7, 8, 9), row, 1, SPACE)
    with pytest.raises(CacheError, match="is tree, not private"):
        cache.publish(ids(7, 8, 9), ids(*row[:2], 0), 0, SPACE)
    with pytest.raises(CacheError, match="twice"):
        cache.publish(ids(1, 2, 3, 4), ids(*row, row[0]), 0, SPACE)
    with pytest.raises(ValueError, match="do not fit together"):
        cache.publish(ids(1, 2), row, 0, SPACE)
    assert (cache.private, cache.tree) == (3, 3)
    cache.check()


def test_arguments() -> None:
    with pytest.raises(ValueError, match="at least one slot"):
        Cache(0)
    with pytest.raises(ValueError, match="choose one of"):
        Cache(5, policy="mru")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="-1"):
        Cache(5).allocate(-1)


NAMESPACES: list[object] = [
    (), ("",), ("", ""), "a", ("a",), (("a",),), ("a", "b"), ("a", ("b",)), (("a", "b"),), ("ab",),
    1, 1.0, True, "1", (1,), (1.0,), (True,), ("1",), None, (None,), b"a", (b"a",), frozenset("a"),
]  # fmt: skip


def test_namespaces_never_collide() -> None:
    cache = Cache(200)
    for namespace in NAMESPACES:
        assert put(cache, ids(1, 2, 3), namespace).moved == 3, namespace
    assert cache.tree == 3 * len(NAMESPACES)
    assert len({typed(n) for n in NAMESPACES}) == len(NAMESPACES)


def test_two_salts_share_nothing() -> None:
    cache = Cache(100)
    put(cache, np.arange(10, dtype=np.int32), ("m", "", "alice"))
    assert cache.match(np.arange(10, dtype=np.int32), ("m", "", "bob")).length == 0
    assert cache.match(np.arange(10, dtype=np.int32), ("m", "", "alice")).length == 10


def test_empty_namespaces_leave_nothing_behind() -> None:
    cache = Cache(10)
    for salt in range(1000):
        put(cache, ids(1, 2, 3), ("m", str(salt)))
        cache.match(ids(5), ("n", str(salt)))
    assert len(cache._tree.roots) <= 4
    cache.evict(10)
    assert not cache._tree.roots
    cache.check()


def test_discard_takes_what_was_published_since() -> None:
    """Also where it was split or extended since, and only that."""
    cache = Cache(100)
    put(cache, np.arange(10, dtype=np.int32))
    mark = cache.mark()
    put(cache, np.arange(20, dtype=np.int32))
    put(cache, ids(*range(15), 77, 78))
    cache.match(ids(*range(12)), SPACE)
    put(cache, np.arange(25, dtype=np.int32))
    put(cache, ids(500, 501), ("other",))
    cache.match(ids(*range(5)), SPACE)
    assert cache.tree == 29
    assert cache.discard_since(mark).tokens == 19
    cache.check()
    assert (cache.tree, cache.free) == (10, 90)
    assert cache.match(np.arange(25, dtype=np.int32), SPACE).length == 10
    assert cache.discard_since(mark).tokens == 0


def test_discard_refuses_what_is_locked_and_changes_nothing() -> None:
    cache = Cache(100)
    mark = cache.mark()
    lock = cache.lock(put(cache, np.arange(10, dtype=np.int32)).node)
    put(cache, ids(50, 51))
    with pytest.raises(CacheError, match="still locked"):
        cache.discard_since(mark)
    assert cache.tree == 12
    cache.unlock(lock)
    assert cache.discard_since(mark).tokens == 12


def test_discard_ends_leases_and_references() -> None:
    cache = Cache(100)
    mark = cache.mark()
    node = put(cache, np.arange(10, dtype=np.int32)).node
    lease = cache.lease(node, owner="a", next_use=3)
    reference = cache.refer(node, owner="b")
    assert cache.discard_since(mark).leases == (lease,)
    assert (lease.state, reference.state) == ("revoked", "lost")
    assert not cache.end(lease) and not cache.unrefer(reference)
    assert (cache.leased, cache.referenced) == (0, 0)
    cache.check()


def test_abort_at_any_point_loses_no_slot() -> None:
    """Between match and allocate, after allocating, after publishing a part."""
    cache = Cache(60)
    tokens = np.arange(20, dtype=np.int32)
    put(cache, tokens[:8])
    for point in range(4):
        match = cache.match(tokens, SPACE)
        lock = cache.lock(match.node)
        row = match.slots
        owned = match.length
        if point > 0:
            row = np.concatenate([row, cache.allocate(20 - len(row))])
        if point > 1:
            published = cache.publish(tokens[:14], row[:14], owned, SPACE)
            row[:14], owned = published.slots, 14
        if point > 2:
            before, lock = lock, cache.lock(published.node)  # pyright: ignore[reportPossiblyUnboundVariable]
            cache.unlock(before)
        cache.release(row[owned:])
        cache.unlock(lock)
        cache.check()
        assert (cache.private, cache.locked) == (0, 0)


def test_outline_shows_the_tree() -> None:
    cache = Cache(100)
    put(cache, np.arange(10, dtype=np.int32))
    node = put(cache, ids(0, 1, 2, 50)).node
    lock = cache.lock(node)
    cache.lease(node, owner="a", next_use=1)
    lines = cache.outline()
    assert len(lines) == 4 and "3+1 tokens" in lines[2] and "1 locks" in lines[2] and "1 leases" in lines[2]
    assert lines[0] == f"namespace {SPACE!r}"
    assert cache.outline(limit=2)[-1] == "... and 2 more"
    cache.unlock(lock)


@pytest.mark.parametrize("namespace", [("agentree", "tiny", ""), ("a", (1, True, None, ())), "a", 0, ()])
def test_a_namespace_is_shown_as_it_was_written(namespace: object) -> None:
    cache = Cache(100)
    put(cache, ids(0, 1, 2), namespace)
    assert cache.outline()[0] == f"namespace {namespace!r}"
