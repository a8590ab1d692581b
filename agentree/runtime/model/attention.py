"""Attention of a mixed batch over the slot pool, planned once per batch and run once per layer.

Rows with few queries (decode, forced runs) are padded into groups: one gather and one attention call for
all of them. Rows with many queries (prefill chunks) run alone, in blocks of queries that see no further
than they must. Every index and mask is built by the planner; a layer only gathers and attends.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from agentree.runtime.model.batch import Row

FEW = 16
"""Rows of up to so many queries are grouped."""
BLOCK = 128
"""Queries of a prefill chunk that attend in one call."""
WASTE = 256
"""Padded K/V positions per layer that cost less than one more attention call."""


@dataclass(frozen=True, eq=False)
class Gather:
    """Where the K/V of some rows lie: a run of slots that needs no copy, or an index."""

    rows: int
    length: int
    first: int
    index: torch.Tensor | None

    def read(self, kv: torch.Tensor) -> torch.Tensor:
        """[slots + 1, 2 * kv_heads, head_dim] -> [rows, 2 * kv_heads, length, head_dim]."""
        if self.index is None:
            picked = kv.narrow(0, self.first, self.length).unsqueeze(0)
        else:
            picked = kv.index_select(0, self.index).view(self.rows, self.length, *kv.shape[1:])
        return picked.transpose(1, 2)


@dataclass(frozen=True, eq=False)
class Group:
    """Rows with few queries each, padded to `queries` per row and to the longest context."""

    gather: Gather
    queries: int
    tokens: slice | torch.Tensor
    """Their places in the batch, row by row; a padded query repeats the last one of its row."""
    mask: torch.Tensor | None
    """Additive float [rows, 1, queries, length]."""

    def attend(self, q: torch.Tensor, kv: torch.Tensor, out: torch.Tensor) -> None:
        """Write the outputs of these rows into `out` [T, heads, head_dim]."""
        k, v = self.gather.read(kv).chunk(2, dim=1)
        picked = q[self.tokens].view(self.gather.rows, self.queries, *q.shape[1:]).transpose(1, 2)
        found = functional.scaled_dot_product_attention(picked, k, v, self.mask, enable_gqa=True)
        out[self.tokens] = found.transpose(1, 2).flatten(0, 1)


@dataclass(frozen=True, eq=False)
class Chunk:
    """One row with many queries `start:stop` of the batch."""

    gather: Gather
    start: int
    stop: int
    mask: torch.Tensor
    """Additive float [BLOCK, at least length]: row r of the last n columns sees n - BLOCK + r + 1."""

    def attend(self, q: torch.Tensor, kv: torch.Tensor, out: torch.Tensor) -> None:
        """Write the outputs of this row into `out` [T, heads, head_dim]."""
        k, v = self.gather.read(kv).chunk(2, dim=1)
        before = self.gather.length - (self.stop - self.start)
        width = self.mask.shape[1]
        for first in range(self.start, self.stop, BLOCK):
            last = min(first + BLOCK, self.stop)
            seen = before + last - self.start
            found = functional.scaled_dot_product_attention(
                q[first:last].transpose(0, 1).unsqueeze(0),
                k[:, :, :seen],
                v[:, :, :seen],
                self.mask[BLOCK - (last - first) :, width - seen :],
                enable_gqa=True,
            )
            out[first:last] = found.squeeze(0).transpose(0, 1)


class AttentionPlan:
    """What every layer does to attend the rows of one batch of `tokens` tokens.

    Raises:
        ValueError: the rows don't cover the batch, or one has more queries than context.
    """

    def __init__(self, rows: Sequence[Row], tokens: int, dtype: torch.dtype, device: torch.device) -> None:
        covered = 0
        for row in rows:
            queries = row.stop - row.start
            if not 0 < queries <= row.kv.shape[0]:
                raise ValueError(f"a row of {queries} queries over a context of {row.kv.shape[0]} tokens")
            covered += queries
        if covered != tokens:
            raise ValueError(f"the rows hold {covered} queries, the batch {tokens} tokens")
        few = [row for row in rows if row.stop - row.start <= FEW]
        many = [row for row in rows if row.stop - row.start > FEW]
        self.parts: list[Group | Chunk] = [_group(part, dtype, device) for part in _partition(few)]
        if many:
            width = max(max(row.kv.shape[0] for row in many), BLOCK)
            mask = torch.full((BLOCK, width), float("-inf"), dtype=dtype, device=device)
            mask = mask.triu_(width - BLOCK + 1)
            for row in many:
                self.parts.append(Chunk(_locate([row.kv], device), row.start, row.stop, mask))

    def attend(self, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        """Attend q [T, heads, head_dim] to one layer of the pool -> [T, heads * head_dim]."""
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for part in self.parts:
            part.attend(q, kv, out)
        return out.flatten(1)


def _partition(rows: Sequence[Row]) -> list[list[Row]]:
    """Group rows of like size: padding may cost WASTE positions or a quarter of what is there."""
    groups: list[list[Row]] = []
    longest = used = waste = queries = 0
    for row in sorted(
        rows, key=lambda row: ((row.stop - row.start - 1).bit_length(), row.kv.shape[0]), reverse=True
    ):
        size, bucket = row.kv.shape[0], (row.stop - row.start - 1).bit_length()
        if groups and bucket == queries and waste + longest - size <= max(WASTE, (used + size) // 4):
            groups[-1].append(row)
            used, waste = used + size, waste + longest - size
        else:
            groups.append([row])
            longest, used, waste, queries = size, size, 0, bucket
    return groups


def _locate(contexts: Sequence[torch.Tensor], device: torch.device) -> Gather:
    length = max(context.shape[0] for context in contexts)
    if len(contexts) == 1:
        context = contexts[0]
        first = int(context[0])
        if bool(torch.equal(context, torch.arange(first, first + length, device=context.device))):
            return Gather(1, length, first, None)
        return Gather(1, length, first, context.to(device))
    # Padding must name a slot that holds finite numbers: a masked NaN would still poison the row.
    fill = int(contexts[0][0])
    index = pad_sequence(list(contexts), batch_first=True, padding_value=fill)
    return Gather(len(contexts), length, fill, index.flatten().to(device))


def _group(rows: Sequence[Row], dtype: torch.dtype, device: torch.device) -> Group:
    gather = _locate([row.kv for row in rows], device)
    starts = torch.tensor([row.start for row in rows])[:, None]
    counts = torch.tensor([row.stop - row.start for row in rows])[:, None]
    lengths = torch.tensor([row.kv.shape[0] for row in rows])[:, None]
    queries = int(counts.max())
    offsets = torch.minimum(torch.arange(queries), counts - 1)
    tokens = (starts + offsets).flatten()
    places: slice | torch.Tensor = tokens.to(device)
    first, size = rows[0].start, tokens.shape[0]
    if bool(torch.equal(tokens, torch.arange(first, first + size))):
        places = slice(first, first + size)
    visible = lengths - counts + 1 + offsets
    if bool((visible == gather.length).all()):
        return Group(gather, queries, places, None)
    mask = torch.zeros((len(rows), queries, gather.length), dtype=dtype)
    mask.masked_fill_(torch.arange(gather.length) >= visible[:, :, None], float("-inf"))
    return Group(gather, queries, places, mask.unsqueeze(1).to(device))
