"""Picking the next token: masked greedy or nucleus sampling on a counter-based generator.

The random number of a position depends on (seed, position) alone, never on what else runs, so that batch
neighbours, preemption and resume can't change a token (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", SC'11, for the idea; the mixer is SplitMix64, Steele et al., OOPSLA'14).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentree.runtime.request import Sampling

NEAR_TIE = 1e-4
"""Two best logits closer than this are a near-tie: rounding may order them either way."""
COLDEST = NEAR_TIE / 100
"""Temperatures below this are greedy: all but near-ties would have less than e^-100 of the probability, and
dividing by numbers as small as that overflows, or divides by zero where subnormal numbers are flushed.
"""

_MASK64 = (1 << 64) - 1


class Pick(NamedTuple):
    """A sampled token."""

    token: int
    logprob: float
    """Under the masked distribution at temperature 1."""
    near_tie: bool


def _mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments."""
    return (_mix(_mix(seed & _MASK64) ^ (position & _MASK64)) >> 11) * 2.0**-53


def pick(
    logits: NDArray[np.float32],
    sampling: Sampling,
    position: int,
    mask: NDArray[np.bool_] | None = None,
) -> Pick:
    """Pick a token.

    In NumPy: one row is too little work for torch's threads, which cost ten times as much where another
    process has a core.

    Args:
        logits: float32 [vocab] of one position.
        sampling: A temperature below `COLDEST` takes the best token, the lowest id among equals.
        position: Index of the token in its transcript: the counter of the generator.
        mask: bool [vocab], the legal tokens; None: all of them.

    Raises:
        ValueError: The mask allows nothing, or the logits hold NaN.
    """
    if mask is not None:
        logits = np.where(mask, logits, np.float32(-np.inf))
    best = int(logits.argmax())
    top = float(logits[best])
    if not np.isfinite(top):
        raise ValueError("no token can be picked: the mask allows none, or the logits are not finite")
    norm = log_sum_exp(logits)
    if sampling.temperature < COLDEST:
        others = (logits[:best], logits[best + 1 :])
        second = max((float(part.max()) for part in others if part.size), default=-np.inf)
        return Pick(best, top - norm, top - second < NEAR_TIE)
    token = _draw(logits, sampling, uniform(sampling.seed, position))
    return Pick(token, float(logits[token]) - norm, near_tie=False)


def log_sum_exp(logits: NDArray[np.float32]) -> float:
    """Logarithm of the sum of exponentials of one row."""
    top = logits.max()
    return float(top + np.log(np.exp(logits - top).sum()))


def _draw(logits: NDArray[np.float32], sampling: Sampling, u: float) -> int:
    """Invert the cumulative distribution at `u`, in double precision."""
    scaled = (logits.astype(np.float64) - float(logits.max())) / sampling.temperature
    probs = np.exp(scaled)
    probs /= probs.sum()
    if sampling.top_p >= 1:
        cumulative, order = np.cumsum(probs), None
    else:
        # All tokens below this share together can't make up what the nucleus leaves out.
        likely = np.flatnonzero(probs >= (1 - sampling.top_p) / len(probs))
        # A stable order keeps equal probabilities in token order, the same on every machine.
        order = likely[np.argsort(-probs[likely], kind="stable")]
        cumulative = np.cumsum(probs[order])
        cumulative = cumulative[: int(np.searchsorted(cumulative, sampling.top_p)) + 1]
    index = int(np.searchsorted(cumulative, u * float(cumulative[-1]), side="right"))
    index = min(index, len(cumulative) - 1)
    return index if order is None else int(order[index])
