"""How often each way to run the model says the same: `python -m benchmarks.agreement`. Prints markdown.

Greedy output on prompts of a seeded generator, four questions on each of many contexts, against the plain
path: dense float32 weights, every row attending to its own context. Where an output differs, the two logits
are compared at the first difference: closer than a near-tie, rounding alone decided.
"""

import argparse
import os
import random
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch

from agentree.events import Bus
from agentree.runtime.engine import Engine
from agentree.runtime.model import attention, linear
from agentree.runtime.model.batch import Batch, Row
from agentree.runtime.model.kernels import VARIABLE
from agentree.runtime.model.load import LoadedModel, load_model
from agentree.runtime.request import Request
from agentree.runtime.sampling import NEAR_TIE
from benchmarks.overhead import run

PLACES = ("harbour", "library", "orchard", "station", "workshop", "observatory", "bakery", "archive")
PEOPLE = ("Ines", "Tomas", "Yuki", "Farid", "Greta", "Olu", "Marta", "Ravi")
THINGS = ("lamp", "ledger", "kettle", "compass", "rope", "clock", "map", "crate")
QUESTIONS = (
    "Who holds the {thing}, and where?",
    "Write one sentence about the {thing}.",
    "List three things that {person} could do at the {place}.",
    "Continue the story with what {person} finds next.",
    "What is {a} plus {b}? Explain.",
    "Say in French: the {thing} is at the {place}.",
)
WAVE = 64
PLAIN = "plain"
WAYS: tuple[tuple[str, Literal["fp32", "fp16", "bf16", "int8"]], ...] = (
    ("torch", "fp32"),
    ("torch", "fp16"),
    ("torch", "int8"),
    ("compiled", "fp32"),
    ("compiled", "fp16"),
    ("compiled", "bf16"),
    ("compiled", "int8"),
)
"""Kernels and weights."""


def prompts(count: int, seed: int = 7) -> list[str]:
    """Prompts, four neighbours of which share their context."""
    rng = random.Random(seed)
    found: list[str] = []
    while len(found) < count:
        facts = " ".join(
            f"{rng.choice(PEOPLE)} took the {rng.choice(THINGS)} from the {rng.choice(PLACES)} at "
            f"{rng.randint(1, 12)} o'clock."
            for _ in range(rng.randint(1, 4))
        )
        for template in rng.sample(QUESTIONS, 4):
            question = template.format(
                thing=rng.choice(THINGS),
                person=rng.choice(PEOPLE),
                place=rng.choice(PLACES),
                a=rng.randint(10, 999),
                b=rng.randint(10, 999),
            )
            found.append(f"<|im_start|>user\n{facts} {question}<|im_end|>\n<|im_start|>assistant\n")
    return found[:count]


def nothing_shared(pasts: Sequence[object], **_: int) -> tuple[list[object], list[int]]:
    """`sharing.share` that finds nothing."""
    return [], [0] * len(pasts)


@contextmanager
def plain() -> Generator[None]:
    """Load and run on torch, without oneDNN's products, and with nothing shared in attention."""
    patched: Any = linear
    planner: Any = attention
    wins, share = patched.onednn_wins, planner.share
    patched.onednn_wins = lambda: False
    planner.share = nothing_shared
    try:
        with on("torch"):
            yield
    finally:
        patched.onednn_wins, planner.share = wins, share


@contextmanager
def on(kernels: str) -> Generator[None]:
    """Load with kernels of a kind."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = kernels
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


@dataclass(frozen=True)
class Said:
    """Outputs of one way, and what they cost."""

    outputs: list[tuple[int, ...]]
    cpu: float
    weights: str


def greedy(model: LoadedModel, ids: list[tuple[int, ...]], tokens: int) -> Said:
    """Generate in waves, so that contexts are shared within a wave."""
    engine = Engine(model, bus=Bus())
    outputs: list[tuple[int, ...]] = []
    began = time.process_time()
    try:
        for at in range(0, len(ids), WAVE):
            wave = [
                Request(prompt=one, max_tokens=tokens, namespace=("agreement",))
                for one in ids[at : at + WAVE]
            ]
            outputs += [result.output for result in run(engine, wave)]
    finally:
        engine.close()
    return Said(outputs, time.process_time() - began, model.weights)


def gap(model: LoadedModel, ids: tuple[int, ...], one: int, other: int) -> float:
    """How far two continuations of `ids` are apart in the plain model's logits."""
    n = len(ids)
    every = torch.arange(n)
    batch = Batch(torch.tensor(ids), every, every, [Row(0, n, every)], torch.tensor([n - 1]))
    logits = model.decoder.forward(batch, model.kv)[0]
    return abs(float(logits[one] - logits[other]))


def differences(model: LoadedModel, ids: list[tuple[int, ...]], expected: Said, found: Said) -> list[float]:
    """The gap at the first difference of each output that differs."""
    gaps: list[float] = []
    for prompt, a, b in zip(ids, expected.outputs, found.outputs, strict=True):
        if a != b:
            at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            gaps.append(gap(model, prompt + a[:at], a[at], b[at]) if at < min(len(a), len(b)) else 0.0)
    return gaps


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--prompts", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=16)
    options = parser.parse_args()
    pool = 16384
    with plain():
        reference = load_model(options.model, device="cpu", weights="fp32", kv_tokens=pool)
        ids = [tuple(reference.tokenizer.encode(text)) for text in prompts(options.prompts)]
        expected = greedy(reference, ids, options.tokens)
    print("| path | equal | near-ties | other | tokens before the first difference | CPU seconds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    print(f"| {PLAIN} | {len(ids)} | 0 | 0 | all | {expected.cpu:.0f} |", flush=True)
    for kernels, weights in WAYS:
        with on(kernels):
            model = load_model(options.model, device="cpu", weights=weights, kv_tokens=pool)
        found = greedy(model, ids, options.tokens)
        gaps = differences(reference, ids, expected, found)
        ties = sum(one < NEAR_TIE for one in gaps)
        same = total = 0
        for a, b in zip(expected.outputs, found.outputs, strict=True):
            total += len(a)
            same += next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
        counts = f"{len(ids) - len(gaps)} | {ties} | {len(gaps) - ties}"
        print(f"| {kernels} {found.weights} | {counts} | {same / total:.1%} | {found.cpu:.0f} |", flush=True)


if __name__ == "__main__":
    main()
