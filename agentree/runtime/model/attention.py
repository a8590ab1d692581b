"""Attention of a mixed batch over the slot pool, planned once per batch and run once per layer.

What several rows have in common is read once, by all of their queries together (`sharing`). What is left of
each row, its own queries always among it, is padded into groups where queries are few, so that one gather
and one attention call serve many rows; prefill chunks run alone, in blocks of queries that see no further
than they must. Partial results merge by their log-sum-exp (Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018; for prefixes Juravsky et al., "Hydragen", 2024). Every index and mask is
built by the planner; a layer only gathers, attends and merges.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
import torch
from torch.nn import functional

from agentree.runtime.model.batch import Row
from agentree.runtime.model.sharing import RUN, WORTH, Segment, Slots, adjacent, share

FEW = 64
"""Rows of up to so many queries are grouped."""
BLOCK = 128
"""Queries of a prefill chunk that attend in one call."""
WASTE = 256
"""Padded K/V positions per layer that cost less than one more attention call."""

_FLASH: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)

Places = slice | torch.Tensor
"""Tokens of the batch: a run of them, or an index."""


@dataclass(frozen=True, eq=False)
class State:
    """What the tokens of a batch have attended so far."""

    out: torch.Tensor
    """[T, heads, head_dim]."""
    lse: torch.Tensor | None
    """Log-sum-exp of the scores behind `out`: [T, heads]; None where nothing will be merged."""


@dataclass(frozen=True, eq=False)
class Gather:
    """Where the K/V of some rows lie: a run of slots that needs no copy, or an index."""

    rows: int
    length: int
    first: int
    index: torch.Tensor | None

    def read(self, kv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[slots + 1, 2 * kv_heads, head_dim] -> K and V, each [rows, kv_heads, length, head_dim]."""
        if self.index is None:
            picked = kv.narrow(0, self.first, self.length).unsqueeze(0)
        else:
            picked = kv.index_select(0, self.index).view(self.rows, self.length, *kv.shape[1:])
        k, v = picked.transpose(1, 2).chunk(2, dim=1)
        return k, v


@dataclass(frozen=True, eq=False)
class Group:
    """Rows with few queries each, padded to `queries` per row and to the longest context.

    The query heads that share a K/V head stand beside each other as so many more queries, so that K and V
    are read once for all of them.
    """

    gather: Gather
    queries: int
    tokens: Places
    """Their places in the batch, row by row; a padded query repeats the last one of its row."""
    mask: torch.Tensor | None
    """Additive float [rows, 1, queries * (heads / kv_heads), length]."""

    def attend(self, q: torch.Tensor, kv: torch.Tensor, state: State) -> None:
        """Write the outputs of these rows, computed from what is theirs alone."""
        out, lse = self._found(q, kv, merges=state.lse is not None)
        state.out[self.tokens] = out
        if state.lse is not None:
            state.lse[self.tokens] = lse

    def merge(self, q: torch.Tensor, kv: torch.Tensor, state: State) -> None:
        """Add one more stretch of context to what these rows have attended."""
        assert state.lse is not None
        out, lse = self._found(q, kv, merges=True)
        before = state.lse[self.tokens]
        share = torch.sigmoid(lse - before).unsqueeze_(-1)
        state.lse[self.tokens] = torch.logaddexp(before, lse)
        state.out[self.tokens] = torch.lerp(state.out[self.tokens], out, share)

    def _found(self, q: torch.Tensor, kv: torch.Tensor, *, merges: bool) -> tuple[torch.Tensor, torch.Tensor]:
        k, v = self.gather.read(kv)
        rows, kv_heads, size = k.shape[0], k.shape[1], q.shape[2]
        picked = q[self.tokens].view(rows, self.queries, kv_heads, -1, size).transpose(1, 2)
        found, lse = _attend(picked.reshape(rows, kv_heads, -1, size), k, v, self.mask, merges=merges)
        found = found.reshape(rows, kv_heads, self.queries, -1, size).transpose(1, 2)
        lse = lse.reshape(rows, kv_heads, self.queries, -1).transpose(1, 2)
        return found.reshape(-1, q.shape[1], size), lse.reshape(-1, q.shape[1])


@dataclass(frozen=True, eq=False)
class Chunk:
    """One row with many queries `start:stop` of the batch."""

    gather: Gather
    start: int
    stop: int
    mask: torch.Tensor
    """Additive float [BLOCK, at least length]: row r of the last n columns sees n - BLOCK + r + 1."""

    def attend(self, q: torch.Tensor, kv: torch.Tensor, state: State) -> None:
        """Write the outputs of this row."""
        k, v = self.gather.read(kv)
        before = self.gather.length - (self.stop - self.start)
        width = self.mask.shape[1]
        for first in range(self.start, self.stop, BLOCK):
            last = min(first + BLOCK, self.stop)
            seen = before + last - self.start
            found, lse = _attend(
                q[first:last].transpose(0, 1).unsqueeze(0),
                k[:, :, :seen],
                v[:, :, :seen],
                self.mask[BLOCK - (last - first) :, width - seen :],
                merges=state.lse is not None,
            )
            state.out[first:last] = found.squeeze(0).transpose(0, 1)
            if state.lse is not None:
                state.lse[first:last] = lse.squeeze(0).transpose(0, 1)


class AttentionPlan:
    """What every layer does to attend the rows of one batch of `tokens` tokens.

    `groups` is heads / kv_heads. `worth` and `run` are those of `sharing.share`; on a GPU nothing is shared.

    Raises:
        ValueError: the rows don't cover the batch, or one has more queries than context.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        tokens: int,
        groups: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        worth: int = WORTH,
        run: int = RUN,
    ) -> None:
        check_rows(rows, tokens)
        builder = _Builder(groups, dtype, device)
        contexts = [cast("Slots", row.kv.numpy()) for row in rows]
        shared: list[Segment] = []
        if device.type == "cpu":
            shared, starts = _share(rows, contexts, worth, run)
            contexts = [context[start:] for context, start in zip(contexts, starts, strict=True)]
        left = [_Left(row.start, row.stop, context) for row, context in zip(rows, contexts, strict=True)]
        many = [row for row in left if row.stop - row.start > FEW]
        self.own: list[Group | Chunk] = [
            builder.group(part) for part in _partition([row for row in left if row.stop - row.start <= FEW])
        ]
        self.own += builder.chunks(many)
        self.shared = [builder.shared(segment, [rows[i] for i in segment.rows]) for segment in shared]

    def attend(self, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        """Attend q [T, heads, head_dim] to one layer of the pool -> [T, heads * head_dim]."""
        state = State(
            torch.empty(q.shape, dtype=q.dtype, device=q.device),
            torch.empty(q.shape[:2], dtype=torch.float32, device=q.device) if self.shared else None,
        )
        for part in self.own:
            part.attend(q, kv, state)
        for segment in self.shared:
            segment.merge(q, kv, state)
        return state.out.flatten(1)


@dataclass(frozen=True, eq=False)
class _Left:
    """Queries `start:stop` of a row and the slots that no segment covers."""

    start: int
    stop: int
    slots: Slots


class _Builder:
    """Makes tensors of what was planned."""

    def __init__(self, groups: int, dtype: torch.dtype, device: torch.device) -> None:
        self._groups = groups
        self._dtype = dtype
        self._device = device

    def shared(self, segment: Segment, rows: Sequence[Row]) -> Group:
        tokens = np.concatenate([np.arange(row.start, row.stop) for row in rows])
        return Group(self._locate([segment.slots]), len(tokens), self._places(tokens), None)

    def group(self, rows: Sequence[_Left]) -> Group:
        gather = self._locate([row.slots for row in rows])
        starts = np.array([row.start for row in rows])[:, None]
        counts = np.array([row.stop - row.start for row in rows])[:, None]
        lengths = np.array([len(row.slots) for row in rows])[:, None]
        queries = int(counts.max())
        offsets = np.minimum(np.arange(queries), counts - 1)
        places = self._places((starts + offsets).ravel())
        visible = lengths - counts + 1 + offsets
        if (visible == gather.length).all():
            return Group(gather, queries, places, None)
        seen = np.repeat(visible, self._groups, axis=1)[:, None, :, None] > np.arange(gather.length)
        mask = torch.zeros(seen.shape, dtype=self._dtype)
        mask.masked_fill_(torch.from_numpy(~seen), float("-inf"))
        return Group(gather, queries, places, mask.to(self._device))

    def chunks(self, rows: Sequence[_Left]) -> list[Chunk]:
        if not rows:
            return []
        width = max(max(len(row.slots) for row in rows), BLOCK)
        mask = torch.full((BLOCK, width), float("-inf"), dtype=self._dtype, device=self._device)
        mask = mask.triu_(width - BLOCK + 1)
        return [Chunk(self._locate([row.slots]), row.start, row.stop, mask) for row in rows]

    def _places(self, tokens: Slots) -> Places:
        if adjacent(tokens) == len(tokens):
            return slice(int(tokens[0]), int(tokens[0]) + len(tokens))
        return torch.from_numpy(tokens).to(self._device)

    def _locate(self, contexts: Sequence[Slots]) -> Gather:
        length = max(map(len, contexts))
        # Padding must name a slot that holds finite numbers: a masked NaN would still poison the row.
        fill = int(contexts[0][0])
        if len(contexts) == 1 and adjacent(contexts[0]) == length:
            return Gather(1, length, fill, None)
        index = np.full((len(contexts), length), fill)
        for line, context in zip(index, contexts, strict=True):
            line[: len(context)] = context
        return Gather(len(contexts), length, fill, torch.from_numpy(index.ravel()).to(self._device))


def check_rows(rows: Sequence[Row], tokens: int) -> None:
    """Raise ValueError if the rows don't cover `tokens` tokens, or one has more queries than context."""
    covered = 0
    for row in rows:
        queries = row.stop - row.start
        if not 0 < queries <= row.kv.shape[0]:
            raise ValueError(f"a row of {queries} queries over a context of {row.kv.shape[0]} tokens")
        covered += queries
    if covered != tokens:
        raise ValueError(f"the rows hold {covered} queries, the batch {tokens} tokens")


def _share(
    rows: Sequence[Row], contexts: Sequence[Slots], worth: int, run: int
) -> tuple[list[Segment], list[int]]:
    if len(rows) == 1 and adjacent(contexts[0]) == len(contexts[0]):
        return [], [0]
    pasts = [
        context[: len(context) - (row.stop - row.start)] for row, context in zip(rows, contexts, strict=True)
    ]
    return share(pasts, worth=worth, run=run)


def _partition(rows: Sequence[_Left]) -> list[list[_Left]]:
    """Group rows of like size: padding may cost WASTE positions or a quarter of what is there."""
    groups: list[list[_Left]] = []
    longest = used = waste = queries = 0
    for row in sorted(
        rows, key=lambda row: ((row.stop - row.start - 1).bit_length(), len(row.slots)), reverse=True
    ):
        size, bucket = len(row.slots), (row.stop - row.start - 1).bit_length()
        if groups and bucket == queries and waste + longest - size <= max(WASTE, (used + size) // 4):
            groups[-1].append(row)
            used, waste = used + size, waste + longest - size
        else:
            groups.append([row])
            longest, used, waste, queries = size, size, 0, bucket
    return groups


@cache
def flash_works() -> bool:
    """Whether this torch's CPU kernel computes what it should, grouped heads included."""
    if _FLASH is None:
        return False
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, 5, 8, generator=generator) for heads in (6, 2, 2))
    mask = torch.zeros(5, 5).masked_fill_(torch.ones(5, 5).triu_(1).bool(), float("-inf"))
    try:
        found = cast("tuple[torch.Tensor, torch.Tensor]", _FLASH(q, k, v, attn_mask=mask))
    except (RuntimeError, TypeError):
        return False
    expected = _explicit(q, k, v, mask)
    return all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, expected, strict=True))


def _explicit(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    if q.shape[1] != k.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = torch.matmul(q, k.transpose(-1, -2)).mul_(q.shape[-1] ** -0.5)
    if mask is not None:
        scores += mask
    lse = torch.logsumexp(scores, dim=-1)
    return torch.matmul(scores.sub_(lse.unsqueeze(-1)).exp_(), v), lse


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, *, merges: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax attention [B, H, n, head_dim] and the log-sum-exp of its scores, [B, H, n].

    Where nothing `merges` the second may hold anything.
    """
    if q.device.type == "cpu" and flash_works():
        return cast("tuple[torch.Tensor, torch.Tensor]", _FLASH(q, k, v, attn_mask=mask))
    if not merges:
        found = functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
        return found, found[..., 0]
    return _explicit(q, k, v, mask)
