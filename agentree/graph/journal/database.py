"""The SQLite database below a journal: opened, checked, written to in turns, and its failures in words."""

import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from agentree.errors import JournalError
from agentree.graph.journal.ondisk import OnDisk, refuse_emptied
from agentree.graph.journal.turns import turn_of

APPLICATION = 0x61677472
VERSION = 2
PATIENCE = 60.0
"""Seconds to wait while another program writes to the file."""
_TABLES = """
CREATE TABLE runs (
    run TEXT PRIMARY KEY, program TEXT, source TEXT, model TEXT, created REAL, updated REAL, status TEXT,
    stop INTEGER DEFAULT 0, beat REAL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE facts (
    run TEXT, seq INTEGER, time REAL, kind TEXT, path TEXT, body TEXT, sum BLOB, PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE answers (
    run TEXT, question TEXT, time REAL, body TEXT, PRIMARY KEY (run, question)
) WITHOUT ROWID;
"""


class Database:
    """One connection. Its blocks may be entered from any thread, one at a time.

    Everything raises JournalError where the file can't be read or written.
    """

    def __init__(self, path: Path, *, create: bool) -> None:
        """Open a resolved path; with `create`, make file and folder where they are missing."""
        self.path = path
        self._lock = threading.Lock()
        self._turn = turn_of(path)
        if not create and not path.exists():
            raise JournalError(f"there is no journal {str(path)!r}")
        with self._explained(), self._turn.lock:
            if create:
                path.parent.mkdir(parents=True, exist_ok=True)
            refuse_emptied(path, create=create)
            self._db = self._connect(read_only=False)
            try:
                self._prepare(create)
                self._disk = OnDisk(path)
            except BaseException:
                self._db.close()
                raise

    def close(self) -> None:
        """Close it. Harmless when closed."""
        with suppress(sqlite3.Error), self._turn.lock:
            self._db.close()

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """A transaction: all of the block is on the disk once it is left, or nothing of it."""
        with self._explained(), self._turn.lock, self._lock:
            self._disk.check()
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def noting(self) -> Generator[sqlite3.Connection]:
        """A statement that survives the end of this process, not that of the machine: nothing waits for the
        disk.
        """
        with self._explained(), self._turn.lock, self._lock:
            self._disk.check()
            self._db.execute("PRAGMA synchronous=NORMAL")
            try:
                yield self._db
            finally:
                self._db.execute("PRAGMA synchronous=FULL")

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """What is in the file, as of each statement."""
        with self._explained(), self._lock:
            yield self._db

    def shrink(self) -> None:
        """Give back the space of what was removed."""
        with self._explained(), self._turn.lock, self._lock:
            self._db.execute("VACUUM")

    # ------------------------------------------------------------------------------------------ opening

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
                f"the journal {str(self.path)!r} has format {version}, and this version reads {VERSION}: "
                "finish its runs with the version that began them, and begin a new file with this one"
            )
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("SELECT 1 FROM runs LIMIT 1").fetchone()

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as e:
            raise JournalError(f"the journal {str(self.path)!r} {_what(e)}") from e


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
