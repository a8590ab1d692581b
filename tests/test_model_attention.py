"""Attention over shared stretches against a float64 reference that knows nothing of sharing."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentree.runtime.model import attention
from agentree.runtime.model.attention import AttentionPlan
from agentree.runtime.model.batch import Row
from agentree.runtime.model.sharing import adjacent, share

KV_HEADS, SIZE = 2, 8
POOL = 600


def reference(q: torch.Tensor, kv: torch.Tensor, rows: list[Row]) -> torch.Tensor:
    """Softmax attention query by query in float64."""
    out = torch.empty(q.shape, dtype=torch.float64)
    groups = q.shape[1] // KV_HEADS
    for row in rows:
        queries, n = row.stop - row.start, len(row.kv)
        for i in range(queries):
            seen = kv[row.kv[: n - queries + 1 + i]].double()
            for head in range(q.shape[1]):
                k, v = seen[:, head // groups], seen[:, KV_HEADS + head // groups]
                weights = torch.softmax(k @ q[row.start + i, head].double() / SIZE**0.5, 0)
                out[row.start + i, head] = weights @ v
    return out.flatten(1)


@dataclass
class Tree:
    """Rows that fork from each other, as slots of a pool in some order."""

    free: list[int]
    contexts: list[list[int]]

    def take(self, n: int) -> list[int]:
        taken, self.free = self.free[:n], self.free[n:]
        return taken


@st.composite
def batches(draw: st.DrawFn) -> list[Row]:
    """Some rows of a random tree, in any order, each with a few queries at its end."""
    order = list(range(POOL))
    if draw(st.booleans()):
        order = np.random.default_rng(draw(st.integers(0, 9))).permutation(POOL).tolist()
    tree = Tree(order, [[]])
    for _ in range(draw(st.integers(1, 7))):
        parent = draw(st.sampled_from(tree.contexts))
        kept = draw(st.integers(0, len(parent)))
        tree.contexts.append(parent[:kept] + tree.take(draw(st.sampled_from([0, 1, 3, 20, 40]))))
    rows: list[Row] = []
    at = 0
    for context in draw(st.permutations(tree.contexts)):
        queries = draw(st.sampled_from([1, 1, 1, 2, 5, 30, 70]))
        # Queries of its own, or the last tokens of what others have as well.
        slots = context if len(context) >= queries and draw(st.booleans()) else context + tree.take(queries)
        if len(slots) >= queries:
            rows.append(Row(at, at + queries, torch.tensor(slots)))
            at += queries
    return rows or [Row(0, 1, torch.tensor(tree.take(1)))]


@settings(max_examples=60, deadline=None)
@given(
    rows=batches(),
    worth=st.sampled_from([1, 20, 10_000]),
    run=st.sampled_from([1, 8, 10_000]),
    groups=st.sampled_from([1, 3]),
    flash=st.booleans(),
)
def test_sharing_changes_nothing(rows: list[Row], worth: int, run: int, groups: int, flash: bool) -> None:
    generator = torch.Generator().manual_seed(len(rows))
    q = torch.randn(rows[-1].stop, KV_HEADS * groups, SIZE, generator=generator)
    kv = torch.randn(POOL + 1, 2 * KV_HEADS, SIZE, generator=generator)
    used = torch.cat([row.kv for row in rows])
    unused = torch.ones(POOL + 1, dtype=torch.bool)
    unused[used] = False
    kv[unused] = float("nan")
    with pytest.MonkeyPatch.context() as patch:
        if not flash:
            patch.setattr(attention, "flash_works", lambda: False)
        plan = AttentionPlan(rows, len(q), groups, torch.float32, torch.device("cpu"), worth=worth, run=run)
        found = plan.attend(q, kv)
    assert (found - reference(q, kv, rows)).abs().max().item() < 1e-5


def slots(*parts: range) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.concatenate([np.arange(part.start, part.stop) for part in parts])


def test_a_trunk_and_its_branches_are_segments() -> None:
    trunk, left, right = range(100), range(200, 260), range(300, 360)
    pasts = [
        slots(trunk, left, range(400, 405)),
        slots(trunk, left, range(500, 507)),
        slots(trunk, right),
        slots(trunk, right, range(410, 412)),
        slots(range(600, 603)),
    ]
    segments, covered = share(pasts, worth=50, run=1000)
    assert {(s.rows, tuple(s.slots.tolist())) for s in segments} == {
        ((0, 1, 2, 3), tuple(trunk)),
        ((0, 1), tuple(left)),
        ((2, 3), tuple(right)),
    }
    assert covered == [160, 160, 160, 160, 0]


def test_what_saves_too_little_goes_into_the_next_segment_or_none() -> None:
    pasts = [slots(range(10), range(100, 150), range(200 + i, 201 + i)) for i in range(2)]
    pasts.append(slots(range(10), range(300, 330)))
    segments, covered = share(pasts, worth=40, run=1000)
    assert [(s.rows, len(s.slots)) for s in segments] == [((0, 1), 60)]
    assert covered == [60, 60, 0]
    assert share(pasts, worth=1000, run=1000) == ([], [0, 0, 0])


def test_a_long_run_of_one_row_is_read_in_place() -> None:
    segments, covered = share([slots(range(50, 90), range(10, 12))], worth=1, run=40)
    assert [(s.rows, s.slots.tolist()) for s in segments] == [((0,), list(range(50, 90)))]
    assert covered == [40]
    assert share([slots(range(50, 90), range(10, 12))], worth=1, run=41) == ([], [0])


@given(st.lists(st.integers(0, 3), max_size=6))
def test_adjacent(steps: list[int]) -> None:
    values = np.cumsum(np.array([5, *steps], np.int64))
    expected = next((i for i, step in enumerate(steps) if step != 1), len(steps)) + 1
    assert adjacent(values) == expected
    assert adjacent(values[:0]) == 0
