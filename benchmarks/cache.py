"""What tree work costs: `python -m benchmarks.cache`. Microseconds, medians; prints a markdown table."""

import statistics
import time
from collections.abc import Callable

import numpy as np

from agentree.runtime.cache import Cache

LEAVES = 50_000
PROMPT = 1_000


def timed(call: Callable[[], object]) -> float:
    """Microseconds that one call takes."""
    started = time.perf_counter()
    call()
    return 1e6 * (time.perf_counter() - started)


def saturated(policy: str) -> Cache:
    """A cache of 50,000 leaves of one token each, full to the last slot, in a random order of last use."""
    assert policy in ("lru", "plan")
    cache = Cache(LEAVES + 100, policy=policy)
    rng = np.random.default_rng(0)
    for i in rng.permutation(LEAVES):
        ids = np.array([i % 100, 1000 + i], np.int32)
        match = cache.match(ids)
        row = np.concatenate([match.slots, cache.allocate(2 - match.length)])
        cache.publish(ids, row, match.length)
    return cache


def evictions(policy: str) -> tuple[float, float]:
    """(median, worst) of 300 evictions of 64 leaves, the tree refilled in between."""
    cache, rng = saturated(policy), np.random.default_rng(1)
    times: list[float] = []
    for round_number in range(300):
        times.append(timed(lambda: cache.evict(64)))
        for i in range(cache.free):
            ids = np.array([i % 100, 100_000 + 1000 * round_number + i], np.int32)
            match = cache.match(ids)
            row = np.concatenate([match.slots, cache.allocate(2 - match.length)])
            cache.publish(ids, row, match.length)
            if cache.free == 0:
                break
        cache.match(np.array([int(rng.integers(100))], np.int32))
    return statistics.median(times), max(times)


def request(shared: int) -> dict[str, float]:
    """Median cost of the steps of a request of 1,000 tokens, `shared` of them cached, in a full pool."""
    cache, rng = Cache(100 * PROMPT), np.random.default_rng(2)
    base = rng.integers(0, 49_152, PROMPT).astype(np.int32)
    space = ("model", "", "")
    times: dict[str, list[float]] = {"match": [], "lock": [], "allocate": [], "publish": [], "unlock": []}
    for _ in range(2_000):
        ids = base.copy()
        ids[shared:] = rng.integers(0, 49_152, PROMPT - shared)
        clock = [time.perf_counter()]
        match = cache.match(ids[:-1], space)
        clock.append(time.perf_counter())
        lock = cache.lock(match.node)
        clock.append(time.perf_counter())
        private = cache.allocate(PROMPT - match.length)
        clock.append(time.perf_counter())
        row = np.concatenate([match.slots, private])
        published = cache.publish(ids, row, match.length, space)
        clock.append(time.perf_counter())
        after = cache.lock(published.node)
        cache.unlock(lock)
        cache.unlock(after)
        clock.append(time.perf_counter())
        for name, start, stop in zip(times, clock, clock[1:], strict=False):
            times[name].append(1e6 * (stop - start))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Print the tables."""
    print(f"| {LEAVES:,} leaves, evict 64 | median us | worst us |\n| --- | ---: | ---: |")
    for policy in ("lru", "plan"):
        median, worst = evictions(policy)
        print(f"| `{policy}` | {median:.0f} | {worst:.0f} |")
    print()
    print(f"| {PROMPT:,} tokens, cached | match | lock | allocate | publish | relock, unlock | sum us |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for shared in (0, PROMPT // 2, PROMPT - 10):
        steps = request(shared)
        cells = " | ".join(f"{value:.1f}" for value in steps.values())
        print(f"| {shared} | {cells} | {sum(steps.values()):.0f} |")


if __name__ == "__main__":
    main()
