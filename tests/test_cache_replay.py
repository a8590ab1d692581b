"""The replay's yardstick: the offline optimum is one, and no policy beats it."""

from collections.abc import Sequence
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import traces
from benchmarks.optimum import Segments, belady, first_uses, peak
from benchmarks.replay import End, Turn, live, replay, runnable, timeline
from benchmarks.traces import Agent, Call, Words

Sequences = tuple[tuple[tuple[int, ...], int], ...]

SEQUENCES: st.SearchStrategy[Sequences] = st.lists(
    st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=4).map(tuple), st.integers(1, 4)).map(
        lambda pair: (pair[0], min(pair[1], len(pair[0])))
    ),
    min_size=1,
    max_size=6,
).map(tuple)


def segments(sequences: Sequences) -> Segments:
    return Segments([(np.array(ids, np.int32), prompt) for ids, prompt in sequences])


def exhaustive(sequences: Sequences, pool: int) -> int:
    """The most prompt tokens that any choice of evictions can save."""

    @cache
    def best(time: int, resident: frozenset[tuple[int, ...]]) -> int:
        if time == len(sequences):
            return 0
        ids, prompt = sequences[time]
        path = frozenset(ids[: i + 1] for i in range(len(ids)))
        hits = sum(ids[: i + 1] in resident for i in range(prompt))
        others = sorted(resident - path)
        options = (
            frozenset(kept) | path
            for n in range(min(len(others), pool - len(path)), -1, -1)
            for kept in combinations(others, n)
        )
        return hits + max(best(time + 1, o) for o in options if all(p[:-1] in o for p in o if len(p) > 1))

    nothing: frozenset[tuple[int, ...]] = frozenset()
    return best(0, nothing)


@settings(max_examples=60, deadline=None)
@given(SEQUENCES, st.integers(4, 7))
def test_optimum_is_optimal(sequences: Sequences, pool: int) -> None:
    assert sum(belady(segments(sequences), pool)) == exhaustive(sequences, pool)


def test_first_uses_and_peak() -> None:
    found = segments((((0, 0, 1), 2), ((0, 0, 1, 1), 4), ((1,), 1), ((0, 1), 2)))
    assert found.tokens == 6
    assert first_uses(found) == [2, 1, 1, 1]
    assert peak(found, [[0], [0, 2], [1, 3]]) == 5


def synthetic(seed: int) -> list[Agent]:
    rng = np.random.default_rng(seed)
    head = rng.integers(0, 9, 50).tolist()
    agents: list[Agent] = []
    for number in range(50):
        ids: list[int] = [*head, 100 + number]
        calls: list[Call] = []
        turns = int(rng.integers(1, 6))
        for turn in range(turns):
            output = rng.integers(10, 20, 20)
            tool = str(rng.choice(["customer", "Search", "think"])) if turn + 1 < turns or number % 2 else ""
            calls.append(Call(np.array(ids, np.int32), output.astype(np.int32), tool))
            ids += [*output.tolist(), *rng.integers(20, 30, 15).tolist()]
        agents.append(Agent(f"a{number}", calls))
    return agents


def turns_of(events: Sequence[Turn | End]) -> list[Turn]:
    return [event for event in events if isinstance(event, Turn)]


@pytest.mark.parametrize("seed", range(3))
def test_no_policy_beats_the_optimum(seed: int) -> None:
    agents = synthetic(seed)
    events = timeline(agents, seed, 0.5)
    turns = turns_of(events)
    assert len(turns) == sum(len(agent.calls) for agent in agents)
    assert [event.time for event in events] == sorted(event.time for event in events)
    found = Segments([(turn.ids, turn.prompt) for turn in turns])
    size = peak(found, list(live(turns)))
    never_seen = sum(first_uses(found))
    for share in (0.2, 0.5, 1.0, 10.0):
        pool = int(share * size)
        best = sum(belady(found, pool))
        hits = {name: sum(replay(events, pool, name)) for name in ("lru", "plan")}
        assert max(hits.values()) <= best <= sum(turn.prompt for turn in turns) - never_seen
        if share == 10.0:
            assert hits["lru"] == hits["plan"] == best


def test_recorded_agents() -> None:
    """At a quarter of the working set `plan` adds at most half of what `lru` adds to the optimum."""
    try:
        traces.folder()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    agents = runnable(traces.load(Words()))
    for agent in agents:
        for before, after in zip(agent.calls, agent.calls[1:], strict=False):
            if not agent.name.startswith("toolbench"):
                whole = [*before.prompt, *before.output]
                assert list(after.prompt[: len(whole)]) == whole, "turns are append-only"
    events = timeline(agents, 0, 0.5)
    turns = turns_of(events)
    found = Segments([(turn.ids, turn.prompt) for turn in turns])
    pool = peak(found, list(live(turns))) // 4
    best = sum(belady(found, pool))
    lru, plan = (sum(replay(events, pool, name)) for name in ("lru", "plan"))
    assert best - plan <= (best - lru) / 2
