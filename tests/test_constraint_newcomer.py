"""What a new user tries first: nested models as they are, and errors that say what to write instead."""

import random
from datetime import date
from enum import Enum
from typing import Any

import pytest
from constraint_tools import any_token, play, small_vocabulary, stubborn
from pydantic import BaseModel

from agentree.errors import ConstraintError
from agentree.runtime.constraint import JSONSchema, compile_constraint, output_of
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
