"""llguidance enforces what the automata refuse, and is an oracle of what they accept."""

import importlib.util
import json
import random
from typing import Any

import pytest
from constraint_tools import any_token, play, small_vocabulary, valid
from engine_steps import recall_model, stepped

from agentree.errors import ConstraintError, InvalidArgument
from agentree.events import Bus, GenerationEnded
from agentree.runtime.constraint import JSONSchema, compile_constraint
from agentree.runtime.constraint import foreign as module
from agentree.runtime.constraint.foreign import compile_foreign
from agentree.runtime.request import Request, Sampling

needed = pytest.mark.skipif(
    importlib.util.find_spec("llguidance") is None, reason="the extra llguidance is not installed"
)

REFUSED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "pattern": "^[ab]{0,20}a[ab]{15}$"},
        "tag": {"enum": ["red", "blue"]},
    },
    "required": ["code", "tag"],
    "additionalProperties": False,
}
"""An automaton would remember the last 16 letters."""

PLAIN: list[Any] = [
    {
        "type": "object", "properties": {"a": {"type": "boolean"}, "b": {"const": 1}}, "required": ["a"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"type": ["string", "null"], "maxLength": 3}, "maxItems": 3},
    {"enum": [1, "one", None, {"k": [True]}]},
    {"type": "integer", "minimum": -3, "maximum": 40},
    {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^a+$"}]},
]  # fmt: skip


@needed
@pytest.mark.parametrize("schema", PLAIN, ids=lambda s: json.dumps(s)[:40])
def test_both_engines_accept_the_same(schema: Any) -> None:
    ours, theirs = compile_constraint(JSONSchema(schema)), compile_foreign(JSONSchema(schema))
    assert (ours.engine, theirs.engine) == ("fsm", "llguidance")
    rng = random.Random(0)
    for _ in range(20):
        for writer, reader in ((ours, theirs), (theirs, ours)):
            text, _ = play(writer, small_vocabulary(), 60, any_token(rng))
            value = json.loads(text)
            assert valid(schema, value), (writer.engine, text)
            # Where a value has several spellings (-0), each engine has its own.
            assert reader.accepts(json.dumps(value, ensure_ascii=False)), (writer.engine, text)
            assert not reader.accepts(text + b"]")
    assert ours.forced() == theirs.forced()


@needed
def test_the_fallback_is_asked_for_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = JSONSchema({"type": "string", "minLength": 2}, fallback="llguidance")
    assert compile_constraint(refused).engine == "fsm"  # what the automata can do, they do

    def refuse(*_: object, **__: object) -> None:
        raise ConstraintError("too large")

    monkeypatch.setattr("agentree.runtime.constraint.output.compile_schema", refuse)
    with pytest.raises(ConstraintError, match="too large"):
        compile_constraint(JSONSchema({"type": "string", "minLength": 3}))
    made = compile_constraint(JSONSchema({"type": "string", "minLength": 3}, fallback="llguidance"))
    assert made.engine == "llguidance" and made.accepts('"abc"') and not made.accepts('"ab"')
    with pytest.raises(ConstraintError, match=r"too large; llguidance refuses the schema too: .*not"):
        compile_constraint(JSONSchema({"not": {"type": "string"}}, fallback="llguidance"))


@needed
def test_the_engine_runs_what_the_automata_refuse() -> None:
    with pytest.raises(ConstraintError, match="states"):
        compile_constraint(JSONSchema(REFUSED))
    constraint = compile_constraint(JSONSchema(REFUSED, fallback="llguidance"))
    bound = constraint.bind(recall_model(8).tokenizer.vocabulary())
    bus = Bus()
    seen = bus.subscribe(lambda: None)
    with stepped(bus=bus) as engine:
        results = engine.answer(
            *(Request((7, 8), 90, Sampling(1.0, 1.0, i), bound, jump_forward=i % 2 == 0) for i in range(6))
        )
    assert [e.engine for e in seen.take() if isinstance(e, GenerationEnded)] == ["llguidance"] * 6
    for result in results:
        if result.finish == "stop":
            assert valid(REFUSED, json.loads(result.text))
        assert result.text.startswith('{"code": "')
        assert result.counts.sampled + result.counts.forced == len(result.output) <= 90
    assert [r.counts.forced > 0 for r in results] == [True, False] * 3
    assert any(r.finish == "stop" for r in results)


@needed
def test_an_incomplete_text_ends_with_its_budget() -> None:
    matcher = compile_foreign(JSONSchema({"type": "string"})).bind(small_vocabulary()).matcher(2)
    matcher.advance(matcher.forced(None)[0] if matcher.forced(None) else int(matcher.mask().argmax()))
    other = matcher.copy()
    for token in other.forced(None) or [int(other.mask().argmax())]:
        other.advance(token)
    assert (matcher.remaining, other.remaining) == (1, 0)
    with pytest.raises(ValueError, match="max_tokens"):
        other.advance(3)


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(module, "importlib", type("Stub", (), {"import_module": staticmethod(missing)}))
    with pytest.raises(ConstraintError, match=r"pip install 'agentree\[llguidance\]'"):
        compile_foreign(JSONSchema({"type": "string"}))


def test_a_fallback_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="'llguidance' or None"):
        JSONSchema({}, fallback="xgrammar")  # type: ignore[arg-type]
    with pytest.raises(ConstraintError, match="closed=True"):
        compile_foreign(JSONSchema({}, closed=True))
