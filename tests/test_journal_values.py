"""Values as a journal writes them: whatever is written comes back the same, and what can't is refused."""

import datetime
import enum
import json
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import pytest
from exactly import difference
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, computed_field

from agentree.graph.frozen import freeze
from agentree.graph.journal.check import complaint
from agentree.graph.journal.unstorable import Unstorable
from agentree.graph.journal.values import Values
from agentree.tools import ToolCall, ToolCalls, ToolResult


class Color(enum.Enum):
    RED = "red"


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    at: datetime.date = datetime.date(2026, 1, 2)
    parts: tuple[int, ...] = ()
    loose: dict[str, Any] = Field(default_factory=dict[str, Any], alias="loosely")

    @computed_field
    @property
    def twice(self) -> int:
        return 2 * len(self.parts)


class Child(Strict):
    number: float = float("nan")


@dataclass(eq=False)
class Point:
    x: float
    tags: frozenset[str]
    by: dict[int, Color]
    inner: "Strict | None" = None


VALUES = Values([("a", list[Strict] | None), ("b", Point), ("c", Color), ("d", Literal["x", 1])])
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary()
MODELS = st.builds(
    Strict,
    parts=st.lists(st.integers()).map(tuple),
    loosely=st.dictionaries(st.text(max_size=3), st.integers() | st.lists(st.text(max_size=3)), max_size=3),
)
POINTS = st.builds(
    Point,
    x=st.floats(),
    tags=st.frozensets(st.text(max_size=3)),
    by=st.dictionaries(st.integers(), st.just(Color.RED), max_size=2),
    inner=st.none() | MODELS,
)
LEAVES = (
    PLAIN
    | MODELS
    | POINTS
    | st.just(Color.RED)
    | st.builds(Child, number=st.floats())
    | st.datetimes()
    | st.decimals(allow_nan=False, allow_infinity=False).map(Decimal)
    | st.uuids().map(lambda value: uuid.UUID(str(value)))
    | st.builds(ToolCall, st.text(), st.text(), st.dictionaries(st.text(), st.integers()))
    | st.sampled_from(
        [Strict(loosely={"a": (1, 2)}), Strict(loosely={"a": {1: 2}}), Strict(loosely={"a": Color.RED})]
    )
)
KEYS = st.text(max_size=3) | st.integers() | st.tuples(st.integers())
ANY = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.sets(st.integers() | st.text(max_size=2), max_size=3)
    ),
    max_leaves=6,
)


@given(ANY)
def test_what_is_written_comes_back(value: Any) -> None:
    written = json.loads(json.dumps(VALUES.write(value)))
    back = VALUES.read(written, empty=None)
    assert difference(back, value) is None


def test_calls_and_results() -> None:
    call = ToolCall("call_1", "f", {"x": [1, {"y": None}]})
    for value in (ToolCalls((call, call)), [ToolResult(call, "text", error=True)]):
        back = VALUES.read(json.loads(json.dumps(VALUES.write(value))), empty=None)
        assert back == value


def test_a_read_only_copy_counts_as_the_original() -> None:
    point = Point(1.0, frozenset("a"), {1: Color.RED}, Strict(parts=(1,), loosely={"a": [1]}))
    back = VALUES.read(VALUES.write(freeze([point, {"a": {1}}])), empty=None)
    assert difference(back, [point, {"a": {1}}]) is None


class Other(BaseModel):
    x: int


@pytest.mark.parametrize(
    "value",
    [
        Other(x=1),
        object(),
        iter([1]),
        len,
        Strict(loosely={"a": Other(x=1)}),
    ],
)
def test_what_would_not_come_back_is_refused(value: Any) -> None:
    with pytest.raises(Unstorable):
        VALUES.write([value])


class Client:
    def __init__(self, url: str) -> None:
        self.url = url


@pytest.mark.parametrize(
    "form", [Client, list[Client], Callable[[int], str], Iterator[int], dict[str, Client]]
)
def test_types_that_can_not_be_written(form: Any) -> None:
    with pytest.raises(Unstorable, match="node 'a' has the type"):
        Values([("node 'a'", form)])


SCHEMAS: list[tuple[Any, Any, str | None]] = [
    (True, {"type": "boolean"}, None),
    (1, {"type": "boolean"}, "of type boolean, not integer"),
    (1, {"enum": [True, "a"]}, "it must be True or 'a'"),
    (2.5, {"type": "integer"}, "of type integer"),
    (2.0, {"type": "integer"}, None),
    (5, {"type": "number", "maximum": 4}, "at most 4"),
    ([1, "a"], {"type": "array", "items": {"type": "integer"}}, r"\[1\]: it must be of type integer"),
    ([1, 1], {"type": "array", "uniqueItems": True}, "twice"),
    ([1, "b"], {"prefixItems": [{"type": "integer"}, {"type": "string"}], "maxItems": 2}, None),
    ({"a": {"b": 1}}, {"properties": {"a": {"required": ["c"]}}}, "a: 'c' is missing"),
    ({"z": 1}, {"properties": {"a": {}}, "additionalProperties": False}, "'z' is not known"),
    ({"z": 1}, {"properties": {"a": {}}, "additionalProperties": True}, None),
    ({"z": 1}, {"properties": {"a": {}}}, r"^'z' is not known \(there are: a\)$"),
    ({"z": 1}, {"properties": {}}, r"^'z' is not known \(there is none\)$"),
    ({"z": 1}, {"type": "object"}, None),
    ({"z": 1}, {"properties": {"a": {}}, "patternProperties": {"z": {}}}, None),
    ({"a": {"z": 1}}, {"properties": {"a": {"properties": {"b": {}}}}}, "^a: 'z' is not known"),
    ({"z": 1}, {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {}}}]}, "^'z' is not"),
    ({"a": 1, "z": 1}, {"allOf": [{"properties": {"a": {}}}]}, "'z' is not known"),
    (
        {"a": 1, "b": 2},
        {
            "allOf": [{"properties": {"a": {}}}, {"$ref": "#/$defs/B"}],
            "$defs": {"B": {"properties": {"b": {}}}},
        },
        None,
    ),
    ({"a": 1, "b": 2}, {"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}]}, None),
    (
        {"a": []},
        {"$ref": "#/$defs/T", "$defs": {"T": {"properties": {"a": {"minItems": 1}}}}},
        "a: .*at least 1",
    ),
    ("x", {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^y"}]}, "does not match"),
    (None, {"anyOf": [{"type": "null"}, {"type": "string"}]}, None),
    ("", {"allOf": [{"type": "string"}, {"minLength": 1}]}, "at least 1 characters"),
]


@pytest.mark.parametrize(("value", "schema", "wrong"), SCHEMAS)
def test_answers_are_checked(value: Any, schema: Any, wrong: str | None) -> None:
    found = complaint(value, schema)
    if wrong is None:
        assert found is None
    else:
        assert found is not None
        assert re.search(wrong, found), found
