"""Picking a token: against the distribution that it should follow, and independent of everything else."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from agentree.runtime.request import Sampling
from agentree.runtime.sampling import NEAR_TIE, log_sum_exp, pick, uniform


def row(seed: int, vocab: int = 50, scale: float = 3.0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal(vocab) * scale).astype(np.float32)


def distribution(logits: NDArray[np.float32], temperature: float, top_p: float) -> NDArray[np.float64]:
    """The plain definition: the fewest likeliest tokens that together reach `top_p`."""
    scaled = logits.astype(np.float64) / temperature
    probs = np.exp(scaled - scaled.max())
    probs /= probs.sum()
    kept = np.zeros_like(probs)
    total = 0.0
    for token in sorted(range(len(probs)), key=lambda t: (-probs[t], t)):
        kept[token] = probs[token]
        total += probs[token]
        if total >= top_p:
            break
    return kept / kept.sum()


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 0.9), (2.0, 0.5), (1.0, 0.01)])
def test_samples_follow_their_distribution(temperature: float, top_p: float) -> None:
    logits, n = row(1), 6000
    expected = distribution(logits, temperature, top_p)
    drawn = np.bincount(
        [pick(logits, Sampling(temperature, top_p, 7), position).token for position in range(n)], minlength=50
    )
    assert not drawn[expected == 0].any()
    spread = np.sqrt(n * expected * (1 - expected)) + 1
    assert (np.abs(drawn - n * expected) < 5 * spread).all()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 1500), st.floats(0.3, 3.0), st.floats(0.001, 1.0))
def test_a_large_vocabulary_is_drawn_from_as_by_the_whole_cumulative_distribution(
    seed: int, vocab: int, temperature: float, legal: float
) -> None:
    logits = row(seed, vocab)
    mask = np.random.default_rng(seed).random(vocab) < legal
    mask[seed % vocab] = True
    made = pick(logits, Sampling(temperature, 1.0, seed), 3, mask)
    ends = np.cumsum(distribution(np.where(mask, logits, np.float32(-np.inf)), temperature, 1.0))
    begins = np.concatenate(([0.0], ends))
    assert mask[made.token]
    assert begins[made.token] - 1e-5 <= uniform(seed, 3) <= ends[made.token] + 1e-5


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.05, 1.0), st.floats(0.1, 3.0), st.integers(0, 2**63 - 1))
def test_what_is_drawn_lies_in_the_nucleus_and_under_the_mask(
    seed: int, top_p: float, temperature: float, key: int
) -> None:
    logits = row(seed)
    mask = np.random.default_rng(seed).random(50) < 0.3
    mask[seed % 50] = True
    masked = np.where(mask, logits, np.float32(-np.inf))
    made = pick(logits, Sampling(temperature, top_p, key), 3, mask)
    assert distribution(masked, temperature, min(1.0, top_p + 1e-9))[made.token] > 0
    assert made.logprob == pytest.approx(float(logits[made.token]) - log_sum_exp(masked), abs=1e-5)
    assert made == pick(logits, Sampling(temperature, top_p, key), 3, mask)


def test_greedy_takes_the_lowest_of_equals_and_tells_near_ties() -> None:
    logits = np.zeros(9, np.float32)
    logits[[3, 5]] = 2.0
    made = pick(logits, Sampling(), 0)
    assert (made.token, made.near_tie) == (3, True)
    logits[3] += 2 * NEAR_TIE
    assert pick(logits, Sampling(), 0).near_tie is False
    mask = np.zeros(9, np.bool_)
    mask[8] = True
    assert pick(logits, Sampling(), 0, mask) == (8, 0.0, False)
    assert pick(np.zeros(1, np.float32), Sampling(), 0) == (0, 0.0, False)


@pytest.mark.parametrize("temperature", [5e-324, 1e-320, 1e-300, 1e-30, 1e-7])
@pytest.mark.parametrize("flush", [False, True])
def test_the_coldest_temperatures_are_greedy(temperature: float, flush: bool) -> None:
    """Also where subnormal numbers are taken as zero, as some libraries set the processor to do."""
    torch.set_flush_denormal(flush)
    try:
        for seed in range(20):
            mask = np.random.default_rng(seed).random(50) < 0.5
            for logits in (row(seed), np.round(row(seed, scale=1.0))):  # many equals
                cold = Sampling(temperature, 0.9, seed)
                assert pick(logits, cold, 3, mask) == pick(logits, Sampling(), 3, mask)
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("temperature", [1e-6, 1.0, 1e30, 1e308])
@pytest.mark.parametrize("top_p", [5e-324, 1e-17, 0.5, 1.0])
@pytest.mark.parametrize("vocab", [1, 3, 49, 50])
def test_any_legal_sampling_picks_a_legal_token(temperature: float, top_p: float, vocab: int) -> None:
    for seed in range(20):
        for logits in (row(seed, vocab), np.zeros(vocab, np.float32)):
            mask = np.random.default_rng(seed).random(vocab) < 0.5
            mask[seed % vocab] = True
            assert mask[pick(logits, Sampling(temperature, top_p, seed), 3, mask).token]


def test_nothing_to_pick_is_an_error() -> None:
    with pytest.raises(ValueError, match="mask allows none"):
        pick(row(0), Sampling(), 0, np.zeros(50, np.bool_))
    broken = row(0)
    broken[7] = np.nan
    for sampling in (Sampling(), Sampling(1.0, 0.9, 1)):
        with pytest.raises(ValueError, match="not finite"):
            pick(broken, sampling, 0)


def test_random_numbers_depend_on_seed_and_position_alone() -> None:
    numbers = {uniform(seed, position) for seed in range(50) for position in range(50)}
    assert len(numbers) == 2500
    assert all(0 <= number < 1 for number in numbers)
    assert abs(sum(numbers) / 2500 - 0.5) < 0.03
