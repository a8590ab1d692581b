"""transformers as the reference for the decoder, and helpers that build batches over a pool."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch

from agentree.runtime.model.batch import Batch, Row
from agentree.runtime.model.load import LoadedModel


def reference(folder: Path) -> Any:
    """transformers' own model of a folder, float32, eager attention."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    load = cast("Any", AutoModelForCausalLM).from_pretrained
    return load(str(folder), dtype=torch.float32, attn_implementation="eager").eval()


def reference_logits(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """Logits [len(ids), vocab] of one sequence."""
    with torch.inference_mode():
        return cast("torch.Tensor", model(torch.tensor([list(ids)])).logits[0].float())


class Sequences:
    """Sequences in a model's pool, each token in a slot of its own, and a builder of batches over them."""

    def __init__(self, model: LoadedModel, *, seed: int = 0, contiguous: bool = False) -> None:
        self.model = model
        generator = torch.Generator().manual_seed(seed)
        order = (
            torch.arange(model.kv.slots)
            if contiguous
            else torch.randperm(model.kv.slots, generator=generator)
        )
        self.free = cast("list[int]", order.tolist())
        self.ids: list[list[int]] = []
        self.slots: list[list[int]] = []

    def new(self, parent: int | None = None) -> int:
        """Start a sequence, empty or as a fork that shares its parent's slots."""
        self.ids.append([] if parent is None else list(self.ids[parent]))
        self.slots.append([] if parent is None else list(self.slots[parent]))
        return len(self.ids) - 1

    def forward(
        self, parts: Sequence[tuple[int, Sequence[int]]], wanted: Sequence[int] | None = None
    ) -> torch.Tensor:
        """Extend each sequence by its ids in one batch; logits of `wanted` (None: of every token)."""
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        spans: list[tuple[int, int, int]] = []
        for which, new in parts:
            start, before = len(ids), len(self.ids[which])
            taken, self.free = self.free[: len(new)], self.free[len(new) :]
            self.ids[which] += new
            self.slots[which] += taken
            ids += new
            positions += range(before, before + len(new))
            slots += taken
            spans.append((start, len(ids), which))
        rows = [Row(start, stop, torch.tensor(self.slots[which])) for start, stop, which in spans]
        picked = torch.arange(len(ids)) if wanted is None else torch.tensor(list(wanted), dtype=torch.int64)
        batch = Batch(torch.tensor(ids), torch.tensor(positions), torch.tensor(slots), rows, picked)
        return self.model.decoder.forward(batch, self.model.kv)
