"""One process at a time goes on with a run: a lock that the kernel gives back when its holder dies."""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from agentree.errors import JournalError

_TRIES, _PAUSE = 5, 0.02
_held: "set[RunLock]" = set()
"""Those that this process holds: what the kernel gives to forked children with everything else."""


class RunLock:
    """Held from `acquire` to `release`, or to the end of the process, however it ends."""

    def __init__(self, journal: Path, run: str) -> None:
        self._path = journal.with_name(f"{journal.name}.locks") / f"{run}.lock"
        self._run = run
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take it. Raises JournalError if another holder lives, here or in another process."""
        for _ in range(_TRIES):
            if self._try():
                return
            time.sleep(_PAUSE)  # somebody may only have looked whether it is held
        raise JournalError(
            f"run {self._run!r} is going on in another place: wait for it to end, or stop it, first"
        )

    def taken(self) -> bool:
        """Whether somebody holds it right now."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def ring(self) -> None:
        """Tell whoever holds it to look into the journal. Harmless where nobody does."""
        with suppress(OSError):
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                os.write(fd, b"\0")
            finally:
                os.close(fd)

    def rung(self) -> bool:
        """Whether somebody has rung since it was taken. One look at an open file: no wait, no thread."""
        return self._fd is not None and os.fstat(self._fd).st_size > 0

    def release(self) -> None:
        """Give it back. Harmless when not held."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            _held.discard(self)
            # Removed while held: whoever opened it before finds below that it is not the file any more.
            self._path.unlink(missing_ok=True)
            os.close(fd)

    def _try(self) -> bool:
        while True:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as e:
                raise JournalError(
                    f"run {self._run!r} can't be locked: {e.strerror} ({str(self._path)!r})"
                ) from e
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return False
            if self._is_ours(fd):
                os.ftruncate(fd, 0)
                self._fd = fd
                _held.add(self)
                return True
            os.close(fd)

    def _forked(self) -> None:
        """In a child: the lock is its parent's alone, and must not outlive it here."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def _is_ours(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), self._path.stat())
        except FileNotFoundError:
            return False


def _in_child() -> None:
    for lock in list(_held):
        lock._forked()
    _held.clear()


os.register_at_fork(after_in_child=_in_child)
