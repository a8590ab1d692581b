"""One forward pass, each way to run it beside the plain one: `python -m benchmarks.forward`. Prints markdown.

Plain is torch on dense float32 weights with every row attending to its own context. The ways take turns
within one process; the numbers are CPU milliseconds on one thread, the best of some turns, because others on
a machine only ever make a step slower.
"""

import argparse
import random
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from agentree.runtime.model.batch import Batch, Row
from agentree.runtime.model.load import LoadedModel, load_model
from agentree.runtime.model.threads import Threads
from benchmarks.agreement import on, plain


@dataclass(frozen=True)
class Shape:
    """`rows` rows of `queries` queries each, with `own` tokens of theirs behind `trunk` tokens of all."""

    name: str
    rows: int
    queries: int
    trunk: int
    own: int


SHAPES = (
    Shape("decode, 1 row of 620", 1, 1, 600, 20),
    Shape("decode, 5 branches", 5, 1, 600, 20),
    Shape("decode, 16 branches", 16, 1, 600, 20),
    Shape("decode, 64 branches", 64, 1, 600, 20),
    Shape("decode, 8 strangers of 300", 8, 1, 0, 300),
    Shape("16 questions of 31 on 900", 16, 31, 900, 0),
    Shape("prefill of 512", 1, 512, 0, 0),
)


@dataclass(frozen=True)
class Way:
    """One way to run the model."""

    name: str
    model: LoadedModel
    shares: bool

    def step(self, batch: Batch) -> float:
        """CPU seconds of a forward."""
        with nullcontext() if self.shares else plain():
            began = time.thread_time()
            self.model.decoder.forward(batch, self.model.kv)
            return time.thread_time() - began


def batch_of(shape: Shape, vocab: int) -> Batch:
    """Random tokens over slots that lie as a fresh pool hands them out."""
    rng = random.Random(0)
    trunk = torch.arange(shape.trunk)
    tokens = shape.rows * shape.queries
    rows: list[Row] = []
    slots: list[torch.Tensor] = []
    # Sequences that decode together take turns in taking slots.
    private = shape.own + shape.queries
    for i in range(shape.rows):
        if shape.queries == 1 and shape.trunk:
            own = shape.trunk + i + shape.rows * torch.arange(private)
        else:
            own = shape.trunk + i * private + torch.arange(private)
        slots.append(own[shape.own :])
        rows.append(Row(i * shape.queries, (i + 1) * shape.queries, torch.cat([trunk, own])))
    place = shape.trunk + shape.own + torch.arange(shape.queries)
    ids = [rng.randrange(100, vocab) for _ in range(tokens)]
    last = torch.arange(1, shape.rows + 1) * shape.queries - 1
    return Batch(torch.tensor(ids), place.repeat(shape.rows), torch.cat(slots), rows, last)


def best(calls: list[Callable[[], float]], turns: int) -> list[float]:
    """The best of some turns of each."""
    found = [float("inf")] * len(calls)
    for _ in range(turns):
        found = [min(before, call()) for before, call in zip(found, calls, strict=True)]
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()

    def load(weights: Literal["fp32", "fp16", "bf16", "int8"], kernels: str = "compiled") -> LoadedModel:
        with on(kernels):
            model = load_model(options.model, device="cpu", weights=weights, kv_tokens=8192)
        model.decoder._threads = Threads(1)
        for layer in model.kv.kv:
            layer.normal_()
        return model

    with plain():
        dense = load("fp32", "torch")
    half = load("fp16", "torch")
    ways = [
        Way("plain", dense, shares=False),
        Way("torch fp32", load("fp32", "torch"), shares=True),
        Way("torch fp16, unshared", half, shares=False),
        Way("torch fp16", half, shares=True),
        Way("fp32", load("fp32"), shares=True),
        Way("fp16", load("fp16"), shares=True),
        Way("bf16", load("bf16"), shares=True),
        Way("int8", load("int8"), shares=True),
    ]
    print("| CPU ms | " + " | ".join(way.name for way in ways) + " |")
    print("| --- |" + " ---: |" * len(ways))
    torch.set_num_threads(1)
    for shape in SHAPES:
        batch = batch_of(shape, half.config.vocab_size)
        found = best([partial(way.step, batch) for way in ways], options.turns)
        print(f"| {shape.name} | " + " | ".join(f"{1e3 * one:.1f}" for one in found) + " |", flush=True)


if __name__ == "__main__":
    main()
