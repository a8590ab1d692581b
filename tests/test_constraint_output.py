"""Python types, choices, regexes and agent turns as constraints."""

import enum
import random
import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pytest
from constraint_tools import any_token, play, small_vocabulary, stubborn
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from agentree.errors import ConstraintError
from agentree.runtime.constraint import (
    Answer,
    Choice,
    JSONSchema,
    Regex,
    compile_constraint,
    final_schema,
    output_of,
    parse_turn,
    tool_calls,
)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Part(BaseModel):
    name: str = Field(min_length=1, max_length=12)
    parts: list["Part"] = []


class Order(BaseModel):
    id: UUID
    when: datetime
    due: date | None = None
    color: Color
    count: int = Field(gt=0, le=99)
    price: Decimal
    labels: set[str] = set()
    extra: dict[str, int] = {}
    part: Part | None = None
    kind: Literal["new", "used"] = "new"


@dataclass
class Point:
    x: float
    y: float


class Pair(TypedDict):
    left: int
    right: str


def walk(output: Any, budget: int = 300, seed: int = 1) -> str:
    assert output.constraint is not None
    text, _ = play(output.constraint, small_vocabulary(), budget, any_token(random.Random(seed)))
    return text.decode()


@pytest.mark.parametrize(
    "kind",
    [
        Order,
        Part,
        Point,
        Pair,
        int,
        float,
        bool,
        None,
        list[Point],
        int | str,
        dict[str, bool],
        tuple[int, str],
    ],
)
def test_whatever_is_generated_parses(kind: Any) -> None:
    output = output_of(kind)
    for seed in range(6):
        output.parse(walk(output, seed=seed))


def test_several_types_are_a_union() -> None:
    output = output_of(Point, Pair)
    assert output.parse('{"x": 1.5, "y": 2}') == Point(1.5, 2)
    assert output.parse('{"left": 1, "right": "a"}') == {"left": 1, "right": "a"}


def test_bare_texts() -> None:
    assert output_of(str).constraint is None
    assert output_of(str).parse("any") == "any"
    assert output_of(Color).parse(walk(output_of(Color))) in Color
    assert walk(output_of(Literal["yes", "no"])) in ("yes", "no")
    assert re.fullmatch(r"[a-c]{2,4}-\d+", walk(output_of(Regex(r"[a-c]{2,4}-\d+")), 20))
    assert walk(output_of(Choice(["one", "one more", " one"]))) in ("one", "one more", " one")
    assert output_of(Literal[1, "a"]).parse("1") == 1


def test_choices_that_begin_alike() -> None:
    constraint = compile_constraint(Choice(["yes", "yesterday", "no"]))
    assert constraint.accepts("yes") and constraint.accepts("yesterday") and not constraint.accepts("yest")
    assert (
        constraint.forced("n") == b"o"
        and constraint.forced("yes") == b""
        and constraint.forced("yest") == b"erday"
    )


@pytest.mark.parametrize(
    "pattern", ["a|ab|abc", "(a|b)*c", "[^x]{3}", r"\w+@\w+\.(com|org)", "(?i:ok)|fine", "é+", ".{0,5}"]
)
def test_regex_is_a_full_match(pattern: str) -> None:
    constraint = compile_constraint(Regex(pattern))
    for seed in range(10):
        rng = random.Random(seed)
        for pick in (any_token(rng), stubborn(rng, b"ac")):
            text, _ = play(constraint, small_vocabulary(), 25, pick)
            assert re.fullmatch(pattern, text.decode())


def test_refused_types_and_specs() -> None:
    class Opaque:
        pass

    for spec, words in (
        (Opaque, "Opaque"),
        (Choice([]), "no options"),
        (Regex("a\\b"), "offset 1"),
        (str, "free text"),
    ):
        with pytest.raises(ConstraintError, match=words):
            compile_constraint(spec)
    with pytest.raises(ConstraintError, match="union"):
        output_of(Regex("a"), int)


def test_constraints_are_kept_by_content() -> None:
    one = compile_constraint(JSONSchema({"type": "integer"}))
    assert compile_constraint(JSONSchema({"type": "integer"})) is one
    assert one.bind(small_vocabulary()) is one.bind(small_vocabulary())
    assert one.engine == "fsm"


TOOLS: list[tuple[str, dict[str, object]]] = [
    (
        "add",
        {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
    ),
    (
        "find",
        {
            "type": "object",
            "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
            "required": ["query"],
        },
    ),
]


def test_a_turn_is_a_call_or_the_answer() -> None:
    output = output_of(str)
    constraint = tool_calls(TOOLS, output)
    assert constraint.forced() == b'{"name": "'
    assert constraint.forced('{"name": "a') == b'dd", "arguments": {"a": '
    assert constraint.accepts('{"name": "find", "arguments": {"query": "x"}}')
    assert not constraint.accepts('{"name": "find", "arguments": {"query": "x", "more": 1}}')
    assert not constraint.accepts('{"name": "find", "arguments": {"query": "' + "x" * 401 + '"}}')
    assert parse_turn('{"name": "find", "arguments": {"query": "x"}}', output) == [("find", {"query": "x"})]
    assert parse_turn('{"name": "final_answer", "arguments": {"answer": "42"}}', output) == Answer("42")
    for seed in range(20):
        text, _ = play(constraint, small_vocabulary(), 60, any_token(random.Random(seed)))
        turn = parse_turn(text.decode(), output)
        assert isinstance(turn, Answer) or turn[0][0] in ("add", "find")


def test_an_answer_that_is_an_object_stands_for_the_arguments() -> None:
    output = output_of(Point)
    text = '{"name": "final_answer", "arguments": {"x": 1.0, "y": -2}}'
    assert tool_calls(TOOLS, output).accepts(text)
    assert parse_turn(text, output) == Answer(Point(1.0, -2))
    assert final_schema(output) == output.schema
    assert final_schema(output_of(list[Part])).keys() == {
        "type",
        "$defs",
        "properties",
        "required",
        "additionalProperties",
    }
    for final, spelled, value in (
        (output_of(Color), '"red"', Color.RED),
        (output_of(Regex("[a-c]+")), '"abc"', "abc"),
        (output_of(int), "7", 7),
    ):
        text = '{"name": "final_answer", "arguments": {"answer": ' + spelled + "}}"
        assert tool_calls(TOOLS, final).accepts(text)
        assert parse_turn(text, final) == Answer(value)


def test_parallel_calls_are_an_array_and_the_answer_stands_alone() -> None:
    output = output_of(str)
    constraint = tool_calls(TOOLS, output, parallel=True)
    call = '{"name": "find", "arguments": {"query": "x"}}'
    assert constraint.accepts(f"[{call}]") and constraint.accepts("[" + ", ".join([call] * 8) + "]")
    for bad in (
        "[]",
        call,
        "[" + ", ".join([call] * 9) + "]",
        '[{"name": "final_answer", "arguments": {"answer": ""}}]',
    ):
        assert not constraint.accepts(bad)
    assert parse_turn(f"[{call}, {call}]", output) == [("find", {"query": "x"})] * 2


def test_turns_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConstraintError, match="rename"):
        tool_calls([("final_answer", {})], None)
    with pytest.raises(ConstraintError, match="several tools are named 'add'"):
        tool_calls([TOOLS[0], TOOLS[0]], None)
    with pytest.raises(ConstraintError, match="at least one"):
        tool_calls([], None)
    with pytest.raises(ConstraintError, match=r"tool 'bad'.*'pattern' at #/properties/x"):
        tool_calls([("bad", {"properties": {"x": {"pattern": "(?<=a)"}}})], None)
    with pytest.raises(ValueError, match="no tool call"):
        parse_turn("3")


def test_lenient_checks_afterwards() -> None:
    spec = JSONSchema({"type": "string", "pattern": "(a|b)\\1"}, lenient=True)
    output = output_of(spec)
    assert output.constraint is not None and output.constraint.unchecked == ("pattern at #",)
    assert output.parse('"aa"') == "aa"
    with pytest.raises(ValueError, match="does not satisfy"):
        output.parse('"ab"')
