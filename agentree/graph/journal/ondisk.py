"""Whether the bytes of a journal are still there: SQLite alone goes on with pages that it remembers."""

import os
import sqlite3
import time
from pathlib import Path

from agentree.errors import JournalError

_PAUSE = 0.02
_BACK = "put it back from a copy and resume its runs, or begin a new file"


def refuse_emptied(path: Path, *, create: bool) -> None:
    """Raises JournalError for an empty file that runs were in, before SQLite removes what is left of them.

    With `create`, an empty file is a new journal if nothing next to it says that there was one.
    """
    tries = 5
    while path.exists() and path.stat().st_size == 0:
        left, tries = _left_of(path), tries - 1
        if left is None and create:
            return
        if tries == 0:
            raise JournalError(f"the journal {str(path)!r} is empty{_found(left)}")
        time.sleep(_PAUSE)  # another process may just be making a new one


def _found(left: Path | None) -> str:
    if left is None:
        return ": it holds no run"
    return (
        f", and {left.name!r} next to it tells that there were runs in it: put the file back from a copy and "
        f"resume them, or remove {left.name!r} too and begin anew"
    )


def _left_of(path: Path) -> Path | None:
    """What is next to a journal as long as runs are in it, or were."""
    log, locks = path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}.locks")
    if log.exists() and log.stat().st_size > 0:
        return log
    return locks if locks.exists() else None


class OnDisk:
    """A file that is in use.

    It is never opened here: closing it would take back the locks that SQLite holds on it in this process.
    """

    def __init__(self, path: Path) -> None:
        """Remember it as it is now."""
        self._path = path
        self._file = path.stat()

    def check(self) -> None:
        """Raises JournalError where the file's name leads elsewhere by now, or the file was cut off."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            found = None
        if found is None or not os.path.samestat(self._file, found):
            raise JournalError(
                f"the journal {str(self._path)!r} was deleted or replaced while it was in use: what is "
                "written now would be lost; put the file back and resume the run, or begin a new one"
            )
        if found.st_size < self._file.st_size and not self._shrank_rightly(found.st_size):
            raise JournalError(
                f"the journal {str(self._path)!r} was emptied or cut short while it was in use: {_BACK}"
            )
        self._file = found

    def _shrank_rightly(self, size: int) -> bool:
        """Whether the file tells by itself that it has fewer pages now: runs were removed from it."""
        if size == 0:
            return False
        look = sqlite3.connect(f"{self._path.as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            look.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.DatabaseError:
            return False
        finally:
            look.close()
        return True
