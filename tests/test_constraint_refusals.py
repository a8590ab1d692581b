"""Specs that make no sense: each gives a typed error that says what to write, at once."""

import math
from collections import UserDict
from typing import Any

import pytest

from agentree.errors import AgentreeError, ConstraintError
from agentree.runtime.constraint import Choice, JSONSchema, Regex, compile_constraint, tool_calls

LOOP: dict[str, Any] = {}
LOOP["properties"] = {"again": LOOP}


def nested(keyword: str, depth: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for _ in range(depth):
        out = {keyword: out}
    return out


SCHEMAS: list[tuple[Any, str]] = [
    ({"maximum": math.inf}, "finite numbers"), ({"minimum": math.nan}, "finite numbers"),
    ({"enum": [math.nan]}, "finite numbers"), ({"const": -math.inf}, "finite numbers"),
    ({"enum": [{1, 2}]}, "of type set"), ({"const": object()}, "of type object"),
    (LOOP, "Circular"), (nested("not", 900), "too deeply"), (nested("items", 3000), "no JSON"),
    ({"minimum": 10**5000}, "no JSON"), ({"anyOf": []}, "'anyOf' at # is empty: list at least one"),
    ({"oneOf": []}, "'oneOf' at # is empty"), ({"allOf": []}, "'allOf' at # is empty"),
    ({"anyOf": 5}, "'anyOf' at # is 5: a list of schemas"), ({"anyOf": [3]}, "#/anyOf/0 is 3"),
    ({"prefixItems": 5}, "'prefixItems' at # is 5"), ({"type": 5}, "'type' at # is 5"),
    ({"type": [[]]}, "'type' at # is []"), ({"properties": []}, "'properties' at #"),
    ({"required": [1]}, "'required' at # is [1]"),
    ({"dependentRequired": {"a": [5]}}, "'dependentRequired' at #"),
    ({"dependentRequired": 5}, "'dependentRequired' at #"), ({"minLength": 1.5}, "'minLength' at # is 1.5"),
    ({"minLength": 10**9}, "1,000,000"), ({"multipleOf": -1}, "above 0"),
    ({"$ref": "#/a~2"}, "does not exist"),
    ({"pattern": "("}, "'pattern' at #"), ({"patternProperties": {"(": {}}}, "'patternProperties' at #"),
    ({"properties": {"\ud800": {}}}, "surrogate"), ({"const": {"\ud800": 1}}, "surrogate"),
    ({"required": ["\ud800"]}, "surrogate"), ({"enum": ["\ud800"]}, "contradict"),
    ({"enum": [{"a": "\ud800"}]}, "contradict"),
    (5, "JSONSchema(5)"), ("x", "write a dict"), (None, "write a dict"), ([{}], "write a dict"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "words"), SCHEMAS, ids=range(len(SCHEMAS)))
def test_schemas_that_are_none(schema: Any, words: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        compile_constraint(JSONSchema(schema))
    assert words in str(caught.value)
    with pytest.raises(ConstraintError) as caught:
        tool_calls([("f", schema)], None)
    assert "tool 'f'" in str(caught.value)


def test_mappings_of_other_kinds_are_schemas() -> None:
    schema: Any = UserDict({"properties": UserDict({"a": {"const": 1}}), "required": ["a"]})
    assert compile_constraint(JSONSchema(schema)).accepts('{"a": 1}')


@pytest.mark.parametrize(
    "make",
    [
        lambda: compile_constraint(Choice([])),
        lambda: compile_constraint(Choice(["\ud800"])),
        lambda: compile_constraint(Choice([1])),  # type: ignore[list-item]
        lambda: compile_constraint(Regex(5)),  # type: ignore[arg-type]
        lambda: compile_constraint(Regex(b"a")),  # type: ignore[arg-type]
        lambda: compile_constraint(Regex("(?<=a)b")),
        lambda: compile_constraint(Regex("\ud800")),
        lambda: compile_constraint(Regex("[^\\s\\S]")),
    ],
)
def test_texts_that_are_none(make: Any) -> None:
    with pytest.raises(AgentreeError):
        make()
