"""Masks hold exactly the tokens from which the text can be completed, however they are worked out."""

import random
from typing import Any

import pytest
from constraint_tools import any_token, small_vocabulary, stubborn
from tokenizer_kinds import vocabulary

from agentree.runtime.constraint import (
    JSONSchema,
    Regex,
    Vocabulary,
    compile_constraint,
    masks,
    output_of,
    walk,
)
from agentree.runtime.constraint.constraint import Automaton, compile_schema
from agentree.runtime.constraint.positions import Position

FORMATS = ("email", "hostname", "uri", "date-time", "ipv6", "url", "email-address")
SCHEMAS: list[Any] = [
    *({"type": "string", "format": f} for f in FORMATS),
    {"type": "string", "pattern": "^[a-z ]+(-[^@]*)?$", "maxLength": 12},
    {"type": "string", "pattern": "é|the", "minLength": 4},
    {"propertyNames": {"pattern": "^[a-z]+[0-9]$"}, "additionalProperties": {"type": "integer"}},
    {
        "type": "array",
        "items": {"pattern": "^[a-m .]*$", "maxLength": 6, "type": "string"},
        "uniqueItems": True,
    },
    {"anyOf": [{"type": "string", "pattern": "^a+"}, {"type": "string", "maxLength": 3}]},
]


def brute(position: Position, words: Vocabulary) -> set[int]:
    """The legal tokens, each stepped byte by byte."""
    out: set[int] = set(words.end_ids) if position.accepting else set()
    for number, text in enumerate(words.tokens):
        here: Position | None = position if text and number not in words.end_ids else None
        for byte in text or b"":
            here = None if here is None else here.step(byte)
        if here is not None:
            out.add(number)
    return out


@pytest.mark.parametrize("few", [0, 10**9], ids=["by class", "one by one"])
@pytest.mark.parametrize("number", range(len(SCHEMAS) + 2))
def test_masks_are_exact(number: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "FEW", few)
    if number < len(SCHEMAS):
        constraint: Any = compile_schema(JSONSchema(SCHEMAS[number]))
    elif number == len(SCHEMAS):
        constraint = compile_constraint(Regex(r"[a-z ]+, [^\d]{2,}\."))
    else:
        constraint = output_of(dict[str, str], longest=5).constraint
    assert isinstance(constraint, Automaton)
    for words in (small_vocabulary(), vocabulary("Llama 3")):
        bound: Any = masks.Masks(constraint._positions, words)
        for seed in range(2):
            rng = random.Random(seed)
            position: Position | None = constraint._positions.start
            for _ in range(12):
                assert position is not None
                mask = bound.legal(position).mask
                assert set(mask.nonzero()[0].tolist()) == brute(position, words)
                pick = any_token(rng) if seed else stubborn(rng, b"ae. @")
                token = pick(mask, bound, words)
                if token in words.end_ids:
                    break
                for byte in words.tokens[token] or b"":
                    position = position.step(byte) if position is not None else None
