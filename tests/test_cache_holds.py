"""Leases and references, and the order in which they let tokens go."""

import numpy as np
import pytest

from agentree.runtime.cache import Cache, Eviction, Node, Revocation


def prompt(agent: int, n: int = 10) -> np.ndarray:
    return np.arange(1000 * agent, 1000 * agent + n, dtype=np.int32)


def put(cache: Cache, tokens: np.ndarray, *, by: str = "") -> Node:
    match = cache.match(tokens)
    lock = cache.lock(match.node)
    row = np.concatenate([match.slots, cache.allocate(len(tokens) - match.length, by=by)])
    node = cache.publish(tokens, row, match.length).node
    cache.unlock(lock)
    cache.check()
    return node


def cached(cache: Cache, agents: range) -> list[int]:
    """How many tokens of each agent's prompt are in the cache. Changes nothing."""
    misses = [cache.find_miss(prompt(agent)) for agent in agents]
    return [10 if miss is None else miss.at for miss in misses]


@pytest.mark.parametrize("policy", ["lru", "plan"])
def test_leased_goes_last_and_the_farthest_first(policy: str) -> None:
    cache = Cache(50, policy=policy)  # pyright: ignore[reportArgumentType]
    nodes = [put(cache, prompt(agent)) for agent in range(5)]
    leases = [cache.lease(nodes[a], owner=f"a{a}", next_use=t) for a, t in ((0, 5.0), (1, 9.0), (2, 1.0))]
    cache.take_reports()
    assert cache.leased == 30
    cache.evict(20, by="x")
    assert cached(cache, range(5)) == [10, 10, 10, 0, 0]
    cache.evict(4, by="y")
    assert cached(cache, range(5)) == [10, 6, 10, 0, 0]
    assert [lease.state for lease in leases] == ["held", "revoked", "held"]
    reports = cache.take_reports()
    assert [type(report) for report in reports] == [Eviction, Revocation, Eviction]
    revoked = reports[1]
    assert isinstance(revoked, Revocation)
    assert (revoked.owner, revoked.tokens, revoked.by, revoked.lease) == ("a1", 10, "y", leases[1])
    assert not cache.take_reports()
    # What a revoked lease leaves behind goes before the next lease is touched.
    cache.evict(6)
    assert [lease.state for lease in leases] == ["held", "revoked", "held"]
    cache.evict(10)
    assert [lease.state for lease in leases] == ["revoked", "revoked", "held"]
    assert cache.revoked_leases == 2 and cache.leased == 10
    cache.check()


def test_renewing_changes_the_order() -> None:
    cache = Cache(20)
    near, far = (cache.lease(put(cache, prompt(a)), owner=f"a{a}", next_use=a) for a in (0, 1))
    assert cache.renew(near, next_use=100)
    cache.evict(1)
    assert (near.state, far.state) == ("revoked", "held")
    assert not cache.renew(near, next_use=0)


def test_leases_beyond_the_pool_never_block() -> None:
    """200 agents on a pool that fits 20: each allocates, and each revocation is reported."""
    cache = Cache(200)
    for turn in range(3):
        for agent in range(200):
            tokens = prompt(agent, 8 + turn)
            lock = cache.lock(cache.match(tokens).node)
            node = put(cache, tokens, by=f"a{agent}")
            cache.unlock(lock)
            cache.lease(node, owner=f"a{agent}", next_use=float(turn * 200 + agent))
    reported = [r for r in cache.take_reports() if isinstance(r, Revocation)]
    assert len(reported) == cache.revoked_leases >= 3 * 180
    cache.check()


def test_budget_revokes_the_farthest_perhaps_the_new_one() -> None:
    cache = Cache(100, lease_budget=25)
    nodes = [put(cache, prompt(agent)) for agent in range(4)]
    first = cache.lease(nodes[0], owner="a0", next_use=5)
    second = cache.lease(nodes[1], owner="a1", next_use=9)
    third = cache.lease(nodes[2], owner="a2", next_use=1)
    assert (first.state, second.state, third.state) == ("held", "revoked", "held")
    late = cache.lease(nodes[3], owner="a3", next_use=50)
    assert late.state == "revoked" and cache.leased == 20
    assert [r.owner for r in cache.take_reports() if isinstance(r, Revocation)] == ["a1", "a3"]
    assert cache.tree == 40, "taking back a lease evicts nothing by itself"
    cache.check()


def test_a_lease_beyond_the_budget_costs_no_other() -> None:
    cache = Cache(100, lease_budget=25)
    small = cache.lease(put(cache, prompt(0)), owner="a0", next_use=50)
    large = cache.lease(put(cache, prompt(1, 30)), owner="a1", next_use=1)
    assert (small.state, large.state) == ("held", "revoked")
    cache.check()


def test_budget_counts_shared_tokens_once() -> None:
    cache = Cache(100, lease_budget=14)
    trunk = prompt(0)
    leases = [
        cache.lease(put(cache, np.append(trunk, 500 + i).astype(np.int32)), owner=f"a{i}", next_use=i)
        for i in range(4)
    ]
    assert cache.leased == 14 and all(lease.state == "held" for lease in leases)


@pytest.mark.parametrize("how", ["end", "revoke", "evict", "discard", "locked"])
def test_ending_in_any_state_is_harmless(how: str) -> None:
    cache = Cache(40)
    mark = cache.mark()
    node = put(cache, prompt(0))
    lease = cache.lease(node, owner="a", next_use=1)
    assert lease.tokens == 10
    lock = cache.lock(node)
    if how != "locked":
        cache.unlock(lock)
    if how == "end":
        assert cache.end(lease)
    elif how == "revoke":
        cache._holds.revoke(lease, by="x")
    elif how == "evict":
        cache.evict(10)
    elif how == "discard":
        cache.discard_since(mark)
    for _ in range(3):
        cache.end(lease, last_use=True)
        assert not cache.renew(lease, next_use=3)
        cache.check()
    assert lease.state != "held" and cache.leased == 0
    if how == "locked":
        assert cache.evict(10) == 0
        cache.unlock(lock)
    cache.evict(40)
    assert cache.free == 40


def test_lease_on_an_empty_prefix() -> None:
    cache = Cache(10)
    root = cache.match(prompt(0)).node
    lease = cache.lease(root, owner="a", next_use=1)
    reference = cache.refer(root, owner="a")
    assert lease.tokens == 0 and cache.leased == 0
    put(cache, prompt(1))
    cache.evict(10)
    assert cache.end(lease, last_use=True) and cache.unrefer(reference)
    cache.check()


def test_plan_evicts_dead_then_unreferenced_then_referenced_then_leased() -> None:
    cache = Cache(50)
    nodes = [put(cache, prompt(agent)) for agent in range(5)]
    cache.lease(nodes[0], owner="a0", next_use=1)
    cache.refer(nodes[1], owner="a1", next_use=2)
    cache.refer(nodes[2], owner="a2", next_use=7)
    cache.retire(nodes[4])
    order: list[list[int]] = []
    for _ in range(5):
        cache.evict(10)
        order.append(cached(cache, range(5)))
    assert order == [
        [10, 10, 10, 10, 0], [10, 10, 10, 0, 0], [10, 10, 0, 0, 0], [10, 0, 0, 0, 0], [0, 0, 0, 0, 0],
    ]  # fmt: skip


def test_plan_prefers_the_cheaper_to_compute_among_equal_next_uses() -> None:
    """A token deep in a context attends to more: the leaf that starts early goes first."""
    cache = Cache(100)
    deep = put(cache, prompt(0, 30))
    put(cache, np.append(prompt(0, 20), 7).astype(np.int32))
    shallow = put(cache, prompt(1, 10))
    for node in (deep, shallow):
        cache.refer(node, owner="a", next_use=4)
    cache.evict(1)
    cache.evict(10)
    assert cache.find_miss(prompt(0, 30)) is None
    assert cached(cache, range(1, 2)) == [0]


def test_waiting_agents_survive_churn_longer_than_finished_ones() -> None:
    cache = Cache(100)
    waiting = cache.lease(put(cache, prompt(0)), owner="waiting", next_use=1000)
    done = cache.lease(put(cache, prompt(1)), owner="done", next_use=5)
    cache.end(done, last_use=True)
    for churn in range(2, 40):
        put(cache, prompt(churn))
        if churn == 12:
            assert cached(cache, range(2)) == [10, 0]
    assert cached(cache, range(2)) == [10, 0] and waiting.state == "held"


def test_last_use_spares_what_others_need() -> None:
    """The private part goes first: not the trunk that a sibling stands on, not what lies before `start`."""
    cache = Cache(100)
    trunk = prompt(0)
    kids = [put(cache, np.append(trunk, [700 + i, 800 + i]).astype(np.int32)) for i in range(2)]
    leases = [cache.lease(kid, owner=f"k{i}", next_use=i) for i, kid in enumerate(kids)]
    cache.end(leases[0], last_use=True)
    assert kids[0].dead and not kids[1].dead
    assert cache.retire(kids[1]) == 0
    assert kids[1].parent is not None and not kids[1].parent.dead
    cache.end(leases[1], last_use=True, start=4)
    assert kids[1].dead and kids[1].parent.dead and kids[1].parent.start == 4
    cache.match(np.append(trunk, 700).astype(np.int32))
    assert not kids[1].parent.dead, "a match brings it back"
    assert kids[1].dead
    cache.check()


def test_a_match_revives_what_it_matched_and_no_more() -> None:
    cache = Cache(20)
    node = put(cache, prompt(0))
    put(cache, prompt(1))
    cache.retire(node)
    cache.match(prompt(0, 5))
    cache.evict(5)
    assert cached(cache, range(2)) == [5, 10]
    cache.evict(5)
    assert cached(cache, range(2)) == [5, 5], "the revived half is the more recently used"
    cache.check()


def test_a_reference_lost_to_eviction_ends_quietly() -> None:
    cache = Cache(10)
    reference = cache.refer(put(cache, prompt(0)), owner="a")
    assert cache.referenced == 10
    cache.evict(3)
    assert reference.state == "lost" and cache.referenced == 0
    assert not cache.unrefer(reference)
    cache.check()


def test_next_use_must_be_a_number() -> None:
    cache = Cache(10)
    node = put(cache, prompt(0))
    lease = cache.lease(node, owner="a", next_use=float("inf"))
    for call in (
        lambda: cache.lease(node, owner="a", next_use=float("nan")),
        lambda: cache.refer(node, owner="a", next_use=float("nan")),
        lambda: cache.renew(lease, next_use=float("nan")),
    ):
        with pytest.raises(ValueError, match="NaN"):
            call()
    cache.check()


def test_owners() -> None:
    cache = Cache(100)
    trunk = prompt(0)
    nodes = [put(cache, np.append(trunk, 700 + i).astype(np.int32)) for i in range(2)]
    lock = cache.lock(nodes[0])
    for node in nodes:
        cache.lease(node, owner="a", next_use=1)
    cache.refer(nodes[1], owner="b")
    held = cache.owners()
    assert (held["a"].leased, held["a"].referenced, held["a"].evictable) == (12, 0, 1)
    assert (held["b"].leased, held["b"].referenced, held["b"].evictable) == (0, 11, 1)
    cache.unlock(lock)


def test_untaken_reports_stay_bounded() -> None:
    cache = Cache(4)
    for agent in range(12_000):
        tokens = np.full(4, agent, np.int32)
        cache.publish(tokens, cache.allocate(4), 0)
    assert len(cache.take_reports()) == 10_000
    assert len(cache._ghosts) <= 4096 and cache._ghosts.tokens <= 16
