"""Picking the next token: masked greedy or nucleus sampling on a counter-based generator.

The random number of a position depends on (seed, position) alone, never on what else runs, so that batch
neighbours, preemption and resume can't change a token (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", SC'11, for the idea; the mixer is SplitMix64, Steele et al., OOPSLA'14).
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from agentree.runtime.request import Sampling

NEAR_TIE = 1e-4
"""Two best logits closer than this are a near-tie: rounding may order them either way."""

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
    logits: torch.Tensor, sampling: Sampling, position: int, mask: NDArray[np.bool_] | None = None
) -> Pick:
    """Pick a token.

    Args:
        logits: float32 [vocab] of one position.
        sampling: Temperature 0 takes the best token, the lowest id among equals.
        position: Index of the token in its transcript: the counter of the generator.
        mask: bool [vocab], the legal tokens; None: all of them.

    Raises:
        ValueError: The mask allows nothing, or the logits hold NaN.
    """
    if mask is not None:
        legal = torch.from_numpy(mask.copy()).to(logits.device)
        logits = torch.where(legal, logits, -torch.inf)
    best = torch.max(logits, dim=-1)
    top = float(best.values)
    if not np.isfinite(top):
        raise ValueError("no token can be picked: the mask allows none, or the logits are not finite")
    norm = float(torch.logsumexp(logits, dim=-1))
    if sampling.temperature == 0:
        token = int(best.indices)
        second = float(torch.topk(logits, 2).values[1]) if logits.numel() > 1 else -np.inf
        return Pick(token, top - norm, top - second < NEAR_TIE)
    token = _draw(logits, sampling, uniform(sampling.seed, position))
    return Pick(token, float(logits[token]) - norm, near_tie=False)


def _draw(logits: torch.Tensor, sampling: Sampling, u: float) -> int:
    """Invert the cumulative distribution at `u`, in double precision."""
    probs = torch.softmax(logits.double() / sampling.temperature, dim=-1)
    if sampling.top_p >= 1:
        cumulative = torch.cumsum(probs, dim=-1)
        order = None
    else:
        # A stable order keeps equal probabilities in token order, the same on every machine.
        ranked, order = torch.sort(probs, descending=True, stable=True)
        cumulative = torch.cumsum(ranked, dim=-1)
        nucleus = int(torch.searchsorted(cumulative, torch.tensor(sampling.top_p, dtype=cumulative.dtype)))
        cumulative = cumulative[: nucleus + 1]
    target = torch.tensor(u, dtype=cumulative.dtype, device=cumulative.device) * cumulative[-1]
    index = min(int(torch.searchsorted(cumulative, target, right=True)), len(cumulative) - 1)
    return index if order is None else int(order[index])
