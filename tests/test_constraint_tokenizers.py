"""Forced runs are the tokenizer's own ids of the finished text, for every kind of tokenizer."""

import json
import random
from typing import Any

import pytest
from constraint_tools import any_token, play, schemas, stubborn, valid, values, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schema_mutants import SEEDS
from tokenizer_kinds import KINDS, tokenizer, vocabulary

from agentree.errors import ConstraintError
from agentree.runtime.constraint import Constraint, JSONSchema, Vocabulary, compile_constraint, tool_calls

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "名前": {"type": "string", "maxLength": 12},
        "kind of thing": {"enum": ["red", "reddish", "\n\tdeep blue", "Zürich", "日本語"]},
        "when": {"type": "string", "format": "date"},
        "prices": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 3},
        "nested": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
    },
    "required": ["名前", "kind of thing", "prices", "nested"],
    "additionalProperties": False,
}
TOOLS: list[tuple[str, dict[str, object]]] = [
    ("search", {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}),
    ("search_again", {"type": "object", "properties": {"limit": {"type": "integer"}}, "required": ["limit"]}),
]


def forced_share(constraint: Constraint, words: Vocabulary, text: str) -> tuple[int, int]:
    """Walks along the tokenizer's own split of a text: every forced run must be part of it."""
    target = words.encode(text.encode())
    assert target or not text
    matcher = constraint.bind(words).matcher(len(target) + 200)
    at = forced = 0
    while at < len(target):
        run = matcher.forced(target[at - 1] if at else None)
        assert run == target[at : at + len(run)], (text, [words.tokens[i] for i in run])
        forced += len(run)
        for token in run or [target[at]]:
            assert matcher.mask()[token]
            matcher.advance(token)
            at += 1
    assert matcher.accepting
    return forced, len(target)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_bytes(kind: str) -> None:
    loaded, words = tokenizer(kind), vocabulary(kind)
    for text in (' {"a": 1}', "  b", "é日本😀", "\n\n x", '"}]}', "٣"):
        ids = loaded.encode(text)
        assert b"".join(words.tokens[i] or b"" for i in ids).decode() == text
    assert len(words.singles) == 256 and words.end_ids == {1}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spacing", ["template", "compact"])
def test_forced_runs_are_canonical(kind: str, spacing: Any) -> None:
    words = vocabulary(kind)
    forced = total = 0
    stated = [compile_constraint(JSONSchema(s, spacing=spacing)) for s in (*SEEDS, ORDER)]
    for number, constraint in enumerate([*stated, tool_calls(TOOLS, None, spacing=spacing)]):
        least = constraint.bind(words).min_tokens
        for seed in range(3):
            rng = random.Random(100 * number + seed)
            for pick in (any_token(rng), stubborn(rng, b"re abc")):
                text = play(constraint, words, least + 25, pick)[0].decode()
                if words.encode(text.encode()):  # Qwen composes accents, so some texts have no split at all
                    run, size = forced_share(constraint, words, text)
                    forced, total = forced + run, total + size
    assert forced > total // 10


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schemas(), st.lists(values(), min_size=1, max_size=6), st.sampled_from(KINDS))
def test_forced_runs_of_random_schemas_are_canonical(schema: Any, candidates: list[Any], kind: str) -> None:
    try:
        constraint = compile_constraint(JSONSchema(schema))
    except ConstraintError:
        return
    words = vocabulary(kind)
    for value in candidates:
        text = written(value)
        if constraint.accepts(text):
            assert valid(schema, json.loads(text))
            forced_share(constraint, words, text)
