"""Masks inside items that must differ: taken from the item alone, they are those of the whole array."""

import random
from typing import Any

import numpy as np
import pytest
from constraint_tools import small_vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st

from agentree.runtime.constraint import JSONSchema
from agentree.runtime.constraint.constraint import compile_schema
from agentree.runtime.constraint.items import inside

ITEMS: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "string", "format": "email"},
    {"type": "string", "pattern": "^(re|bl)[a-z]{0,3}$"},
    {"type": "integer", "minimum": -20, "maximum": 300},
    {"enum": ["red", "redder", "blue", 1, 10, None]},
    {
        "type": "object",
        "properties": {"a": {"type": "string", "maxLength": 4}, "b": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    },
]


@pytest.mark.parametrize("item", ITEMS, ids=str)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6), low=st.integers(0, 3))
def test_masks_are_those_of_the_whole_array(item: dict[str, Any], seed: int, low: int) -> None:
    vocabulary, rng = small_vocabulary(), random.Random(seed)
    least = 0 if item.get("type") == "object" else low
    schema = {"type": "array", "items": item, "uniqueItems": True, "minItems": least, "maxItems": 5}
    bound = compile_schema(JSONSchema(schema)).bind(vocabulary)
    here = bound.positions.start
    for _ in range(24):
        mask = bound.legal(here).mask
        plain = np.zeros(vocabulary.size, np.bool_)
        targets: dict[int, Any] = {}
        for number, text in enumerate(vocabulary.tokens):
            after: Any = here if text and number not in vocabulary.end_ids else None
            for byte in text or b"":
                after = None if after is None else after.step(byte)
            if after is not None:
                plain[number], targets[number] = True, after
        plain[vocabulary.ends] = here.accepting
        assert (mask == plain).all()
        rests = {number: len(after.w) for number, after in targets.items()}
        assert max(rests.values(), default=0) <= bound.legal(here).worst
        if not targets:
            break
        here = targets[rng.choice(sorted(targets))]


def test_the_short_way_is_taken() -> None:
    schema = {"type": "array", "items": {"type": "string", "format": "email"}, "uniqueItems": True}
    bound = compile_schema(JSONSchema(schema)).bind(small_vocabulary())
    here: Any = bound.positions.start
    for byte in b'["a@b.de", "a':
        here = here.step(byte)
    assert inside(here) is None  # it may still become the item before it
    assert inside(here.step(ord("x"))) is not None
