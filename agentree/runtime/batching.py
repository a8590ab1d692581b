"""A planned step as tensors."""

import numpy as np
import torch

from agentree.runtime.model.batch import Batch, Row
from agentree.runtime.scheduler import Step


def batch_of(step: Step) -> tuple[Batch, dict[int, int]]:
    """The step's queries in chunk order, and which row of the logits belongs to which query."""
    chunks = [c for c in step.chunks if c.stop > c.start]
    ids = np.concatenate([c.sequence.ids[c.start : c.stop] for c in chunks]).astype(np.int64)
    positions = np.concatenate([np.arange(c.start, c.stop) for c in chunks])
    rows: list[Row] = []
    begin = 0
    for c in chunks:
        end = begin + c.stop - c.start
        rows.append(Row(begin, end, torch.from_numpy(c.sequence.row[: c.stop])))
        begin = end
    wanted = sorted({query for c in step.chunks for _, query in c.wanted})
    batch = Batch(
        ids=torch.from_numpy(ids),
        positions=torch.from_numpy(positions),
        slots=torch.from_numpy(np.concatenate([c.writes for c in chunks])),
        rows=rows,
        wanted=torch.tensor(wanted, dtype=torch.int64),
    )
    return batch, {query: i for i, query in enumerate(wanted)}
