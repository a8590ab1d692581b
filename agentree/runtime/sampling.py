"""Picking the next token: masked greedy or nucleus sampling on a counter-based generator.

The random number of a position depends on (seed, position) alone, never on what else runs, so that batch
neighbours, preemption and resume can't change a token (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", SC'11, for the idea; the mixer is SplitMix64, Steele et al., OOPSLA'14).
"""

import math
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

HOTTEST = 1e30
"""Above this temperature every legal token is as likely as any other: no difference of logits is left."""
BLOCK = 256
"""Tokens whose weights are summed first where one of all is drawn."""

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
    logits, ids = (logits, None) if mask is None else _legal(logits, mask)
    best = int(logits.argmax()) if len(logits) else 0
    top = float(logits[best]) if len(logits) else -math.inf
    if not math.isfinite(top):
        raise ValueError("no token can be picked: the mask allows none, or the logits are not finite")
    behind = logits - np.float32(top)
    greedy = sampling.temperature < COLDEST
    near_tie = greedy and int(np.count_nonzero(behind > -NEAR_TIE)) > 1
    chosen = best if greedy else _draw(behind, sampling, uniform(sampling.seed, position))
    logprob = float(behind[chosen]) - math.log(float(np.exp(behind, out=behind).sum()))
    return Pick(chosen if ids is None else int(ids[chosen]), logprob, near_tie)


def log_sum_exp(logits: NDArray[np.float32]) -> float:
    """Logarithm of the sum of exponentials of one row."""
    top = logits.max()
    behind = logits - top
    return float(top) + math.log(float(np.exp(behind, out=behind).sum()))


def _legal(
    logits: NDArray[np.float32], mask: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.intp] | None]:
    """The legal logits with their tokens; where nearly all are legal, all of them, the others at -inf."""
    if np.count_nonzero(mask) <= len(mask) * 7 // 8:
        ids = np.flatnonzero(mask)
        return logits[ids], ids
    masked = logits.copy()
    np.copyto(masked, np.float32(-np.inf), where=~mask)
    return masked, None


def _draw(behind: NDArray[np.float32], sampling: Sampling, u: float) -> int:
    """Invert the cumulative distribution of logits, of which the greatest is 0, or of its nucleus at `u`."""
    weights = behind / np.float32(min(sampling.temperature, HOTTEST))
    np.exp(weights, out=weights)
    top_p = sampling.top_p
    if top_p >= 1:
        starts = np.arange(0, len(weights), BLOCK)
        block, u = _invert(np.add.reduceat(weights, starts), u)
        inside = weights[starts[block] : starts[block] + BLOCK]
        return int(starts[block]) + _invert(inside, u)[0]
    # All tokens below this share together can't make up what the nucleus leaves out.
    total = float(weights.sum())
    likely = np.flatnonzero(weights >= total * (1 - top_p) / len(weights))
    # A stable order keeps equal probabilities in token order, the same on every machine.
    order = likely[np.argsort(-weights[likely], kind="stable")]
    enough = np.cumsum(weights[order], dtype=np.float64).searchsorted(top_p * total)
    order = order[: int(enough) + 1]
    return int(order[_invert(weights[order], u)[0]])


def _invert(weights: NDArray[np.float32], u: float) -> tuple[int, float]:
    """Where the cumulative sum of weights exceeds its share `u`, and how much of that weight is used up."""
    cumulative = np.cumsum(weights, dtype=np.float64)
    total = float(cumulative[-1])
    goal = u * total
    # Rounding may take the goal to the whole sum, and so past the last token that has any weight.
    at = min(int(cumulative.searchsorted(goal, "right")), int(cumulative.searchsorted(total)))
    before = float(cumulative[at - 1]) if at else 0.0
    return at, (goal - before) / float(weights[at])
