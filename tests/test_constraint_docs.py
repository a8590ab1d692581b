"""Keyword by keyword: what is enforced, and the table of `docs/constraints.md`, which is made from this."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from constraint_tools import valid, written

from agentree.errors import ConstraintError
from agentree.runtime.constraint import JSONSchema, compile_constraint

DOCS = Path(__file__).parents[1] / "docs" / "constraints.md"
START, STOP = "<!-- keywords -->\n", "<!-- end of keywords -->"

AB = {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
ENFORCED: list[tuple[str, dict[str, Any], list[Any], list[Any]]] = [
    ("type", {"type": ["integer", "null"]}, [3, None], ["3", 3.5, []]),
    ("enum", {"enum": [1, "x", None, {"k": [True]}]}, [1, "x", None, {"k": [True]}], [2, "y", {"k": []}]),
    ("const", {"const": {"k": "é"}}, [{"k": "é"}], [{"k": "e"}, {}]),
    ("minimum, maximum", {"type": "number", "minimum": -1.5, "maximum": 10}, [-1.5, 0, 9.99], [-1.6, 10.01]),
    ("exclusiveMinimum, exclusiveMaximum", {"type": "integer", "exclusiveMinimum": 0}, [1, 99], [0, -1]),
    ("multipleOf", {"type": "number", "multipleOf": 0.25}, [0.75, -2], [0.3]),
    ("minLength, maxLength", {"type": "string", "minLength": 1, "maxLength": 2}, ["a", "😀é"], ["", "abc"]),
    ("pattern", {"type": "string", "pattern": "^a|z$"}, ["ab", "xyz"], ["b"]),
    ("format", {"type": "string", "format": "date"}, ["2024-02-29"], ["2023-02-29", "x"]),
    ("items", {"type": "array", "items": {"type": "string"}}, [[], ["a"]], [[1], ["a", None]]),
    (
        "prefixItems",
        {"type": "array", "prefixItems": [{"const": 1}], "items": False},
        [[], [1]],
        [[2], [1, 1]],
    ),
    ("minItems, maxItems", {"type": "array", "minItems": 1, "maxItems": 2}, [[0], [0, 0]], [[], [0, 0, 0]]),
    (
        "uniqueItems",
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        [["a", "b"]],
        [["a", "a"]],
    ),
    (
        "contains, minContains, maxContains",
        {"type": "array", "contains": {"const": 1}, "maxContains": 1},
        [[0, 1]],
        [[0], [1, 1]],
    ),
    ("properties", {"type": "object", **AB}, [{}, {"a": 1, "b": 2}], [{"a": "x"}]),
    ("required", {"type": "object", **AB, "required": ["b", "c"]}, [{"b": 1, "c": None}], [{"b": 1}, {}]),
    ("additionalProperties", {"type": "object", **AB, "additionalProperties": False}, [{"a": 1}], [{"c": 1}]),
    (
        "patternProperties",
        {"type": "object", "patternProperties": {"^n": {"type": "integer"}}},
        [{"n1": 1}],
        [{"n1": "x"}],
    ),
    ("propertyNames", {"type": "object", "propertyNames": {"maxLength": 2}}, [{"ab": 1}], [{"abc": 1}]),
    (
        "minProperties, maxProperties",
        {"type": "object", "minProperties": 1, "maxProperties": 1},
        [{"x": 0}],
        [{}, {"x": 0, "y": 0}],
    ),
    (
        "dependentRequired",
        {"type": "object", **AB, "dependentRequired": {"a": ["b"]}},
        [{"b": 1}, {"a": 1, "b": 1}],
        [{"a": 1}],
    ),
    (
        "dependentSchemas",
        {"type": "object", **AB, "dependentSchemas": {"a": {"required": ["b"]}}},
        [{}],
        [{"a": 1}],
    ),
    ("anyOf", {"anyOf": [{"type": "integer"}, {"minLength": 2}]}, [1, "ab", None], ["a"]),
    ("oneOf", {"oneOf": [{"type": "integer"}, {"minimum": 2}]}, [1, 2.5], [3]),
    ("allOf", {"allOf": [{"minimum": 2}, {"maximum": 3}], "type": "integer"}, [2, 3], [1, 4]),
    ("not", {"type": "object", **AB, "not": {"required": ["a", "b"]}}, [{"a": 1}, {}], [{"a": 1, "b": 1}]),
    (
        "if, then, else",
        {"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"type": "null"}},
        ["a", None],
        ["", 1],
    ),
    (
        "$ref, $defs, $anchor, $id",
        {"$ref": "#/$defs/t", "$defs": {"t": {"items": {"$ref": "#"}, "type": "array"}}},
        [[], [[[]]]],
        [[1]],
    ),
]

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "unevaluatedProperties",
        {"unevaluatedProperties": False},
        "`additionalProperties`: false beside all properties",
    ),
    ("unevaluatedItems", {"unevaluatedItems": False}, "`items`: false beside `prefixItems`"),
    ("$dynamicRef, $recursiveRef", {"$dynamicRef": "#x"}, "a plain `$ref`"),
    ("$ref out of the document", {"$ref": "https://example.com/x.json"}, "a copy under `$defs`"),
    ("pattern with look-behind, `\\b` or back-references", {"pattern": "a\\b"}, "the same without"),
    (
        "uniqueItems of values with several spellings",
        {"items": {"type": "number"}, "uniqueItems": True},
        "integers, strings, closed objects",
    ),
]


@pytest.mark.parametrize(("keyword", "schema", "good", "bad"), ENFORCED, ids=[k for k, *_ in ENFORCED])
def test_enforced(keyword: str, schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    constraint = compile_constraint(JSONSchema(schema))
    for value in good:
        assert (keyword == "format" or valid(schema, value)) and constraint.accepts(written(value))
    for value in bad:
        assert (keyword == "format" or not valid(schema, value)) and not constraint.accepts(written(value))


@pytest.mark.parametrize(("keyword", "schema", "instead"), REFUSED, ids=[k for k, *_ in REFUSED])
def test_refused(keyword: str, schema: dict[str, Any], instead: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        compile_constraint(JSONSchema(schema))
    assert keyword.split()[0].strip(",") in str(caught.value)


def table() -> str:
    rows = ["| keyword | accepted | refused |", "|---|---|---|"]
    for keyword, schema, good, bad in ENFORCED:
        shown = json.dumps(schema, ensure_ascii=False).replace("|", "\\|")
        rows.append(
            f"| {keyword} | `{shown}` takes {', '.join(f'`{written(v)}`' for v in good)} "
            f"| {', '.join(f'`{written(v)}`' for v in bad)} |"
        )
    rows += ["", "| refused at compile time | write instead |", "|---|---|"]
    rows += [f"| {keyword} | {instead} |" for keyword, _, instead in REFUSED]
    return "\n".join(rows) + "\n"


def test_the_table_in_the_docs_is_this_one() -> None:
    text = DOCS.read_text()
    before, rest = text.split(START)
    _, after = rest.split(STOP)
    if os.environ.get("AGENTREE_DOCS") == "write":
        DOCS.write_text(before + START + table() + STOP + after)
        return
    assert table() in text
