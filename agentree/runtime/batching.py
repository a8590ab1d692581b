"""A planned step as tensors."""

import numpy as np
import torch

from agentree.runtime.model.batch import Batch, Row
from agentree.runtime.scheduler import Step


def batch_of(step: Step) -> tuple[Batch, dict[int, int]]:
    """The step's queries in chunk order, and which row of the logits belongs to which query."""
    ids, positions, slots = np.empty((3, step.queries), np.int64)
    rows: list[Row] = []
    begin = 0
    for c in step.chunks:
        if c.stop > c.start:
            end = begin + c.stop - c.start
            ids[begin:end] = c.sequence.ids[c.start : c.stop]
            positions[begin:end] = np.arange(c.start, c.stop)
            slots[begin:end] = c.writes
            rows.append(Row(begin, end, torch.from_numpy(c.sequence.row[: c.stop])))
            begin = end
    wanted = sorted({query for c in step.chunks for _, query in c.wanted})
    batch = Batch(
        ids=torch.from_numpy(ids),
        positions=torch.from_numpy(positions),
        slots=torch.from_numpy(slots),
        rows=rows,
        wanted=torch.from_numpy(np.array(wanted, np.int64)),
    )
    return batch, {query: i for i, query in enumerate(wanted)}
