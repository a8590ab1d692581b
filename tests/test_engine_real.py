"""The engine on the embedded model: equal to a plain transformers loop, and to itself in every state."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_harness import engine_over, load, reference_model, run
from pydantic import BaseModel, Field

from agentree import Choice, Regex, Runtime, compile_constraint, user
from agentree.runtime.model.load import LoadedModel
from agentree.runtime.request import Request

pytestmark = pytest.mark.model
TOKENS = 16
NEAR_TIE = 1e-4
TOPICS = (
    "the sea", "a fox", "Oslo", "prime numbers", "tea", "the moon", "a broken clock", "bees", "rivers",
    "chess", "the number 17", "bread", "sailing", "a red door", "winter", "music", "maps", "an old library",
    "rain", "stars",
)  # fmt: skip
PROMPTS = [
    f"<|im_start|>user\nTell me one thing about {topic}.<|im_end|>\n<|im_start|>assistant\n"
    for topic in TOPICS
]


@pytest.fixture(scope="module")
def model(smollm2: Path) -> LoadedModel:
    return load(smollm2, kv_tokens=8192, weights="auto")


@pytest.fixture(scope="module")
def expected(smollm2: Path, model: LoadedModel) -> Iterator[list[tuple[list[int], list[float]]]]:
    """For each prompt the greedy ids of a transformers loop, and how far its two best logits were apart."""
    reference = reference_model(smollm2)
    made: list[tuple[list[int], list[float]]] = []
    with torch.inference_mode():
        for prompt in PROMPTS:
            ids = model.tokenizer.encode(prompt, special=True)
            tokens: list[int] = []
            gaps: list[float] = []
            while len(tokens) < TOKENS:
                best = reference(torch.tensor([ids + tokens])).logits[0, -1].topk(2)
                token = int(best.indices[0])
                if token in model.tokenizer.end_ids:
                    break
                tokens.append(token)
                gaps.append(float(best.values[0] - best.values[1]))
            made.append((tokens, gaps))
    yield made
    reference_model.cache_clear()


def requests(model: LoadedModel) -> list[Request]:
    return [
        Request(
            prompt=tuple(model.tokenizer.encode(p, special=True)),
            max_tokens=TOKENS,
            end_ids=model.tokenizer.end_ids,
        )
        for p in PROMPTS
    ]


def compare(name: str, outputs: list[list[int]], expected: list[tuple[list[int], list[float]]]) -> None:
    """Equal token for token; a difference may only begin at a near-tie, and is listed then."""
    for prompt, got, (tokens, gaps) in zip(PROMPTS, outputs, expected, strict=True):
        if got == tokens:
            continue
        at = next((i for i, (a, b) in enumerate(zip(got, tokens, strict=False)) if a != b), len(tokens) - 1)
        assert gaps[at] < NEAR_TIE, f"{name}: {prompt!r} differs at token {at}, where the gap is {gaps[at]}"
        print(f"{name}: {prompt!r} differs from token {at} on, a near-tie of {gaps[at]:.1e}")


def test_greedy_equals_transformers_cold_warm_and_in_a_batch(
    model: LoadedModel, expected: list[tuple[list[int], list[float]]]
) -> None:
    asked = requests(model)
    with engine_over(model) as engine:
        cold = [list(run(engine, r)[0].output) for r in asked]
        warm = [list(run(engine, r)[0].output) for r in asked]
    with engine_over(model) as engine:
        batches = [run(engine, *asked[i : i + 8]) for i in range(0, len(asked), 8)]
    compare("cold", cold, expected)
    compare("warm", warm, expected)
    compare("batch of 8", [list(r.output) for batch in batches for r in batch], expected)


class Review(BaseModel):
    """What a short text says of a thing."""

    title: str = Field(max_length=30)
    stars: int = Field(ge=1, le=5)
    tags: list[str] = Field(max_length=2)


WANTED: tuple[Any, ...] = (
    Review,
    Regex(r"\d{4}-\d{2}-\d{2}"),
    Choice(["tea and cake", "tea", "coffee"]),
    bool,
    list[int],
)


async def forced_values(*, jump_forward: bool) -> tuple[list[tuple[Any, list[bytes]]], int]:
    """(type, bytes of each token) of forced values, and how many of their tokens were forced."""
    made: list[tuple[Any, list[bytes]]] = []
    forced = 0
    async with Runtime(kv_tokens=4096, jump_forward=jump_forward) as lm:
        spell = lm._home.session.tokenizer.token_bytes
        for topic in TOPICS[:4]:
            t = lm.transcript(user(f"Say something of {topic}."))
            for out in WANTED:
                generation = await t.gen(out, max_tokens=60)
                output = generation.transcript.token_ids[-generation.usage.output_tokens :]
                made.append((out, [spell(token) or b"" for token in output]))
                forced += generation.usage.forced_tokens or 0
    return made, forced


@pytest.mark.usefixtures("smollm2")
def test_jump_forward_changes_no_choice() -> None:
    """Without jump-forward the model may cut forced text into other tokens, and go on differently after that.

    Every difference must begin inside a forced run, where both spell the same bytes; it is listed.
    """
    jumped, forced = asyncio.run(forced_values(jump_forward=True))
    stepped, none = asyncio.run(forced_values(jump_forward=False))
    assert forced > 0
    assert none == 0
    for (out, with_runs), (_, without) in zip(jumped, stepped, strict=True):
        if with_runs == without:
            continue
        at = next(i for i, (a, b) in enumerate(zip(with_runs, without, strict=False)) if a != b)
        run = compile_constraint(out).forced(b"".join(with_runs[:at]))
        pieces = (with_runs[at], without[at])
        print(f"{out}: {b''.join(with_runs)!r} / {b''.join(without)!r} differ from {pieces} on")
        assert all(run.startswith(piece) or piece.startswith(run) for piece in pieces)
        assert run
