"""The benchmark of tool calls judges as it says: what is valid, what is forced, why two texts differ."""

import json
from dataclasses import replace
from typing import Any

import pytest
from constraint_tools import small_vocabulary

from agentree.runtime.constraint import tool_calls
from benchmarks.bfcl import Task, as_tool, json_schema
from benchmarks.toolcalls import Record, difference, fault_of, forced_at, split_by

ADD: dict[str, Any] = {
    "name": "math.add",
    "description": "Add.",
    "parameters": {
        "type": "dict",
        "properties": {
            "a": {"type": "float", "optional": True},
            "xs": {"type": "tuple", "items": {"type": "any"}},
        },
        "required": ["a"],
    },
}
TASK = Task("t", "1 and 1?", (as_tool(ADD),), True, frozenset({"math.add"}))
CALL = '{"name": "math.add", "arguments": {"a": 1}}'


def test_schemas_of_the_leaderboard_become_json_schema() -> None:
    assert TASK.schemas[0][1] == {
        "type": "object",
        "properties": {"a": {"type": "number"}, "xs": {"type": "array", "items": {}}},
        "required": ["a"],
    }
    named_type = {"type": "dict", "properties": {"type": {"type": "string"}, "optional": {"type": "int"}}}
    assert json_schema(named_type)["properties"] == {
        "type": {"type": "string"},
        "optional": {"type": "integer"},
    }


@pytest.mark.parametrize(
    ("text", "fault", "calls"),
    [
        (CALL, "", 1),
        (f"[{CALL}, {CALL}]", "", 2),
        (CALL[:-1], "does not parse", 0),
        (CALL.replace("math.add", "add"), "no tool", 1),
        (CALL.replace("1", '"1"'), "not of type 'number'", 1),
        (CALL.replace('"a": 1', ""), "required", 1),
        (CALL.replace('"a": 1', '"a": 1, "b": 2'), "no parameters ['b']", 1),
    ],
)
def test_what_is_wrong_with_a_call_is_named(text: str, fault: str, calls: int) -> None:
    found = fault_of(TASK, text)
    assert (fault in found[0]) and bool(fault) == bool(found[0])
    assert found[1:] == (calls, not fault)


def record(ids: list[int], near_ties: int = 0) -> Record:
    vocabulary = small_vocabulary()
    text = b"".join(vocabulary.tokens[i] or b"" for i in ids).decode()
    return Record("t", text, ids, "", 1, True, 1, 1, 1, 1, 1, near_ties)


def test_differences_are_explained_by_where_they_begin() -> None:
    vocabulary = small_vocabulary()
    constraint = tool_calls(TASK.schemas, None, False).bind(vocabulary)
    ids = vocabulary.encode(CALL.encode())
    forced = forced_at(constraint, ids, 90)
    one = min(set(range(len(ids))) - forced)
    assert 0 in forced
    plain, longest = record(ids), max(forced, key=lambda i: len(vocabulary.tokens[ids[i]] or b""))
    letters = [vocabulary.singles[b] for b in vocabulary.tokens[ids[longest]] or b""]
    split = record([*ids[:longest], *letters, *ids[longest + 1 :]])
    other = record([*ids[:one], vocabulary.singles[ord("2")], *ids[one + 1 :]])
    assert json.loads(split.text) == json.loads(plain.text) and split.ids != plain.ids
    assert split_by(plain, ids, constraint, 90) == "nobody"
    assert split_by(plain, split.ids, constraint, 90) == "a forced run"
    assert split_by(plain, other.ids, constraint, 90) == "the model"
    assert difference(plain, plain, constraint, 90) == "same tokens"
    assert difference(plain, split, constraint, 90).startswith("same text: the model splits")
    assert difference(plain, other, constraint, 90) == "other text: unexplained"
    assert "nearly equal" in difference(replace(plain, near_ties=1), other, constraint, 90)
