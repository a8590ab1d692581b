"""JSON Schema constraints: the language is the reference validator's, and every walk ends."""

import json
import random
from typing import Any, cast

import pytest
from constraint_tools import (
    any_token,
    play,
    schemas,
    small_vocabulary,
    stubborn,
    text_of,
    valid,
    values,
    written,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentree.errors import ConstraintError
from agentree.runtime.constraint import Constraint, JSONSchema, compile_constraint, numbers
from agentree.runtime.constraint.constraint import compile_schema
from agentree.runtime.constraint.vocabulary import Mask

TREE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["red", "blue", "redder"]}, "maxItems": 3},
        "kids": {"type": "array", "items": {"$ref": "#"}},
    },
    "required": ["name", "tags"],
    "additionalProperties": False,
}


def compiled(schema: object) -> Constraint | None:
    """None for schemas that nothing satisfies, and for the few combinations that are refused."""
    try:
        return compile_constraint(JSONSchema(schema))  # type: ignore[arg-type]
    except ConstraintError as error:
        named = (
            "contradict",
            "'not' over",
            "one spelling",
            "scalars only",
            "more than",
            "this large",
            "beside",
        )
        assert any(words in str(error) for words in named), error
        return None


def ordered(schema: object, value: object) -> Any:
    """The value with keys in an order that the schema may want: its own declared keys first."""
    if not isinstance(value, dict) or not isinstance(schema, dict):
        return cast("object", value)
    members, stated = cast("dict[str, object]", value), cast("dict[str, Any]", schema)
    inner: dict[str, object] = stated.get("properties", {})
    keys = [k for k in (*inner, *stated.get("required", ())) if k in members]
    return {k: ordered(inner.get(k), members[k]) for k in dict.fromkeys((*keys, *members))}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schemas(), st.lists(values(), min_size=1, max_size=12))
def test_accepts_what_the_validator_accepts(schema: object, candidates: list[object]) -> None:
    constraint = compiled(schema)
    for value in candidates:
        if constraint is None:
            continue
        value = ordered(schema, value)
        expected = valid(schema, value)
        if constraint.accepts(written(value)) != expected:
            assert expected and _excused(value), (schema, value)


def _excused(value: object) -> bool:
    """Left out on purpose: whole floats as integers, other orders of nested keys, exponents."""
    text = written(value)
    return any(mark in text for mark in ("2.0", "e+20")) or ("{" in text and text.count(":") > 1)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schemas(), st.randoms(use_true_random=False), st.booleans())
def test_every_walk_ends_in_a_valid_value(schema: object, rng: random.Random, full: bool) -> None:
    constraint = compiled(schema)
    if constraint is None:
        return
    vocabulary = small_vocabulary(full)
    try:
        least = constraint.bind(vocabulary).min_tokens
    except ConstraintError as error:
        assert "can't spell" in str(error) and not full
        return
    for extra in (0, 1, 3, 10, 60):
        for pick in (any_token(rng), stubborn(rng, b" \n"), stubborn(rng, b"{["), stubborn(rng, b"a9,")):
            text, _ = play(constraint, vocabulary, least + extra, pick)
            assert constraint.accepts(text)
            assert valid(schema, json.loads(text)), (schema, text)


@pytest.mark.parametrize("liked", [b" \n\t", b"{[", b"abcdefghij", b'\\"', b"0123456789."])
@pytest.mark.parametrize("spacing", ["template", "compact", "any"])
def test_a_recursive_schema_ends_under_any_preference(liked: bytes, spacing: str) -> None:
    constraint = compile_constraint(JSONSchema(TREE, spacing=spacing))  # type: ignore[arg-type]
    vocabulary = small_vocabulary()
    rng = random.Random(7)
    for budget in (constraint.bind(vocabulary).min_tokens, 25, 60, 400):
        text, _ = play(constraint, vocabulary, budget, stubborn(rng, liked))
        assert valid(TREE, json.loads(text))


def test_forced_tokens_are_the_tokenizers_own() -> None:
    vocabulary = small_vocabulary()
    constraint = compile_constraint(JSONSchema(TREE))
    value: dict[str, Any] = {
        "name": "Zürich is big",
        "age": 42,
        "tags": ["red", "redder"],
        "kids": [{"name": "", "tags": []}],
    }
    target = vocabulary.encode(written(value).encode())
    matcher = constraint.bind(vocabulary).matcher(500)
    at = forced = 0
    while at < len(target):
        run = matcher.forced(target[at - 1] if at else None)
        assert run == target[at : at + len(run)]
        forced += len(run)
        for token in run or [target[at]]:
            assert matcher.mask()[token]
            matcher.advance(token)
            at += 1
    assert matcher.done
    assert forced > len(target) // 4


def test_greedy_text_is_the_same_with_and_without_jumps() -> None:
    vocabulary = small_vocabulary()
    constraint = compile_constraint(JSONSchema(TREE))
    kids: list[object] = []
    target = written({"name": "a b", "tags": ["blue"], "kids": kids}).encode()

    def follow(mask: Mask) -> int:
        done = text_of(vocabulary, ids)
        fits = [i for i, t in enumerate(vocabulary.tokens) if mask[i] and t and target.startswith(done + t)]
        return max(fits, key=lambda i: len(vocabulary.tokens[i] or b"")) if fits else 0

    for jump in (True, False):
        ids: list[int] = []
        bound = constraint.bind(vocabulary).matcher(200)
        while not bound.done:
            for token in bound.forced(ids[-1] if ids else None) if jump else []:
                bound.advance(token)
                ids.append(token)
            if bound.done:
                break
            token = follow(bound.mask())
            bound.advance(token)
            ids.append(token)
        assert text_of(vocabulary, ids) == target


def test_budget_below_the_shortest_value_is_refused() -> None:
    bound = compile_constraint(JSONSchema(TREE)).bind(small_vocabulary())
    with pytest.raises(ConstraintError, match=str(bound.min_tokens)):
        bound.matcher(bound.min_tokens - 1)


def test_illegal_tokens_raise() -> None:
    vocabulary = small_vocabulary()
    matcher = compile_constraint(JSONSchema({"type": "boolean"})).bind(vocabulary).matcher(20)
    for token in (0, 1, vocabulary.size - 1, vocabulary.singles[ord("x")]):
        with pytest.raises(ValueError, match=str(token)):
            matcher.advance(token)


def test_copies_go_their_own_way() -> None:
    vocabulary = small_vocabulary()
    matcher = compile_constraint(JSONSchema({"enum": [True, None]})).bind(vocabulary).matcher(20)
    other = matcher.copy()
    matcher.advance(vocabulary.singles[ord("t")])
    assert other.mask()[vocabulary.singles[ord("n")]]
    assert not matcher.mask()[vocabulary.singles[ord("n")]]
    assert matcher.remaining == 19 and other.remaining == 20


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ({"type": "strin"}, "strin"),
        ({"enum": []}, "contradict"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "contradict"),
        ({"properties": {"a": {"pattern": "(?<=a)b"}}}, "'pattern' at #/properties/a"),
        ({"pattern": "(a)\\1"}, "offset 3"),
        ({"pattern": "[z-a]"}, "wrong way round"),
        ({"$ref": "#/definitions/x"}, "#/definitions/x"),
        ({"$ref": "http://example.com/s.json"}, "example.com"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"items": {"uniqueItems": True}}, "'uniqueItems' at #/items"),
        ({"properties": {"d": {"required": True}}}, "'required' at #/properties/d"),
        ({"minLength": -1}, "'minLength' at #"),
        ({"unevaluatedProperties": False}, "additionalProperties"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "contradict"),
    ],
)
def test_refusals_name_keyword_and_place(schema: dict[str, object], names: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        compile_constraint(JSONSchema(schema))
    assert names in str(caught.value)


@pytest.mark.parametrize("keyword", ["minItems", "minProperties", "maxProperties"])
def test_counts_beyond_reason_are_refused_at_once(keyword: str) -> None:
    with pytest.raises(ConstraintError, match=f"'{keyword}' at # can't be enforced"):
        compile_constraint(JSONSchema({"type": ["array", "object"], keyword: 10**30}))


@pytest.mark.parametrize("value", [{}, {"a": 1}, {"a": 2}, {"b": 1}, {"a": 1, "b": 1}, {"a": 2, "b": 1}])
@pytest.mark.parametrize(
    "closed",
    [
        {"const": {"a": 1}},
        {"enum": [{"a": 1}, {"b": 1}]},
        {"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": False},
        {"type": "object", "properties": {"a": {}}, "patternProperties": {"^b": {"const": 2}}},
    ],
)
def test_a_declared_key_is_no_witness_against_a_closed_object(closed: object, value: object) -> None:
    both: dict[str, object] = {"a": {}, "b": {}}
    inner: dict[str, object] = {"not": closed}
    stated: list[dict[str, object]] = [inner, {"not": inner}, {"not": closed, "properties": both}]
    for schema in stated:
        try:
            constraint = compile_constraint(JSONSchema(schema))
        except ConstraintError as error:
            assert "'not' over 'not'" in str(error)
            continue
        assert constraint.accepts(written(value)) == valid(schema, value), schema


_LISTED = st.one_of(
    st.integers(-30, 30), st.decimals(-3, 3, places=3).map(float), st.sampled_from([1e20, 1e-9, -0.0])
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_LISTED, max_size=6))
def test_listed_numbers_are_the_union_of_the_single_ones(values: list[float]) -> None:
    expected = numbers.NOTHING
    for value in values:
        expected = numbers.combine(expected, numbers.equal(numbers.decimal(value)), "or")
    assert numbers.listed(values).values == expected


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [*range(5000)]},
        {"type": "object", "minProperties": 20},
        {"type": "object", "minProperties": 12, "propertyNames": {"pattern": "^[a-c]{5}$"}},
        {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 12},
    ],
)
def test_many_members_are_worked_out_in_time(schema: dict[str, object]) -> None:
    constraint = compile_schema(JSONSchema(schema), seconds=60)
    text, _ = play(constraint, small_vocabulary(), 2000, any_token(random.Random(1)))
    assert valid(schema, json.loads(text))


def test_pattern_properties_that_are_no_object_are_refused() -> None:
    with pytest.raises(ConstraintError, match="'patternProperties' at # is no object"):
        compile_constraint(JSONSchema({"type": "object", "patternProperties": "x"}))


def test_large_integers_against_a_fractional_divisor() -> None:
    number = 2024202420242024202420242024202420242024
    schema = {"not": {"type": "integer", "multipleOf": 2.5}}
    assert valid(schema, number)
    assert compile_constraint(JSONSchema(schema)).accepts(str(number))
    assert not compile_constraint(JSONSchema(schema)).accepts(str(number + 1))
