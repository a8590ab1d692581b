"""Recorded agents against the cache alone, no model: `python -m benchmarks.replay`. Prints a markdown table.

Thirty-two agents run interleaved; one that has ended is followed by the next. After a call an agent waits
for its tool: log-normal times around the tool's mean, drawn once per seed, the same for every policy. A call
takes its slots at one instant. `plan` knows what a graph knows: which tool runs now, its mean time, and when
a program has ended; it does not know the drawn times, nor how many turns an agent will take.
"""

import argparse
import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

import numpy as np

from agentree.runtime.cache import Cache, Lease
from benchmarks.optimum import Segments, belady, concatenated, first_uses, peak
from benchmarks.traces import Agent, Ids, Words, load

LANES = 32
SECONDS_PER_TOKEN = 0.02
MEANS = {
    "customer": 20.0, "think": 0.1, "calculate": 0.1, "Lookup": 0.5, "Search": 2.0,
    "get_reservation_details": 1.0, "get_user_details": 1.0, "search_direct_flight": 3.0,
    "search_onestop_flight": 5.0, "book_reservation": 6.0, "transfer_to_human_agents": 10.0,
}  # fmt: skip
OTHER = 4.0
"""Mean seconds of any other tool."""
CONTEXT = 8192
"""Agents with a longer transcript are left out: the bundled model could not run them."""
SHARES = (0.10, 0.25, 0.50, 1.00)


@dataclass(frozen=True)
class Turn:
    """A call at its place in time. `expected`: when a planner expects the agent's next call."""

    time: float
    lane: int
    agent: int
    ids: Ids
    prompt: int
    expected: float
    ended: bool
    """Nothing comes after, and the program knows it."""


@dataclass(frozen=True)
class End:
    """An agent turns out to have ended while it waited: a customer left."""

    time: float
    lane: int


def mean(tool: str) -> float:
    """Mean seconds of a tool."""
    return MEANS.get(tool, OTHER)


def runnable(agents: Sequence[Agent]) -> list[Agent]:
    """Those whose transcript fits the context."""
    return [a for a in agents if all(len(c.prompt) + len(c.output) <= CONTEXT for c in a.calls)]


def timeline(agents: Sequence[Agent], seed: int, spread: float) -> list[Turn | End]:
    """All calls in the order of their time. The same for every policy: hits make nothing faster here."""
    random = Random(seed)
    queue = list(range(len(agents)))
    random.shuffle(queue)
    heap: list[tuple[float, int, int, int]] = []
    for lane in range(min(LANES, len(queue))):
        heapq.heappush(heap, (random.uniform(0, 30), lane, queue.pop(), 0))
    events: list[Turn | End] = []
    while heap:
        time, lane, agent, number = heapq.heappop(heap)
        calls = agents[agent].calls
        if number == len(calls):
            events.append(End(time, lane))
        else:
            call = calls[number]
            done = time + SECONDS_PER_TOKEN * len(call.output)
            ids = concatenated(call.prompt, call.output)
            expected = done + mean(call.tool)
            events.append(Turn(time, lane, agent, ids, len(call.prompt), expected, not call.tool))
            if call.tool:
                wait = mean(call.tool) * math.exp(random.gauss(0, spread) - spread**2 / 2)
                heapq.heappush(heap, (done + wait, lane, agent, number + 1))
                continue
            time = done
        if queue:
            heapq.heappush(heap, (time, lane, queue.pop(), 0))
    return events


def live(turns: Sequence[Turn]) -> Iterator[list[int]]:
    """At each turn, the latest turns of all agents that run."""
    latest: dict[int, int] = {}
    for number, turn in enumerate(turns):
        latest[turn.lane] = number
        yield list(latest.values())
        if turn.ended:
            del latest[turn.lane]


def replay(events: Sequence[Turn | End], pool: int, policy: Literal["lru", "plan"]) -> list[int]:
    """For each turn, how many tokens of its prompt were cached."""
    cache = Cache(pool, policy=policy)
    leases: dict[int, Lease] = {}
    hits: list[int] = []
    for event in events:
        before = leases.pop(event.lane, None)
        if isinstance(event, End):
            if before is not None:
                cache.end(before, last_use=True)
            continue
        match = cache.match(event.ids[: event.prompt])
        hits.append(match.length)
        lock = cache.lock(match.node)
        # An agent may have written what another wrote before: publish merges it.
        row = np.concatenate([match.slots, cache.allocate(len(event.ids) - match.length)])
        published = cache.publish(event.ids, row, match.length)
        if policy == "plan" and event.ended:
            if before is not None:
                cache.end(before)
            cache.retire(published.node)
        elif policy == "plan":
            owner = str(event.lane)
            leases[event.lane] = cache.lease(published.node, owner=owner, next_use=event.expected)
            if before is not None:
                cache.end(before, last_use=True)
        cache.unlock(lock)
    cache.check()
    return hits


@dataclass
class Totals:
    """Sums over seeds, in tokens."""

    lookups: int = 0
    hits: int = 0
    again: int = 0
    """Prompt tokens computed although an earlier call had them."""


def main() -> None:
    """Replay and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--spread", type=float, default=0.5, help="sigma of the log-normal tool times")
    options = parser.parse_args()
    seeds, spread = int(options.seeds), float(options.spread)
    recorded = load(Words())
    agents = runnable(recorded)
    totals: dict[tuple[float, str], Totals] = {}
    sizes: list[int] = []
    calls = 0
    for seed in range(seeds):
        events = timeline(agents, seed, spread)
        turns = [event for event in events if isinstance(event, Turn)]
        segments = Segments([(turn.ids, turn.prompt) for turn in turns])
        sizes.append(peak(segments, list(live(turns))))
        calls = len(turns)
        lookups, fresh = sum(turn.prompt for turn in turns), sum(first_uses(segments))
        for share in SHARES:
            pool = int(share * sizes[-1])
            for name in ("lru", "plan", "optimum"):
                hits = sum(belady(segments, pool) if name == "optimum" else replay(events, pool, name))
                total = totals.setdefault((share, name), Totals())
                total.lookups += lookups
                total.hits += hits
                total.again += lookups - fresh - hits
    print(f"{len(agents)} of {len(recorded)} agents, {calls:,} calls, {seeds} seeds, spread {spread}")
    print(f"working sets of {', '.join(f'{size:,}' for size in sizes)} tokens\n")
    print("| pool | policy | hit rate | recomputed tokens | beyond the optimum | of what `lru` adds |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    for (share, name), total in totals.items():
        best, worst = totals[share, "optimum"].again, totals[share, "lru"].again
        beyond = total.again - best
        part = f"{beyond / (worst - best):.0%}" if worst > best else "-"
        rate = f"{total.hits / total.lookups:.1%}"
        print(f"| {share:.0%} | {name} | {rate} | {total.again // seeds:,} | {beyond // seeds:,} | {part} |")


if __name__ == "__main__":
    main()
