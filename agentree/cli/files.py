"""Files that a command writes. Nothing that is something else is overwritten."""

import errno
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from agentree.cli.report import WrongUse, reason
from agentree.events import Event
from agentree.trace import JSONLWriter

_HEAD = 1 << 16
"""So many bytes tell what a file is."""


class TraceFile:
    """Where a run's events go. Opened with the first event: what fails before that loses no old trace."""

    def __init__(self, path: str) -> None:
        """Raises WrongUse where there is something else, or no way to write."""
        self.path = Path(path)
        self._writer: JSONLWriter | None = None
        _refuse(self.path, "trace", _is_trace)

    def feed(self, batch: Sequence[Event]) -> None:
        """Append events. Raises OSError as the file system does."""
        if self._writer is None:
            self._writer = JSONLWriter(self.path)
        self._writer.feed(batch)

    def tick(self) -> None:
        """Nothing is drawn here."""

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()


def write_picture(path: str, svg: str) -> None:
    """Write an SVG document. Raises WrongUse where there is something else, or no way to write."""
    _refuse(Path(path), "picture", lambda head: b"<svg" in head)
    try:
        Path(path).write_text(svg, encoding="utf-8")
    except OSError as error:
        raise WrongUse(f"can't write the picture: {reason(error)}") from error


def _refuse(path: Path, what: str, known: Callable[[bytes], bool]) -> None:
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not path.exists():
            folder = path.parent
            if not folder.is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
            path = folder
        elif path.is_file():
            with path.open("rb") as file:
                head = file.read(_HEAD)
            if head and not known(head):
                raise WrongUse(
                    f"{str(path)!r} is there already and is no {what}: name another file, or remove it first"
                )
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    except OSError as error:
        raise WrongUse(f"can't write the {what}: {reason(error)}") from error


def _is_trace(head: bytes) -> bool:
    line, end, _ = head.partition(b"\n")
    if not end:
        return line.startswith(b'{"event": ')  # a long line, or one cut by the end of its process
    try:
        found: object = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and "event" in found
