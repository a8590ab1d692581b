"""Answers of people: which questions are open, and whether an answer fits."""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from pydantic_core import PydanticSerializationError, to_jsonable_python

from agentree.errors import AlreadyAnswered, InvalidArgument, JournalError
from agentree.graph.journal.check import complaint
from agentree.graph.journal.facts import Fact
from agentree.graph.journal.file import JournalFile
from agentree.graph.journal.past import Body
from agentree.graph.shown import shown


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


def answers_of(given: object) -> Mapping[str, object]:
    """Answers as a caller gave them; None is none. Raises InvalidArgument for anything but a mapping."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidArgument(
            f"answers={shown(repr(given), 80)}: write a mapping from the path of a question to its answer, "
            "as in answers={'review': True}"
        )
    return cast("Mapping[str, object]", given)


def parsed(text: str, question: str) -> object:
    """An answer that was written as JSON.

    Raises JournalError where it is none, InvalidArgument where an object in it says two things of one key.
    """

    def once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if key in found:
                raise InvalidArgument(
                    f"the answer to {question!r} does not fit: it has {key!r} twice: write it once"
                )
            found[key] = value
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except InvalidArgument:
        raise
    except ValueError as e:
        raise JournalError(
            f"the answer {text!r} is no JSON: write text in double quotes, as in '\"yes\"'"
        ) from e


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
        # Names as the reply type reads them, and without what it works out by itself.
        forms = [to_jsonable_python(value, by_alias=by_alias, round_trip=True) for by_alias in (True, False)]
    except (PydanticSerializationError, ValueError) as e:
        raise InvalidArgument(f"the answer to {question!r} can't be written as JSON: {e}") from e
    schema = asked[question]["schema"]
    problems = [complaint(plain, schema) for plain in forms]
    if None not in problems:
        raise InvalidArgument(f"the answer to {question!r} does not fit: {problems[0]}")
    return json.dumps(forms[problems.index(None)])
