"""Shared by the constraint tests: a small tokenizer, walkers that play the model, random schemas."""

import json
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from typing import Any, cast

import numpy as np
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError, validators
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from agentree.runtime.constraint import Constraint, Matcher, Vocabulary
from agentree.runtime.constraint.vocabulary import Mask

Pick = Callable[[Mask, Matcher, Vocabulary], int]

_CORPUS = [
    '{"name": "search", "arguments": {"query": "the quick brown fox", "limit": 10}}',
    '{"name": "final_answer", "arguments": {"answer": "It is 42, of course."}}',
    '[{"id": 1, "tags": ["red", "blue"], "ok": true}, {"id": 2, "tags": [], "ok": false, "note": null}]',
    '{"city": "Zürich", "date": "2024-05-06", "price": -12.50, "名前": "日本語", "emoji": "😀"}',
    "Now is the time for all good men to come to the aid of the party, and so on and on.",
    '"}, {" ": " , "" "]}]} }}} ]]] \n\n  \t "", [" {"" 0.1 100 2000 true false null',
]


@cache
def small_vocabulary(fallback: bool = True) -> Vocabulary:
    """A byte-level BPE of some 600 tokens; without `fallback`, some bytes have no token of their own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet() if fallback else []
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=alphabet, special_tokens=["<end>", "<pad>"]
    )
    tokenizer.train_from_iterator(_CORPUS * 3, trainer)
    letters = _byte_letters()
    tokens: list[bytes | None] = []
    for number in range(tokenizer.get_vocab_size()):
        text = tokenizer.id_to_token(number)
        assert text is not None
        tokens.append(None if number < 2 else bytes(letters[c] for c in text))
    tokens.append(b"red")  # a duplicate, and ids beyond the tokenizer's own
    tokens.append(None)

    def encode(text: bytes) -> list[int]:
        return list(tokenizer.encode(text.decode(), add_special_tokens=False).ids)

    return Vocabulary(tokens, end_ids=[0], encode=encode, fingerprint=f"small-{fallback}")


def _byte_letters() -> dict[str, int]:
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


def any_token(rng: random.Random) -> Pick:
    """A model with no preferences."""

    def pick(mask: Mask, matcher: Matcher, vocabulary: Vocabulary) -> int:
        legal = np.flatnonzero(mask)
        return int(legal[rng.randrange(len(legal))])

    return pick


def stubborn(rng: random.Random, liked: bytes) -> Pick:
    """A model that prefers tokens full of some bytes, then long ones, and never ends if it need not."""
    scores: dict[str, Any] = {}

    def pick(mask: Mask, matcher: Matcher, vocabulary: Vocabulary) -> int:
        if vocabulary.fingerprint not in scores:
            texts = [b"" if i in vocabulary.end_ids else t or b"" for i, t in enumerate(vocabulary.tokens)]
            likes = [100 * sum(b in liked for b in t) + len(t) for t in texts]
            scores[vocabulary.fingerprint] = np.array(likes) + rng.random()
        return int(np.where(mask, scores[vocabulary.fingerprint], -1).argmax())

    return pick


def play(
    constraint: Constraint, vocabulary: Vocabulary, budget: int, pick: Pick, jump: bool = True
) -> tuple[bytes, list[int]]:
    """Generates one text; checks on the way that forced tokens are legal and that the mask never runs dry."""
    bound = constraint.bind(vocabulary)
    matcher = bound.matcher(budget)
    ids: list[int] = []
    last: int | None = None
    while not matcher.done:
        forced = matcher.forced(last) if jump else []
        for token in forced:
            assert matcher.mask()[token]
            matcher.advance(token)
            ids.append(token)
            last = token
        if matcher.done:
            break
        mask = matcher.mask()
        assert mask.any(), (budget, text_of(vocabulary, ids))
        token = pick(mask, matcher, vocabulary)
        matcher.advance(token)
        if token in vocabulary.end_ids:
            break
        ids.append(token)
        last = token
    assert matcher.accepting
    assert len(ids) <= budget
    return text_of(vocabulary, ids), ids


def text_of(vocabulary: Vocabulary, ids: list[int]) -> bytes:
    """The bytes of some tokens."""
    return b"".join(vocabulary.tokens[i] or b"" for i in ids)


def written(value: object) -> str:
    """A value as the automata spell it."""
    return json.dumps(value, ensure_ascii=False)


def _multiple_of(_: object, divisor: Any, value: Any, __: object) -> Iterator[ValidationError]:
    """Exact, where the reference divides floats: 2**53 + 1 is no multiple of 2.5."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        quotient = Fraction(str(value)) / Fraction(str(divisor))
        if quotient.denominator != 1:
            yield ValidationError(f"{value} is no multiple of {divisor}")


_Exact: Any = cast("Any", validators).extend(Draft202012Validator, {"multipleOf": _multiple_of})


def valid(schema: Any, value: Any) -> bool:
    """Whether the reference validator accepts the value."""
    return bool(_Exact(schema).is_valid(value))


_NAMES = st.sampled_from(["a", "b", "ab", "name", "nam", "é", 'q"t', "x y"])
_SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-30, 30), st.sampled_from([0.5, -1.25, 2.0, 1e20]),
    st.sampled_from(["", "a", "ab", "abc", 'a"b', "é", "日本", "😀", "\t", "red", "x" * 9]),
)  # fmt: skip


def values(depth: int = 2) -> st.SearchStrategy[Any]:
    """Random JSON values with keys that schemas below speak of."""
    if depth == 0:
        return _SCALARS
    inner = values(depth - 1)
    return st.one_of(_SCALARS, st.lists(inner, max_size=4), st.dictionaries(_NAMES, inner, max_size=4))


def schemas(depth: int = 2) -> st.SearchStrategy[Any]:
    """Random schemas of what is supported."""
    bounds = st.integers(-12, 12)
    scalars = [
        st.fixed_dictionaries({"type": st.sampled_from(["null", "boolean", "integer", "number", "string"])}),
        st.fixed_dictionaries(
            {"type": st.sampled_from(["integer", "number"])},
            optional={
                "minimum": bounds, "maximum": bounds, "exclusiveMinimum": bounds,
                "multipleOf": st.sampled_from([1, 2, 3, 0.5, 2.5]),
            },
        ),
        st.fixed_dictionaries(
            {"type": st.just("string")},
            optional={
                "minLength": st.integers(0, 3), "maxLength": st.integers(0, 6),
                "pattern": st.sampled_from(["^a", "b$", "^[a-z]*$", "\\d", "^.{2,4}$", "^(ab|é)+$", "x|^$"]),
            },
        ),
        st.fixed_dictionaries({"enum": st.lists(values(1), min_size=1, max_size=4)}),
        st.fixed_dictionaries({"const": values(1)}),
        st.fixed_dictionaries({"maxLength": st.integers(0, 4), "minimum": bounds}),
    ]  # fmt: skip
    if depth == 0:
        return st.one_of(*scalars)
    inner = schemas(depth - 1)
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(_NAMES, inner, max_size=4)},
        optional={
            "required": st.lists(_NAMES, max_size=3, unique=True),
            "additionalProperties": st.one_of(st.booleans(), inner),
            "minProperties": st.integers(0, 3), "maxProperties": st.integers(0, 4),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "m"]), inner, max_size=1),
        },
    )  # fmt: skip
    arrays = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "items": inner, "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "minItems": st.integers(0, 3), "maxItems": st.integers(0, 4),
        },
    )  # fmt: skip
    unions = st.one_of(
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries(
            {"not": inner}, optional={"type": st.sampled_from(["object", "string", "array"])}
        ),
        st.fixed_dictionaries({"if": inner, "then": inner, "else": inner}),
        st.fixed_dictionaries(
            {
                "dependentRequired": st.dictionaries(
                    _NAMES, st.lists(_NAMES, max_size=2, unique=True), max_size=2
                )
            },
            optional={"properties": st.dictionaries(_NAMES, inner, max_size=3), "type": st.just("object")},
        ),
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": st.one_of(*scalars)},
            optional={
                "uniqueItems": st.just(True),
                "minItems": st.integers(0, 3),
                "maxItems": st.integers(0, 4),
            },
        ),
        st.fixed_dictionaries(
            {"type": st.just("array"), "contains": st.one_of(*scalars)},
            optional={
                "minContains": st.integers(0, 2),
                "maxContains": st.integers(0, 2),
                "maxItems": st.integers(1, 4),
            },
        ),
        st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "propertyNames": st.fixed_dictionaries({"pattern": st.sampled_from(["^a", "b"])}),
            },
            optional={"minProperties": st.integers(0, 2)},
        ),
    )
    return st.one_of(*scalars, objects, objects, arrays, unions, unions)
