"""Opens the journal of a run: of a new one, or of one that goes on."""

import json
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import anyio
import anyio.to_thread
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from agentree.errors import AlreadyAnswered, InvalidArgument, JournalError
from agentree.graph.journal.beat import worked_until
from agentree.graph.journal.calls import Calls, Policy
from agentree.graph.journal.check import complaint
from agentree.graph.journal.facts import Fact, Header
from agentree.graph.journal.file import JournalFile
from agentree.graph.journal.fingerprint import declared, fingerprint, tools_of
from agentree.graph.journal.lock import RunLock
from agentree.graph.journal.log import RunLog
from agentree.graph.journal.past import Body, Past
from agentree.graph.journal.questions import Questions
from agentree.graph.journal.recall import Generations
from agentree.graph.journal.unstorable import Unstorable
from agentree.graph.journal.values import Values
from agentree.graph.journal.visits import RunJournal
from agentree.graph.nodes import Definition
from agentree.lm.stored import stored

if TYPE_CHECKING:
    from agentree.lm import Runtime, Transcript

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
Changed = Literal["refuse", "accept"]
"""What becomes of a run whose program has changed since it began."""


@dataclass(frozen=True)
class Place:
    """Where a run is journaled."""

    path: str | Path
    source: str = ""
    """File and name of the program, for whoever resumes it by a command."""
    accepted: Callable[[], None] = lambda: None
    """Called once the run is kept there."""


@dataclass(frozen=True)
class Begun:
    """What a run starts with, now and whenever it is resumed."""

    id: str
    input: Any
    state: Any
    seed: int
    transcript: "Transcript | None"
    journal: RunJournal | None = None
    output: "Finished | None" = None
    """Set where it has ended already."""


@dataclass(frozen=True)
class Finished:
    """The output of a run that is over."""

    value: Any


def new_run_id(given: str | None) -> str:
    """An id for a run. Raises InvalidArgument for what can't be one."""
    if given is None:
        return uuid4().hex[:12]
    if not _RUN_ID.fullmatch(given):
        raise InvalidArgument(
            f"run_id={given!r}: write a letter or digit, then up to 63 letters, digits, _ . or -"
        )
    return given


def cancelled(run: str) -> JournalError:
    """What is said to whoever wants to go on with a run that somebody has ended."""
    return JournalError(
        f"run {run!r} was cancelled: it is over, asks nothing and can't be resumed; begin a new one"
    )


@asynccontextmanager
async def create(definition: Definition, place: Place, lm: "Runtime", begun: Begun) -> AsyncGenerator[Begun]:
    """A new run, accepted: whatever happens from here on, it can be resumed.

    Raises JournalError where a type can't be stored, the id is taken, or the file can't be written.
    """
    values = values_of(definition)
    accepted = _accepted(definition, values, lm, begun)
    now = time.time()
    model = str(lm._home.settings.model)
    header = Header(begun.id, definition.name, place.source, model, now, now, "running")
    facts = [Fact("accepted", "", accepted, now), Fact("opened", "", {}, now)]
    async with _opened(place.path, begun.id, create=True) as (file, lock):
        await anyio.to_thread.run_sync(file.create, header, facts)
        place.accepted()
        async with _logging(lm, file, lock, begun.id, values, Past(), {}, "raise") as journal:
            yield Begun(begun.id, begun.input, begun.state, begun.seed, begun.transcript, journal)


@asynccontextmanager
async def reopen(
    definition: Definition,
    path: str | Path,
    run: str,
    lm: "Runtime",
    *,
    answers: Mapping[str, object],
    uncertain: Policy,
    changed: Changed,
) -> AsyncGenerator[Begun]:
    """A run that goes on where it stopped; one that is done has its `output`.

    Raises:
        JournalError: The file or the run can't be read, the run was cancelled, another process goes on with
            it, the program has changed, or the runtime's tokens mean something else.
        AlreadyAnswered: A question of `answers` has an answer.
    """
    values = values_of(definition)
    async with _opened(path, run, create=False) as (file, lock):
        header = await anyio.to_thread.run_sync(file.header, run)
        if header.status == "cancelled" or (header.stop and header.status != "done"):
            raise cancelled(run)
        facts = await anyio.to_thread.run_sync(file.facts, run)
        accepted = accepted_of(facts, run)
        _refuse_other_tokens(lm, run, accepted)
        refuse_change(definition, values, run, accepted, changed)
        await anyio.to_thread.run_sync(give_answers, file, run, facts, answers)
        given = await anyio.to_thread.run_sync(file.answers, run)
        past = Past(facts, until=worked_until(facts[-1].time, header.beat, time.time()))
        async with _logging(lm, file, lock, run, values, past, given, uncertain) as journal:
            last = facts[-1]
            output = None
            if last.kind == "ended" and last.body["status"] == "done":
                output = Finished(journal.read(last.body["output"], "the output"))
            else:
                journal.log.note("opened", "", until=past.until)
                await journal.log.sync("running")
            yield _begun(run, accepted, journal, output)


def values_of(definition: Definition) -> Values:
    """How a program's values are written. Raises JournalError, naming where, for a type that can't be."""
    try:
        return Values(declared(definition), tools_of(definition))
    except Unstorable as e:
        raise JournalError(f"program {definition.name!r} can't be journaled: {e}") from e


@asynccontextmanager
async def _opened(path: str | Path, run: str, *, create: bool) -> AsyncGenerator[tuple[JournalFile, RunLock]]:
    def open_file() -> JournalFile:
        return JournalFile(path, create=create)

    file = await anyio.to_thread.run_sync(open_file)
    try:
        lock = RunLock(file.path, run)
        if not create:
            await anyio.to_thread.run_sync(file.header, run)
        await anyio.to_thread.run_sync(lock.acquire)
        try:
            yield file, lock
        finally:
            lock.release()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(file.close)


@asynccontextmanager
async def _logging(
    lm: "Runtime",
    file: JournalFile,
    lock: RunLock,
    run: str,
    values: Values,
    past: Past,
    answers: Mapping[str, Any],
    uncertain: Policy,
) -> AsyncGenerator[RunJournal]:
    log = RunLog(file, lock, run, past)
    questions = Questions(log, answers)
    calls, generations = Calls(log, questions, uncertain), Generations(log)
    try:
        with lm._recalling(run, generations):
            yield RunJournal(log, values, lm.transcript(), questions, calls, generations)
    finally:
        await log.close()


def _accepted(definition: Definition, values: Values, lm: "Runtime", begun: Begun) -> dict[str, Any]:
    def write(value: Any, what: str) -> Any:
        try:
            return values.write(value)
        except Unstorable as e:
            raise JournalError(f"the {what} of program {definition.name!r} can't be journaled: {e}") from e

    transcript = begun.transcript
    return {
        "program": definition.name,
        "fingerprint": fingerprint(definition, values.described()),
        "types": values.versions(),
        "tokens": _tokens(lm),
        "input": write(begun.input, "input"),
        "state": write(begun.state, "state"),
        "seed": begun.seed,
        "transcript": None if transcript is None else stored(transcript, None),
    }


def _begun(run: str, accepted: Body, journal: RunJournal, output: Finished | None) -> Begun:
    transcript = accepted["transcript"]
    if transcript is not None:
        transcript = journal.values.transcript(transcript, None, journal.empty)
    return Begun(
        run,
        journal.read(accepted["input"], "the input"),
        journal.read(accepted["state"], "the state"),
        accepted["seed"],
        transcript,
        journal,
        output,
    )


def _tokens(lm: "Runtime") -> list[Any]:
    """What tells one meaning of token ids from another."""
    session = lm._home.session
    sample = session.tokenizer.encode("A run, resumed: 0x1F €")
    return [session.name, session.tokenizer.size, blake2b(repr(sample).encode(), digest_size=8).hexdigest()]


def accepted_of(facts: list[Fact], run: str) -> Body:
    """What a run was accepted with. Raises JournalError where that is missing."""
    if not facts or facts[0].kind != "accepted":
        raise JournalError(f"run {run!r} is damaged: its beginning is missing")
    return facts[0].body


def _refuse_other_tokens(lm: "Runtime", run: str, accepted: Body) -> None:
    if _tokens(lm) != accepted["tokens"]:
        theirs, ours = accepted["tokens"][0], lm._home.session.name
        raise JournalError(
            f"run {run!r} was begun with the model {theirs!r}, and its tokens mean nothing to {ours!r}: "
            "resume it with a runtime of its own model"
        )


def refuse_change(definition: Definition, values: Values, run: str, accepted: Body, changed: Changed) -> None:
    """Raises JournalError for a program that is not the one that the run began with.

    Where the change is accepted, `values` are read as far as they still fit.
    """
    if accepted["program"] != definition.name:
        raise JournalError(
            f"run {run!r} is one of the program {accepted['program']!r}, not of {definition.name!r}"
        )
    if fingerprint(definition, values.described()) == accepted["fingerprint"]:
        return
    if changed == "accept":
        values.follow(accepted["types"])
    else:
        raise JournalError(
            f"the program {definition.name!r} has changed since run {run!r} began (its nodes, ways, types, "
            "tools or system messages): resume it with the program that it began with, or with "
            "changed='accept' if what it has done so far still fits"
        )


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
