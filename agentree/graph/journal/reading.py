"""What a journal tells about its runs, for those who look at them and answer."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentree.errors import JournalError, Question
from agentree.graph.journal.answers import checked_answer, open_questions, parsed
from agentree.graph.journal.facts import OVER, Fact, Header
from agentree.graph.journal.file import JournalFile
from agentree.graph.journal.lock import RunLock
from agentree.graph.journal.opened import cancelled
from agentree.graph.journal.past import Past
from agentree.graph.journal.questions import question_of

_PAUSE = 0.05
"""Seconds between two looks whether a run is over."""


@dataclass(frozen=True)
class Shown:
    """One run, as it is shown."""

    header: Header
    status: str
    """As the header has it; where nobody goes on with it, "interrupted" if it says running, "cancelled" if
    somebody asked for that, and "answered" if it says waiting and nothing is left to answer."""
    facts: list[Fact]
    questions: list[Question]
    """Those without an answer; none where the run is over."""
    answered: Mapping[str, Any]
    """Answers given so far, by question."""
    uncertain: list[Fact] = field(default_factory=list[Fact])
    """Starts of tool calls that are not pure, whose end nobody knows, and that the run comes to again."""


class Runs:
    """The runs of one journal. Every method raises JournalError where the file or the run can't be read."""

    def __init__(self, path: str | Path) -> None:
        """Open it. Raises JournalError if there is none."""
        self._file = JournalFile(path)

    def __enter__(self) -> "Runs":
        return self

    def __exit__(self, *args: object) -> None:
        """Close the file."""
        self._file.close()

    def all(self) -> list[tuple[Header, str]]:
        """All runs with their status, the newest first."""
        return [(header, self._status(header)) for header in self._file.runs()]

    def show(self, run: str) -> Shown:
        """One run with all its facts."""
        header, facts = self._file.header(run), self._file.facts(run)
        status, answers = self._status(header), self._file.answers(run)
        asked = {} if status in OVER else open_questions(facts)
        questions = [question_of(body) for id_, body in asked.items() if id_ not in answers]
        return Shown(header, status, facts, questions, answers, uncertain_calls(facts))

    def answer(self, run: str, question: str, text: str) -> None:
        """Answer a question with a JSON value.

        Raises AlreadyAnswered, JournalError where nobody asks (any more), InvalidArgument where it does not
        fit.
        """
        if self._status(self._file.header(run)) == "cancelled":
            raise cancelled(run)
        asked, given = open_questions(self._file.facts(run)), self._file.answers(run)
        value = parsed(text, question)
        self._file.answer(run, question, checked_answer(run, asked, given, question, value))

    def cancel(self, run: str) -> bool:
        """End a run for good; False where another process goes on with it, which then stops it soon."""
        status = self._status(self._file.header(run))
        if status in OVER:
            raise JournalError(f"run {run!r} is over ({status}): there is nothing to cancel")
        lock = RunLock(self._file.path, run)
        if lock.taken():
            self._file.stop(run)
            lock.ring()
            return False
        lock.acquire()
        try:
            self._file.facts(run)
            self._file.append(
                run, [Fact("ended", "", {"status": "cancelled", "error": ""}, time.time())], "cancelled"
            )
        finally:
            lock.release()
        return True

    def wait(self, run: str, seconds: float) -> bool:
        """Wait so long for whoever goes on with a run to stop; whether nobody does any more. Blocks."""
        lock, end = RunLock(self._file.path, run), time.monotonic() + seconds
        while lock.taken():
            if time.monotonic() >= end:
                return False
            time.sleep(_PAUSE)
        return True

    def old(self, before: float) -> list[Header]:
        """Runs that are over, done or cancelled, since a point of time; others can be resumed."""
        return [header for header, status in self.all() if status in OVER and header.updated < before]

    def remove(self, headers: list[Header]) -> None:
        """Forget runs."""
        self._file.remove([header.run for header in headers])

    def _status(self, header: Header) -> str:
        if header.status in OVER or RunLock(self._file.path, header.run).taken():
            return header.status
        if header.stop:
            return "cancelled"
        if header.status == "waiting":
            with suppress(JournalError):  # a list shows what it can of a file that is damaged
                return "waiting" if self._file.unanswered(header.run) else "answered"
        return "interrupted" if header.status == "running" else header.status


def uncertain_calls(facts: list[Fact]) -> list[Fact]:
    """Starts of calls that are refused on resume unless somebody says what becomes of them."""
    past = Past(facts)
    begun = {(fact.path, fact.body["call"]): fact for fact in facts if fact.kind == "call started"}
    over = past.ended.keys() | past.gone()
    return [
        fact
        for place, fact in begun.items()
        if past.calls.get(place) == {} and not fact.body.get("pure") and fact.path not in over
    ]
