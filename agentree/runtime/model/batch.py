"""One forward pass: which tokens, where they stand, where their K/V go, and what each row may see."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False)
class Row:
    """Queries `ids[start:stop]` of a batch: the last `stop - start` positions of the context `kv`."""

    start: int
    stop: int
    kv: torch.Tensor
    """Slots of the whole context in order, those of the queries included: int64 [n]."""


@dataclass(frozen=True, eq=False)
class Batch:
    """T tokens of any mixture of prefill chunks, extends and single decode tokens."""

    ids: torch.Tensor
    """int64 [T]."""
    positions: torch.Tensor
    """int64 [T]: place of each token in its context."""
    slots: torch.Tensor
    """int64 [T]: where K/V of each token are written; `KVPool.scratch` throws them away."""
    rows: Sequence[Row]
    """Together they cover each token once."""
    wanted: torch.Tensor
    """int64 [L]: the tokens whose logits are asked for."""
