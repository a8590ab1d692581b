"""The file of a journal: SQLite, append-only facts of many runs, each with a checksum over all before it."""

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from agentree.errors import AlreadyAnswered, JournalError
from agentree.graph.journal.database import Database
from agentree.graph.journal.facts import Fact, Header, Status
from agentree.graph.journal.standard import is_text


class JournalFile:
    """One open journal. Methods block on the disk; they may be called from any thread.

    Every method raises JournalError where the file can't be read or written.
    """

    def __init__(self, path: str | Path, *, create: bool = False) -> None:
        """Open it; with `create`, make file and folder where they are missing."""
        # Also a link's: whoever comes by another name must find the same locks.
        self.path = Path(os.path.realpath(path))
        self._database = Database(self.path, create=create)
        self._sums: dict[str, tuple[int, bytes]] = {}
        """By run, the number of its last fact and that fact's checksum."""

    def close(self) -> None:
        """Close it. Harmless when closed."""
        self._database.close()

    # ------------------------------------------------------------------------------------- writing

    def create(self, header: Header, facts: Sequence[Fact]) -> None:
        """Begin a run. Raises JournalError if there is one of this id."""
        with self._database.writing() as db:
            try:
                db.execute(
                    "INSERT INTO runs (run, program, source, model, created, updated, status)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        header.run,
                        header.program,
                        header.source,
                        header.model,
                        header.created,
                        header.updated,
                        header.status,
                    ),
                )
            except sqlite3.IntegrityError as e:
                raise JournalError(
                    f"the journal holds a run {header.run!r} already: resume it, or choose another run_id"
                ) from e
            self._insert(db, header.run, facts)

    def append(self, run: str, facts: Sequence[Fact], status: Status | None = None) -> bool:
        """Add facts of a run, all or none; returns whether somebody asked to cancel it."""
        with self._database.writing() as db:
            last = self._insert(db, run, facts)
            db.execute(
                "UPDATE runs SET status = coalesce(?, status), updated = ? WHERE run = ?",
                (status, facts[-1].time if facts else time.time(), run),
            )
            (stop,) = db.execute("SELECT stop FROM runs WHERE run = ?", (run,)).fetchone() or (0,)
        self._sums[run] = last
        return bool(stop)

    def answer(self, run: str, question: str, body: str) -> None:
        """Give the answer to a question. Raises AlreadyAnswered if it has one."""
        with self._database.writing() as db:
            try:
                db.execute("INSERT INTO answers VALUES (?, ?, ?, ?)", (run, question, time.time(), body))
                db.execute("UPDATE runs SET updated = ? WHERE run = ?", (time.time(), run))
            except sqlite3.IntegrityError as e:
                raise AlreadyAnswered(
                    f"question {question!r} of run {run!r} is answered already: an answer is given once"
                ) from e

    def stop(self, run: str) -> None:
        """Ask whoever goes on with a run to cancel it. It holds also where that process hears it no more."""
        with self._database.writing() as db:
            db.execute("UPDATE runs SET stop = 1, updated = ? WHERE run = ?", (time.time(), run))

    def beat(self, run: str) -> None:
        """Note that somebody works on a run right now: it survives the end of this process."""
        with self._database.noting() as db:
            db.execute("UPDATE runs SET beat = ? WHERE run = ?", (time.time(), run))

    def remove(self, runs: Iterable[str]) -> None:
        """Forget runs with all their facts."""
        with self._database.writing() as db:
            for run in runs:
                for table in ("facts", "answers", "runs"):
                    db.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
        self._database.shrink()

    def _insert(self, db: sqlite3.Connection, run: str, facts: Sequence[Fact]) -> tuple[int, bytes]:
        seq, before = self._last(db, run)
        if self._sums.get(run, (seq, before)) != (seq, before):
            raise JournalError(
                f"run {run!r} is not in the journal {str(self.path)!r} as it was left: its facts were "
                "removed or changed by somebody else; put the file back from a copy and resume the run"
            )
        rows: list[tuple[object, ...]] = []
        for fact in facts:
            seq += 1
            body = json.dumps(fact.body, separators=(",", ":"), ensure_ascii=False)
            before = _sum(before, run, seq, fact, body)
            rows.append((run, seq, fact.time, fact.kind, fact.path, _stored(body), before))
        db.executemany("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        return seq, before

    def _last(self, db: sqlite3.Connection, run: str) -> tuple[int, bytes]:
        row = db.execute(
            "SELECT seq, sum FROM facts WHERE run = ? ORDER BY seq DESC LIMIT 1", (run,)
        ).fetchone()
        return (0, b"") if row is None else (row[0], row[1])

    # ------------------------------------------------------------------------------------- reading

    def runs(self) -> list[Header]:
        """All runs, the newest first."""
        with self._database.reading() as db:
            rows = db.execute(f"SELECT {_HEADER} FROM runs ORDER BY created DESC, run").fetchall()
        return [_header(row) for row in rows]

    def header(self, run: str) -> Header:
        """One run. Raises JournalError if it is not here."""
        with self._database.reading() as db:
            row = db.execute(f"SELECT {_HEADER} FROM runs WHERE run = ?", (run,)).fetchone()
        if row is None:
            raise JournalError(f"the journal {str(self.path)!r} holds no run {run!r}")
        return _header(row)

    def facts(self, run: str) -> list[Fact]:
        """All facts of a run. Raises JournalError where one is missing or damaged."""
        try:
            with self._database.reading() as db:
                rows = db.execute(
                    "SELECT seq, time, kind, path, body, sum FROM facts WHERE run = ? ORDER BY seq", (run,)
                ).fetchall()
        except JournalError as e:
            raise JournalError(f"run {run!r} can't be read, others may be: {e}") from e
        found: list[Fact] = []
        before, seq = b"", 0
        for seq, (number, at, kind, path, body, sum_) in enumerate(rows, 1):
            text = _text(body)
            fact = Fact(kind, path, _parsed(text), at)
            before = _sum(before, run, seq, fact, text)
            if number != seq or before != sum_:
                raise JournalError(
                    f"run {run!r} is damaged at its fact {seq}: it can't be shown or resumed from this file"
                )
            found.append(fact)
        self._sums[run] = (seq, before)
        return found

    def unanswered(self, run: str) -> list[str]:
        """Questions that a run which waits has no answer to, by the last fact of it."""
        with self._database.reading() as db:
            row = db.execute(
                "SELECT body FROM facts WHERE run = ? ORDER BY seq DESC LIMIT 1", (run,)
            ).fetchone()
        asked = cast("list[str]", _parsed(_text(row[0])).get("questions", []) if row else [])
        given = self.answers(run)
        return [question for question in asked if question not in given]

    def answers(self, run: str) -> dict[str, Any]:
        """Answers given so far, by question."""
        with self._database.reading() as db:
            rows = db.execute("SELECT question, body FROM answers WHERE run = ?", (run,)).fetchall()
        return {question: json.loads(body) for question, body in rows}


_HEADER = "run, program, source, model, created, updated, status, stop, beat"


def _header(row: Sequence[Any]) -> Header:
    *values, stop, beat = row
    return Header(*values, stop=bool(stop), beat=beat)


def _sum(before: bytes, run: str, seq: int, fact: Fact, body: str) -> bytes:
    text = "\x1f".join((run, str(seq), repr(fact.time), fact.kind, fact.path, body))
    return blake2b(before + text.encode(errors="surrogatepass"), digest_size=8).digest()


def _stored(text: str) -> str | bytes:
    """SQLite takes no text with lone surrogates, and two that are written as escapes come back as one."""
    return text if is_text(text) else text.encode(errors="surrogatepass")


def _text(body: object) -> str:
    if isinstance(body, bytes):
        return body.decode(errors="surrogatepass")
    return body if isinstance(body, str) else ""


def _parsed(text: str) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", json.loads(text))
    except ValueError:
        return {}
