"""The file of a journal: SQLite, append-only facts of many runs, each with a checksum over all before it."""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from agentree.errors import AlreadyAnswered, JournalError
from agentree.graph.journal.facts import Fact, Header, Status
from agentree.graph.journal.turns import turn_of

APPLICATION = 0x61677472
VERSION = 1
PATIENCE = 60.0
"""Seconds to wait while another program writes to the file."""
_TABLES = """
CREATE TABLE runs (
    run TEXT PRIMARY KEY, program TEXT, source TEXT, model TEXT, created REAL, updated REAL, status TEXT,
    stop INTEGER DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE facts (
    run TEXT, seq INTEGER, time REAL, kind TEXT, path TEXT, body TEXT, sum BLOB, PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE answers (
    run TEXT, question TEXT, time REAL, body TEXT, PRIMARY KEY (run, question)
) WITHOUT ROWID;
"""


class JournalFile:
    """One open journal. Methods block on the disk; they may be called from any thread.

    Every method raises JournalError where the file can't be read or written.
    """

    def __init__(self, path: str | Path, *, create: bool = False) -> None:
        """Open it; with `create`, make file and folder where they are missing."""
        # Also a link's: whoever comes by another name must find the same locks.
        self.path = Path(os.path.realpath(path))
        self._lock = threading.Lock()
        self._turn = turn_of(self.path)
        self._sums: dict[str, tuple[int, bytes]] = {}
        """By run, the number of its last fact and that fact's checksum."""
        if not create and not self.path.exists():
            raise JournalError(f"there is no journal {str(self.path)!r}")
        with self._explained(), self._turn.lock:
            if create:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = self._connect(read_only=False)
            try:
                self._prepare(create)
                self._opened = self.path.stat()
            except BaseException:
                self._db.close()
                raise

    def close(self) -> None:
        """Close it. Harmless when closed."""
        with suppress(sqlite3.Error), self._turn.lock:
            self._db.close()

    # ------------------------------------------------------------------------------------- writing

    def create(self, header: Header, facts: Sequence[Fact]) -> None:
        """Begin a run. Raises JournalError if there is one of this id."""
        with self._writing():
            try:
                self._db.execute(
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
            self._insert(header.run, facts)

    def append(self, run: str, facts: Sequence[Fact], status: Status | None = None) -> bool:
        """Add facts of a run, all or none; returns whether somebody asked to cancel it."""
        with self._writing():
            last = self._insert(run, facts)
            if status is not None:
                self._db.execute(
                    "UPDATE runs SET status = ?, updated = ? WHERE run = ?", (status, time.time(), run)
                )
            (stop,) = self._db.execute("SELECT stop FROM runs WHERE run = ?", (run,)).fetchone() or (1,)
        self._sums[run] = last
        return bool(stop)

    def answer(self, run: str, question: str, body: str) -> None:
        """Give the answer to a question. Raises AlreadyAnswered if it has one."""
        with self._writing():
            try:
                self._db.execute(
                    "INSERT INTO answers VALUES (?, ?, ?, ?)", (run, question, time.time(), body)
                )
            except sqlite3.IntegrityError as e:
                raise AlreadyAnswered(
                    f"question {question!r} of run {run!r} is answered already: an answer is given once"
                ) from e

    def stop(self, run: str) -> None:
        """Ask whoever goes on with a run to cancel it. It holds also where that process hears it no more."""
        with self._writing():
            self._db.execute("UPDATE runs SET stop = 1, updated = ? WHERE run = ?", (time.time(), run))

    def remove(self, runs: Iterable[str]) -> None:
        """Forget runs with all their facts."""
        with self._writing():
            for run in runs:
                for table in ("facts", "answers", "runs"):
                    self._db.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
        with self._explained(), self._turn.lock, self._lock:
            self._db.execute("VACUUM")

    def _insert(self, run: str, facts: Sequence[Fact]) -> tuple[int, bytes]:
        seq, before = self._sums.get(run) or self._last(run)
        rows: list[tuple[object, ...]] = []
        for fact in facts:
            seq += 1
            body = json.dumps(fact.body, separators=(",", ":"))
            before = _sum(before, run, seq, fact, body)
            rows.append((run, seq, fact.time, fact.kind, fact.path, body, before))
        self._db.executemany("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        return seq, before

    def _last(self, run: str) -> tuple[int, bytes]:
        row = self._db.execute(
            "SELECT seq, sum FROM facts WHERE run = ? ORDER BY seq DESC LIMIT 1", (run,)
        ).fetchone()
        return (0, b"") if row is None else (row[0], row[1])

    # ------------------------------------------------------------------------------------- reading

    def runs(self) -> list[Header]:
        """All runs, the newest first."""
        with self._reading():
            rows = self._db.execute(f"SELECT {_HEADER} FROM runs ORDER BY created DESC, run").fetchall()
        return [_header(row) for row in rows]

    def header(self, run: str) -> Header:
        """One run. Raises JournalError if it is not here."""
        with self._reading():
            row = self._db.execute(f"SELECT {_HEADER} FROM runs WHERE run = ?", (run,)).fetchone()
        if row is None:
            raise JournalError(f"the journal {str(self.path)!r} holds no run {run!r}")
        return _header(row)

    def facts(self, run: str) -> list[Fact]:
        """All facts of a run. Raises JournalError where one is missing or damaged."""
        try:
            with self._reading():
                rows = self._db.execute(
                    "SELECT seq, time, kind, path, body, sum FROM facts WHERE run = ? ORDER BY seq", (run,)
                ).fetchall()
        except JournalError as e:
            raise JournalError(f"run {run!r} can't be read, others may be: {e}") from e
        found: list[Fact] = []
        before, seq = b"", 0
        for seq, (number, at, kind, path, body, sum_) in enumerate(rows, 1):
            fact = Fact(kind, path, _parsed(body), at)
            before = _sum(before, run, seq, fact, body) if isinstance(body, str) else b""
            if number != seq or before != sum_:
                raise JournalError(
                    f"run {run!r} is damaged at its fact {seq}: it can't be shown or resumed from this file"
                )
            found.append(fact)
        self._sums[run] = (seq, before)
        return found

    def answers(self, run: str) -> dict[str, Any]:
        """Answers given so far, by question."""
        with self._reading():
            rows = self._db.execute("SELECT question, body FROM answers WHERE run = ?", (run,)).fetchall()
        return {question: json.loads(body) for question, body in rows}

    # --------------------------------------------------------------------------------- the database

    def _connect(self, *, read_only: bool, immutable: bool = False) -> sqlite3.Connection:
        mode = ("?mode=ro" if read_only else "?mode=rwc") + ("&immutable=1" if immutable else "")
        return sqlite3.connect(
            self.path.as_uri() + mode,
            uri=True,
            timeout=PATIENCE,
            isolation_level=None,
            check_same_thread=False,
        )

    def _prepare(self, create: bool) -> None:
        if not create:
            try:
                self._check()
            except sqlite3.OperationalError as e:
                if "readonly" not in str(e) and "unable to open" not in str(e):
                    raise
                # In a folder that can't be written to, WAL has nowhere to put its index.
                self._db.close()
                self._db = self._connect(read_only=True, immutable=True)
                self._check()
            return
        if not self._is_empty():
            self._refuse_foreign()  # before anything in it is changed
        (mode,) = self._db.execute("PRAGMA journal_mode=WAL").fetchone()
        if mode != "wal":
            raise JournalError(f"{str(self.path)!r} is on a file system where a journal can't be kept")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("PRAGMA fullfsync=ON")
        self._db.execute("BEGIN IMMEDIATE")
        if self._is_empty():
            self._db.execute(f"PRAGMA application_id={APPLICATION}")
            self._db.execute(f"PRAGMA user_version={VERSION}")
            for statement in _TABLES.split(";"):
                self._db.execute(statement)
        self._db.execute("COMMIT")
        self._check()

    def _is_empty(self) -> bool:
        return self._db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)

    def _refuse_foreign(self) -> None:
        if self._db.execute("PRAGMA application_id").fetchone() != (APPLICATION,):
            raise JournalError(f"{str(self.path)!r} is no journal of agentree: name another file")

    def _check(self) -> None:
        self._refuse_foreign()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            raise JournalError(
                f"the journal {str(self.path)!r} has format {version}, and this version reads {VERSION}"
            )
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("SELECT 1 FROM runs LIMIT 1").fetchone()

    @contextmanager
    def _writing(self) -> Generator[None]:
        with self._explained(), self._turn.lock, self._lock:
            self._still_there()
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def _still_there(self) -> None:
        """Raises JournalError where the file's name leads nowhere or to another file by now."""
        try:
            same = os.path.samestat(self._opened, self.path.stat())
        except FileNotFoundError:
            same = False
        if not same:
            raise JournalError(
                f"the journal {str(self.path)!r} was deleted or replaced while it was in use: what is "
                "written now would be lost; put the file back and resume the run, or begin a new one"
            )

    @contextmanager
    def _reading(self) -> Generator[None]:
        with self._explained(), self._lock:
            yield

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as e:
            raise JournalError(f"the journal {str(self.path)!r} {_what(e)}") from e


_HEADER = "run, program, source, model, created, updated, status, stop"


def _header(row: Sequence[Any]) -> Header:
    *values, stop = row
    return Header(*values, stop=bool(stop))


def _sum(before: bytes, run: str, seq: int, fact: Fact, body: str) -> bytes:
    text = "\x1f".join((run, str(seq), repr(fact.time), fact.kind, fact.path, body))
    return blake2b(before + text.encode(errors="surrogatepass"), digest_size=8).digest()


def _parsed(body: object) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", json.loads(cast("str", body)))
    except (TypeError, ValueError):
        return {}


def _what(e: Exception) -> str:
    """A failure in words, with the way out."""
    text = str(e)
    if isinstance(e, OSError):
        return f"can't be opened: {e.strerror or text}"
    if "locked" in text or "busy" in text:
        return f"is locked by another program for more than {PATIENCE:g} seconds: find it, and try again"
    if "full" in text:
        return "can't be written, the disk is full: make room, then resume the run"
    if "readonly" in text:
        return "can't be written, it is read-only: make file and folder writable, then resume the run"
    if "unable to open" in text:
        return "can't be opened: check that its folder is there and writable"
    if "not a database" in text:
        return "is no journal of agentree, or damaged at its beginning"
    if "malformed" in text or "corrupt" in text:
        return "is damaged where this was asked for; other runs may still be readable"
    return f"can't be used: {text}"
