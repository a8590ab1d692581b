"""Why tokens are not in the cache."""

import numpy as np

from agentree.runtime.cache import Cache, Miss

SPACE = ("m", "")


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def put(cache: Cache, tokens: np.ndarray, namespace: tuple[str, ...] = SPACE, *, by: str = "") -> None:
    match = cache.match(tokens, namespace)
    lock = cache.lock(match.node)
    row = np.concatenate([match.slots, cache.allocate(len(tokens) - match.length, by=by)])
    cache.publish(tokens, row, match.length, namespace)
    cache.unlock(lock)


def miss(cache: Cache, tokens: np.ndarray, namespace: tuple[str, ...] = SPACE) -> Miss:
    found = cache.find_miss(tokens, namespace)
    assert found is not None
    return found


def test_never_seen_and_new_text() -> None:
    cache = Cache(20)
    assert miss(cache, ids(1, 2)) == Miss("unseen", 0, 2)
    assert cache.explain_miss(ids(1, 2), SPACE) == "2 tokens from position 0 were never seen"
    put(cache, ids(1, 2))
    assert cache.find_miss(ids(1, 2), SPACE) is None and cache.explain_miss(ids(1, 2), SPACE) == ""
    assert miss(cache, ids(1, 2, 3)) == Miss("unseen", 2, 1)
    assert cache.explain_miss(ids(1, 2, 3), SPACE) == "", "new text at the end of a known prefix is no miss"


def test_diverged() -> None:
    cache = Cache(20)
    put(cache, ids(1, 2, 3, 4))
    assert miss(cache, ids(1, 2, 9, 9)) == Miss("diverged", 2, 2)
    assert "2 tokens from position 2 are new" in cache.explain_miss(ids(1, 2, 9, 9), SPACE)
    long = [*range(1000, 1040)]
    put(cache := Cache(60), ids(*long, 1))
    shown = cache.explain_miss(ids(*long, 2), SPACE, lambda tokens: "".join(f"<{t}>" for t in tokens))
    assert shown.endswith("there, after '<1036><1037><1038><1039>'"), "the last characters of what is shared"
    put(cache := Cache(20), ids(1, 2, 3, 4))
    cache.match(ids(1, 2), SPACE)
    assert miss(cache, ids(1, 2, 9, 9)) == Miss("diverged", 2, 2), "wherever the edges are cut"


def test_other_namespace() -> None:
    cache = Cache(20)
    put(cache, ids(1, 2, 3), ("m", "alice"))
    put(cache, ids(1), ("m", "bob"))
    assert miss(cache, ids(1, 2, 3, 4), ("m", "bob")) == Miss("namespace", 1, 2)
    assert "another namespace" in cache.explain_miss(ids(1, 2, 3), ("m", "bob"))
    assert "alice" not in cache.explain_miss(ids(1, 2, 3), ("m", "bob"))


def test_evicted_by_whom_and_when() -> None:
    cache = Cache(10)
    put(cache, ids(*range(8)))
    put(cache, ids(50, 51, 52, 53), by="solve/answer[3]")
    found = miss(cache, ids(*range(8)))
    assert (found.reason, found.at, found.tokens, found.by, found.ago) == (
        "evicted", 6, 2, "solve/answer[3]", 1,
    )  # fmt: skip
    assert "solve/answer[3]" in cache.explain_miss(ids(*range(8)), SPACE)


def test_single_tokens_evicted_one_by_one_are_one_miss() -> None:
    cache = Cache(10)
    put(cache, ids(*range(8)))
    for _ in range(5):
        cache.evict(1, by="x")
    found = miss(cache, ids(*range(8)))
    assert (found.at, found.tokens) == (3, 5) and len(cache._ghosts) == 1


def test_evicted_then_partly_republished() -> None:
    cache = Cache(20)
    put(cache, ids(*range(8)))
    cache.evict(8, by="x")
    put(cache, ids(0, 1, 2, 99))
    assert miss(cache, ids(*range(8))).reason == "evicted"
    assert (miss(cache, ids(*range(8))).at, miss(cache, ids(*range(8))).tokens) == (3, 5)
    assert miss(cache, ids(0, 1, 7)).reason == "diverged"


def test_revoked() -> None:
    cache = Cache(10)
    put(cache, ids(*range(8)))
    lease = cache.lease(cache.match(ids(*range(8)), SPACE).node, owner="planner", next_use=9)
    put(cache, ids(50, 51, 52, 53), by="other")
    assert lease.state == "revoked"
    found = miss(cache, ids(*range(8)))
    assert (found.reason, found.owner, found.by, found.at) == ("revoked", "planner", "other", 6)
    assert "'planner'" in cache.explain_miss(ids(*range(8)), SPACE)
    # The rest of the revoked prefix is evicted later, without a lease: it is lost for the same reason.
    cache.match(ids(50, 51, 52, 53), SPACE)
    cache.evict(4)
    assert miss(cache, ids(*range(8))).reason == "revoked"


def test_discarded() -> None:
    cache = Cache(20)
    mark = cache.mark()
    put(cache, ids(1, 2, 3))
    cache.discard_since(mark)
    assert miss(cache, ids(1, 2, 3)).reason == "discarded"
    assert "failed" in cache.explain_miss(ids(1, 2, 3), SPACE)


def test_asking_changes_nothing() -> None:
    cache = Cache(20)
    put(cache, ids(1, 2, 3, 4))
    before = (cache.clock, cache.nodes)
    cache.find_miss(ids(1, 2, 9), SPACE)
    cache.find_miss(ids(1, 2, 9), ("nobody",))
    assert (cache.clock, cache.nodes) == before
    cache.check()
