"""What a journal tells of a run without a runtime: its model, and its output if it is done."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio.to_thread

from agentree.errors import JournalError
from agentree.graph.journal.accepted import Changed, accepted_of, refuse_change, values_of
from agentree.graph.journal.answers import give_answers
from agentree.graph.journal.file import JournalFile
from agentree.graph.journal.opened import Finished
from agentree.graph.journal.unstorable import NeedsRuntime, Unstorable
from agentree.graph.nodes import Definition


@dataclass(frozen=True)
class Known:
    """What is known of a run without a runtime."""

    model: str
    """The model that it began with, as `Runtime` takes it."""
    output: Finished | None
    """None: it is not done, or its output holds transcripts, which belong to a runtime."""


async def look(
    definition: Definition, path: str | Path, run: str, answers: Mapping[str, object], changed: Changed
) -> Known:
    """Look at a run of a program.

    Raises, where it is done, JournalError and AlreadyAnswered as `reopen` does.
    """
    return await anyio.to_thread.run_sync(partial(look_now, definition, path, run, answers, changed))


def look_now(
    definition: Definition, path: str | Path, run: str, answers: Mapping[str, object], changed: Changed
) -> Known:
    """The same; blocks on the disk."""
    file = JournalFile(path)
    try:
        header = file.header(run)
        if header.status != "done":
            return Known(header.model, None)
        facts = file.facts(run)
        last = facts[-1] if facts else None
        if last is None or last.kind != "ended":
            return Known(header.model, None)
        values = values_of(definition)
        refuse_change(definition, values, run, accepted_of(facts, run), changed)
        give_answers(file, run, facts, answers)
    finally:
        file.close()
    try:
        return Known(header.model, Finished(values.read(last.body["output"], empty=None)))
    except NeedsRuntime:
        return Known(header.model, None)
    except Unstorable as e:
        raise JournalError(f"the output of run {run!r}: the journal holds {e}") from e
