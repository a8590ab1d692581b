"""Whether the bytes of a journal are still there: SQLite alone goes on with pages that it remembers."""

import os
import sqlite3
import time
from pathlib import Path

from agentree.errors import JournalError

_TRIES, _PAUSE = 5, 0.02
_BACK = "put it back from a copy and resume its runs, or begin a new file"


def refuse_emptied(path: Path, *, create: bool) -> None:
    """Raises JournalError for an empty file that runs were in, before SQLite removes what is left of them.

    With `create`, an empty file is a new journal if nothing next to it says that there was one.
    """
    locks, log = path.with_name(f"{path.name}.locks"), path.with_name(f"{path.name}-wal")
    for _ in range(_TRIES):
        if not path.exists() or path.stat().st_size > 0:
            return
        left = log if log.exists() and log.stat().st_size > 0 else locks if locks.exists() else None
        if left is None:
            break
        time.sleep(_PAUSE)  # another process may just be making a new one
    else:
        raise JournalError(
            f"the journal {str(path)!r} is empty, and {left.name!r} next to it tells that there were runs in "
            f"it: it was emptied; {_BACK} (or remove {left.name!r} as well)"
        )
    if not create:
        raise JournalError(
            f"the journal {str(path)!r} is empty: it holds no run; if there were some, {_BACK}"
        )


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
