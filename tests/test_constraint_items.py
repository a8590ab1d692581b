"""Masks inside items that must differ: taken from the item alone, they are those of the whole array."""

import itertools
import json
import random
import re
from typing import Any

import numpy as np
import pytest
from constraint_tools import small_vocabulary
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentree.runtime.constraint import JSONSchema, positions
from agentree.runtime.constraint.constraint import compile_schema
from agentree.runtime.constraint.items import inside
from agentree.runtime.constraint.others import OtherTexts
from agentree.runtime.constraint.pattern import search
from agentree.runtime.constraint.terms import Terms
from agentree.runtime.constraint.text import Text, TextAutomaton

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
@pytest.mark.parametrize("most", [0, positions.MOST_PASSING], ids=["forgetting", "remembering"])
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), low=st.integers(0, 3))
def test_masks_are_those_of_the_whole_array(
    item: dict[str, Any], most: int, monkeypatch: pytest.MonkeyPatch, seed: int, low: int
) -> None:
    monkeypatch.setattr(positions, "MOST_PASSING", most)
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


def test_what_was_written_is_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "MOST_PASSING", 300)
    schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    vocabulary = small_vocabulary()
    bound = compile_schema(JSONSchema(schema)).bind(vocabulary)
    kept: list[int] = []
    here: Any = bound.positions.start
    for byte in ("[" + ", ".join(f'"item {i}"' for i in range(40))).encode():
        here = here.step(byte)
        bound.legal(here)
        kept.append(len(bound.positions._passing))
    assert sum(kept) > 300
    assert max(kept) <= 300


@pytest.mark.parametrize(
    "item", [{"type": "integer"}, {"type": "string"}, {"type": ["string", "null"], "maxLength": 2}]
)
def test_many_items_that_differ(item: dict[str, Any]) -> None:
    schema = {"type": "array", "items": item, "uniqueItems": True, "minItems": 2000}
    bound = compile_schema(JSONSchema(schema)).bind(small_vocabulary())
    shortest = json.loads(bound.positions.start.w)
    assert len(shortest) == len(set(shortest)) == 2000
    assert bound.legal(bound.positions.start).mask.any()


@settings(deadline=None)
@given(
    parts=st.lists(
        st.sampled_from(["a", "b", "a*", "b?", "(a|bb)+", "[ab]", "(b|)", "(ab?){2}"]), max_size=4
    ),
    taken=st.sets(st.text("ab", max_size=3)),
)
def test_texts_come_once_and_the_shorter_ones_first(parts: list[str], taken: set[str]) -> None:
    pattern = "".join(parts)
    terms = Terms()
    language = terms.all_of([search(terms, f"^(?:{pattern})$", "ecma"), search(terms, "^[ab]{0,4}$", "ecma")])
    others = OtherTexts(Text(TextAutomaton.of_term(terms, language)))
    every = ["".join(letters) for n in range(5) for letters in itertools.product("ab", repeat=n)]
    expected = {text.encode() for text in every if re.fullmatch(pattern, text) and text not in taken}
    for _ in range(2):  # what was found is remembered
        found = [text for text, _ in others.beside({text.encode() for text in taken})]
        assert set(found) == expected
        assert [len(text) for text in found] == sorted(map(len, expected))
