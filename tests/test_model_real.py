"""The catalogue model itself: the same next token as transformers at each of 500 positions."""

from pathlib import Path
from typing import Any, cast

import pytest
import torch

from agentree.runtime.model.load import WeightChoice, load_model
from tests.model_reference import Sequences, reference, reference_logits
from tests.tiny_models import CORPUS

pytestmark = pytest.mark.model

POSITIONS = 500
NEAR = 1e-4
TEXT = (
    "<|im_start|>system\nYou are a careful assistant.<|im_end|>\n<|im_start|>user\nTell me how a "
    "radix tree works, and why sharing prefixes saves work.<|im_end|>\n<|im_start|>assistant\nA "
    "radix tree stores strings so that common beginnings are kept once. Each edge carries a run of "
    "symbols, and each node is the place where two strings part. To look up a string, start at the "
    "root and follow the edge whose first symbol is the next one of the string; if the whole edge "
    "agrees, go on, else stop and split the edge there.\n\nWhen many prompts begin alike, the keys "
    "and values of their tokens are alike too. They depend only on what comes before. So a server "
    "that remembers them by prefix computes them once, and every later request that begins alike "
    "reuses them: its first new token costs only as much as its own tail.<|im_end|>\n"
)


@pytest.fixture(scope="module")
def ids_and_logits(smollm2: Path) -> tuple[list[int], torch.Tensor]:
    model: Any = reference(smollm2)
    tokenizer = load_model(smollm2, device="cpu", weights="fp16", kv_tokens=16).tokenizer
    ids = tokenizer.encode(TEXT + "\n".join(CORPUS) + TEXT, special=True)[:POSITIONS]
    assert len(ids) == POSITIONS
    return ids, reference_logits(model, ids)


def positions_that_differ(name: str, found: torch.Tensor, expected: torch.Tensor) -> list[int]:
    """Positions with another argmax; near-ties of the reference are printed and let pass."""
    other = found.argmax(-1) != expected.argmax(-1)
    differ = cast("list[int]", torch.nonzero(other).flatten().tolist())
    best = expected.topk(2, dim=-1).values
    gaps = best[:, 0] - best[:, 1]
    ties = [position for position in differ if gaps[position] < NEAR]
    print(f"{name}: max |delta| {(found - expected).abs().max():.2e}, near-ties {ties}")
    return [position for position in differ if position not in ties]


@pytest.mark.parametrize("weights", ["fp32", "fp16"])
def test_same_argmax_at_500_positions(
    smollm2: Path, ids_and_logits: tuple[list[int], torch.Tensor], weights: WeightChoice
) -> None:
    ids, expected = ids_and_logits
    model = load_model(smollm2, device="cpu", weights=weights, kv_tokens=2 * POSITIONS)
    rows = Sequences(model)
    chunks = [ids[:200], ids[200:216], ids[216:220], ids[220:490], *([token] for token in ids[490:])]
    row = rows.new()
    found = torch.cat([rows.forward([(row, chunk)]) for chunk in chunks])
    assert positions_that_differ(weights, found, expected) == []


def test_tokenizer_is_that_of_transformers(smollm2: Path) -> None:
    from transformers import AutoTokenizer

    model = load_model(smollm2, device="cpu", kv_tokens=16)
    assert model.weights == "fp16"
    theirs = cast("Any", AutoTokenizer).from_pretrained(str(smollm2))
    messages = [{"role": "user", "content": "What is 17*23?"}]
    text: str = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert model.tokenizer.encode(text, special=True) == theirs.encode(text, add_special_tokens=False)
    assert model.template == theirs.chat_template


def test_every_printable_byte_has_a_token(smollm2: Path) -> None:
    tokenizer = load_model(smollm2, device="cpu", kv_tokens=16).tokenizer
    pieces = [tokenizer.token_bytes(i) for i in range(tokenizer.size)]
    assert {bytes([byte]) for byte in (*b"\t\n\r", *range(0x20, 0x7F), *range(0x80, 0xC0))} <= set(pieces)
    assert [i for i, piece in enumerate(pieces) if piece is None] == list(range(17))
    assert tokenizer.end_ids == {0, 2}
    assert (tokenizer.bos, tokenizer.eos) == ("<|im_start|>", "<|im_end|>")
