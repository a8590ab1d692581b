"""Answers of people: which questions are open, and whether an answer fits."""

import json
from collections.abc import Mapping

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from agentree.errors import AlreadyAnswered, InvalidArgument, JournalError
from agentree.graph.journal.check import complaint
from agentree.graph.journal.facts import Fact
from agentree.graph.journal.file import JournalFile
from agentree.graph.journal.past import Body


def open_questions(facts: list[Fact]) -> dict[str, Body]:
    """Questions that a run has asked and that still matter, by id: answered or not."""
    asked: dict[str, Body] = {}
    found: list[str] = []
    for fact in facts:
        if fact.kind == "question":
            asked[fact.body["id"]] = fact.body
            found.append(fact.body["id"])
        elif fact.kind == "refused":
            found = [id_ for id_ in found if id_ != fact.body["id"]]
        elif fact.kind == "node ended":
            found = [id_ for id_ in found if id_ != fact.path and not id_.startswith(f"{fact.path}:")]
        elif fact.kind == "waiting":
            found = list(fact.body["questions"])
    return {id_: asked[id_] for id_ in found}


def give_answers(file: JournalFile, run: str, facts: list[Fact], answers: Mapping[str, object]) -> None:
    """Keep answers to open questions. Raises as `checked_answer`, before any is kept."""
    asked, given = open_questions(facts), file.answers(run)
    texts = {id_: checked_answer(run, asked, given, id_, value) for id_, value in answers.items()}
    for id_, text in texts.items():
        file.answer(run, id_, text)


def checked_answer(
    run: str, asked: Mapping[str, Body], given: Mapping[str, object], question: str, value: object
) -> str:
    """An answer as JSON.

    Raises AlreadyAnswered, JournalError where nobody asked, InvalidArgument where the answer does not fit.
    """
    if question in given:
        raise AlreadyAnswered(
            f"question {question!r} of run {run!r} is answered already: an answer is given once"
        )
    if question not in asked:
        there = ", ".join(map(repr, asked)) or "none"
        raise JournalError(f"run {run!r} has no question {question!r}; open questions: {there}")
    try:
        plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else to_jsonable_python(value)
    except (PydanticSerializationError, ValueError) as e:
        raise InvalidArgument(f"the answer to {question!r} can't be written as JSON: {e}") from e
    schema = asked[question]["schema"]
    if (problem := complaint(plain, schema)) is not None:
        raise InvalidArgument(f"the answer to {question!r} does not fit: {problem}")
    return json.dumps(plain)
