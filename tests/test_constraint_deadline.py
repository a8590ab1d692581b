"""Compiling gives up in time, and what is worked out later has time of its own."""

from types import SimpleNamespace

import pytest

from agentree.errors import ConstraintError
from agentree.runtime.constraint import JSONSchema, Regex, tool_calls
from agentree.runtime.constraint import constraint as module
from agentree.runtime.constraint.constraint import Constraint, compile_regex, compile_schema

DEEP = {
    "type": "object",
    "properties": {
        "a": {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]},
        "c": {"type": "array", "items": {"type": "object", "properties": {"d": {"type": "string"}}}},
    },
    "required": ["a", "c"],
}
TEXT = '{"a": {"b": 1}, "c": [{"d": "x"}]}'


class Clock:
    """Time that passes when it is told to, and a little whenever it is looked at."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 0.0, step

    def monotonic(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def of_calls() -> Constraint:
    return tool_calls([("late", DEEP)], None, longest=77)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: compile_schema(JSONSchema(DEEP)), TEXT),
        (of_calls, '{"name": "late", "arguments": ' + TEXT + "}"),
        (lambda: compile_regex(Regex("(a|b){2,9}c(d|e)*")), "ababcde"),
    ],
)
def test_a_constraint_is_used_long_after_it_was_compiled(make: object, text: str, clock: Clock) -> None:
    constraint: Constraint = make()  # type: ignore[operator]
    for end in range(len(text)):
        clock.now += 1e6  # states are worked out when a text first reaches them
        constraint.forced(text[:end])
    assert constraint.accepts(text)


def test_a_compile_past_its_deadline_stops_and_a_longer_one_succeeds(clock: Clock) -> None:
    clock.step = 1.0
    schema = JSONSchema({**DEEP, "title": "slow"})
    with pytest.raises(ConstraintError, match="longer than 2 s"):
        compile_schema(schema, seconds=2)
    assert compile_schema(schema, seconds=1e6).accepts(TEXT)


def test_an_endless_step_of_a_text_stops(clock: Clock) -> None:
    constraint = compile_schema(JSONSchema({**DEEP, "title": "late"}), seconds=5)
    clock.step = 10.0
    with pytest.raises(ConstraintError, match="longer than 5 s"):
        constraint.accepts(TEXT)
    clock.step = 0.0
    assert constraint.accepts(TEXT)
