"""Opens the journal of a run: of a new one, or of one that goes on."""

import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio
import anyio.to_thread

from agentree.errors import InvalidArgument, JournalError
from agentree.graph.journal.accepted import (
    Changed,
    accepted_of,
    accepted_with,
    refuse_change,
    refuse_other_tokens,
    values_of,
)
from agentree.graph.journal.answers import give_answers
from agentree.graph.journal.beat import worked_until
from agentree.graph.journal.calls import Calls, Policy
from agentree.graph.journal.facts import Fact, Header
from agentree.graph.journal.file import JournalFile
from agentree.graph.journal.lock import RunLock
from agentree.graph.journal.log import RunLog
from agentree.graph.journal.past import Body, Past
from agentree.graph.journal.questions import Questions
from agentree.graph.journal.recall import Generations
from agentree.graph.journal.values import Values
from agentree.graph.journal.visits import RunJournal
from agentree.graph.nodes import Definition

if TYPE_CHECKING:
    from agentree.lm import Runtime, Transcript

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


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
    accepted = accepted_with(definition, values, lm, begun)
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
        refuse_other_tokens(lm, run, accepted)
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


def _begun(run: str, accepted: Body, journal: RunJournal, output: Finished | None) -> Begun:
    transcript = accepted["transcript"]
    if transcript is not None:
        transcript = journal.values.transcript(transcript, None, journal.empty)
    state = journal.read(accepted["state"], "the state")
    return Begun(
        run,
        journal.read(accepted["input"], "the input", state=lambda: journal.write_state(state)[1]),
        state,
        accepted["seed"],
        transcript,
        journal,
        output,
    )
