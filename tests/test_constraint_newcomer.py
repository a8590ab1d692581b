"""What a new user tries first: nested models as they are, and errors that say what to write instead."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any

import pytest
from constraint_tools import any_token, play, small_vocabulary, stubborn
from pydantic import BaseModel, ConfigDict, Field

from agentree.errors import ConstraintError
from agentree.runtime.constraint import JSONSchema, compile_constraint, output_of, tool_calls
from agentree.runtime.constraint.schema import REFUSED


class Priority(Enum):
    """How soon."""

    low = "low"
    high = "high"


class Task(BaseModel):
    """Something to do, and its parts."""

    title: str
    due: date | None = None
    priority: Priority = Priority.low
    subtasks: list["Task"] = []


class Project(BaseModel):
    """What somebody leads."""

    name: str
    lead: str | None = None
    root: Task


FULL = (
    '{"name": "House", "lead": null, "root": {"title": "Paint", "due": "2024-02-29", "priority": "high", '
    '"subtasks": [{"title": "Buy", "subtasks": [{"title": "Pay"}]}, {"title": "Rest", "due": null}]}}'
)


def test_a_nested_model_is_taken_as_it_is() -> None:
    output = output_of(Project)
    assert output.constraint is not None and output.constraint.accepts(FULL)
    project = output.parse(FULL)
    assert project.root.due == date(2024, 2, 29) and project.root.priority is Priority.high
    assert project.root.subtasks[0].subtasks[0].title == "Pay"
    for wrong in ("2023-02-29", "soon"):
        assert not output.constraint.accepts(FULL.replace("2024-02-29", wrong))
    assert not output.constraint.accepts(FULL.replace('"high"', '"urgent"'))
    assert not output.constraint.accepts(FULL.replace('"lead"', '"boss"'))


@pytest.mark.parametrize("liked", [None, b" \n", b"[{", b"abcdefgh"])
def test_whatever_the_model_prefers_the_value_ends_and_parses(liked: bytes | None) -> None:
    output = output_of(Project)
    assert output.constraint is not None
    for seed in range(6):
        rng = random.Random(seed)
        pick = any_token(rng) if liked is None else stubborn(rng, liked)
        text, _ = play(output.constraint, small_vocabulary(), 90, pick)
        assert isinstance(output.parse(text.decode()), Project)


@pytest.mark.parametrize("keyword", sorted(REFUSED))
def test_a_refused_keyword_is_named_with_its_place_and_what_to_write(keyword: str) -> None:
    place: dict[str, Any] = {"type": "object", keyword: {}}
    schema = {"type": "object", "properties": {"a": place}, "required": ["a"]}
    with pytest.raises(ConstraintError) as caught:
        compile_constraint(JSONSchema(schema))
    message = str(caught.value)
    assert repr(keyword) in message and "#/properties/a" in message
    assert REFUSED[keyword] in message and REFUSED[keyword].startswith("write ")


class Hook(BaseModel):
    name: str
    call: Callable[[int], int]


class Held(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    rng: random.Random


@dataclass
class Outer:
    hooks: list[Hook]


class Bounds(BaseModel):
    name: str
    age: Annotated[int, Field(ge=5, le=3)]


class Short(BaseModel):
    bounds: Bounds
    word: str


class Word(BaseModel):
    text: Annotated[str, Field(pattern=r"\bcat\b")]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Hook, r"^Hook\.call is a function, which can't be enforced: write a Literal of names$"),
        (Outer, r"Hook\.call is a function"),
        (Held, r"^Held\.rng is 'Random', a class that has no JSON form.*write a pydantic model"),
        (Bounds, r"minimum 5 and maximum 3 at #/properties/age$"),
        (Short, r"minimum 5 and maximum 3 at #/\$defs/Bounds/properties/age$"),
        (Annotated[list[int], Field(min_length=3, max_length=2)], "minItems 3 and maxItems 2 at #$"),
        (JSONSchema({"type": "integer", "minimum": 1, "exclusiveMaximum": 1}), "exclusiveMaximum 1 at #$"),
        (JSONSchema({"type": "integer", "enum": ["a"]}), "contradict each other$"),
        (Word, r"#/properties/text.*word boundaries are not supported: leave out \\b, or write"),
    ],
)
def test_a_field_that_can_not_be_is_named(kind: Any, said: str) -> None:
    with pytest.raises(ConstraintError, match=said):
        compile_constraint(kind)


def test_a_branch_that_is_dead_hurts_nobody() -> None:
    assert compile_constraint(Annotated[int, Field(ge=5, le=3)] | None).accepts("null")  # pyright: ignore
    assert compile_constraint(int | Callable[[], int]).accepts("3")  # pyright: ignore[reportArgumentType]


def test_a_word_between_written_boundaries() -> None:
    found = compile_constraint(JSONSchema({"type": "string", "pattern": r"(?:^|\W)cat(?:\W|$)"}))
    assert found.accepts('"cat"') and found.accepts('"a cat!"') and not found.accepts('"cats"')


def test_a_tool_with_a_parameter_that_can_not_be() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 5, "maximum": 3}}}
    with pytest.raises(ConstraintError, match=r"tool 'look'.*minimum 5 and maximum 3 at #/properties/n"):
        tool_calls([("look", {**schema, "required": ["n"]})], None, False)
