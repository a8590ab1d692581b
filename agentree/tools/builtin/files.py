"""Searching and reading the text files of one folder, which nothing can lead out of.

A path is first resolved and compared with the folder; then it is opened one component at a time, relative
to the folder's own descriptor and without following links, so that exchanging a part of it is of no use.
Links inside of the folder work as long as they stay inside. Hidden files (".env", ".git") are left out.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, BinaryIO, Final

from pydantic import Field

from agentree.errors import ToolDefinitionError
from agentree.tools.calls import ToolFailed, ToolRetry
from agentree.tools.decorator import Tool, tool

MAX_LINE: Final = 300
"""Longest part of a line that is shown, in characters."""
MAX_TEXT: Final = 6_000
"""Most text of a file that one call shows, in characters."""
MAX_MATCHES: Final = 20
"""Most lines that a search shows."""
MAX_SCANNED: Final = 64 * 2**20
"""Most bytes that one call looks at."""
MAX_FILES: Final = 5_000
"""Most files that a search looks at."""

_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # non-blocking: a FIFO must not hang
_SNIFF = 8192
_LONGEST_LINE = 2**20


def file_tools(root: str | Path) -> tuple[Tool[[str], str], Tool[..., str]]:
    """The tools `search_files` and `read_file`, confined to the folder `root`.

    Raises ToolDefinitionError if there is no such folder.
    """
    folder = os.path.realpath(root)
    if not Path(folder).is_dir():
        raise ToolDefinitionError(f"file_tools({str(root)!r}): there is no such folder")

    @tool(pure=True)
    def search_files(query: Annotated[str, Field(min_length=1, max_length=200)]) -> str:
        """Search all text files for a word or phrase; upper and lower case are the same.

        Args:
            query: The text to look for.
        """
        return _search(folder, query)

    @tool(pure=True)
    def read_file(
        path: Annotated[str, Field(min_length=1, max_length=300)], first_line: Annotated[int, Field(ge=1)] = 1
    ) -> str:
        """Read a text file.

        Args:
            path: Path of the file, as search_files shows it.
            first_line: Number of the line to start at.
        """
        return _read(folder, path, first_line)

    return search_files, read_file


def _search(folder: str, query: str) -> str:
    phrase = " ".join(query.split()).casefold()
    if not phrase:
        raise ToolRetry("the query is empty: write a word to look for")
    words = phrase.split()
    exact: list[str] = []
    loose: list[str] = []  # lines that hold all words, but not as they stand in the query
    more = False
    scan = _Scan(folder)
    for name, number, line in scan.lines():
        folded = " ".join(line.split()).casefold()
        if phrase in folded:
            if len(exact) == MAX_MATCHES:
                more = True
                break
            exact.append(f"{name}:{number}: {_around(line, words[0])}")
        elif len(words) > 1 and len(loose) < MAX_MATCHES and all(word in folded for word in words):
            loose.append(f"{name}:{number}: {_around(line, words[0])}")
    found = exact or loose
    if not found:
        found = [f"No line contains {query!r}."]
    if more:
        found.append(f"[only the first {MAX_MATCHES} lines: ask for something more particular]")
    if scan.stopped:
        found.append(
            f"[stopped after {scan.files:,} files and {scan.bytes:,} bytes: the rest was not searched]"
        )
    return "\n".join(found)


class _Scan:
    """All lines of all text files below a folder, in the order of their paths, within bounds."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.files = 0
        self.bytes = 0
        self.stopped = False

    def lines(self) -> Iterator[tuple[str, int, str]]:
        for place, folders, names, descriptor in os.fwalk(self.folder, follow_symlinks=False):
            folders[:] = sorted(f for f in folders if not f.startswith("."))
            for name in sorted(n for n in names if not n.startswith(".")):
                if self.files == MAX_FILES or self.bytes >= MAX_SCANNED:
                    self.stopped = True
                    return
                try:
                    file = _regular(os.open(name, _READ_FLAGS, dir_fd=descriptor))
                except OSError:
                    continue  # a link, or not ours to read
                if file is None:
                    continue
                with file:
                    shown = _printable(os.path.relpath(os.path.join(place, name), self.folder))  # noqa: PTH118
                    yield from self._lines_of(file, shown)

    def _lines_of(self, file: BinaryIO, shown: str) -> Iterator[tuple[str, int, str]]:
        self.files += 1
        if _is_binary(file):
            return
        number = 0
        while self.bytes < MAX_SCANNED and (raw := file.readline(_LONGEST_LINE)):
            number += 1
            self.bytes += len(raw)
            yield shown, number, raw.decode("utf-8", "replace").rstrip("\r\n")


def _read(folder: str, path: str, first_line: int) -> str:
    with ExitStack() as stack:
        file = stack.enter_context(_open_inside(folder, path))
        if _is_binary(file):
            raise ToolFailed(f"{path!r} is no text file")
        shown: list[str] = []
        room = MAX_TEXT
        number = scanned = 0
        unread = False
        while raw := file.readline(_LONGEST_LINE):
            number += 1
            scanned += len(raw)
            if number >= first_line:
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                # a first line that is too long is cut, so that every call gets on by a line at least
                if len(line) + 1 > room and shown:
                    unread = True
                    break
                cut = f"{line[:room]} [… {len(line):,} characters in this line]" if len(line) > room else line
                shown.append(cut)
                room -= len(line) + 1
            if scanned >= MAX_SCANNED:
                unread = bool(file.read(1))
                break
    if not shown:
        if first_line == 1:
            return f"[{path} is empty]"
        raise ToolRetry(f"{path!r} has {number:,} lines that can be read: there is no line {first_line:,}")
    if unread:
        shown.append(
            f"[lines {first_line:,} to {first_line + len(shown) - 1:,}; the file goes on after that]"
        )
    return "\n".join(shown)


def _open_inside(folder: str, path: str) -> BinaryIO:
    """Open a regular file below `folder`, or say why not."""
    try:
        if b"\0" in os.fsencode(path):
            raise ToolRetry(f"{path!r} is no path")
    except UnicodeEncodeError:
        raise ToolRetry(f"{path!r} is no path") from None
    resolved = Path(os.path.realpath(os.path.join(folder, _unescaped(folder, path))))  # noqa: PTH118
    if not resolved.is_relative_to(folder):
        raise ToolFailed(f"{path!r} is outside of the folder that may be read")
    parts = resolved.relative_to(folder).parts
    if any(part.startswith(".") for part in parts):
        raise ToolFailed(f"{path!r} is hidden: hidden files are not read")
    try:
        with ExitStack() as stack:
            here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, here)
            for part in parts[:-1]:
                here = os.open(part, _READ_FLAGS | os.O_DIRECTORY, dir_fd=here)
                stack.callback(os.close, here)
            file = _regular(os.open(parts[-1], _READ_FLAGS, dir_fd=here)) if parts else None
    except FileNotFoundError:
        raise ToolRetry(f"there is no file {path!r}: search_files shows which there are") from None
    except OSError as e:
        raise ToolFailed(f"{path!r} can't be read: {e.strerror}") from None
    if file is None:
        raise ToolRetry(f"{path!r} is no file, but a folder or a device: give the path of a file")
    return file


def _unescaped(folder: str, path: str) -> str:
    """The path that `_printable` shows like this, else the path itself. Looks into nothing but `folder`."""
    if "\\" not in path:
        return path
    here, found = folder, list[str]()
    for part in path.split("/"):
        name = part
        if "\\" in part:
            with suppress(OSError), os.scandir(here) as entries:
                name = next((entry.name for entry in entries if _printable(entry.name) == part), part)
        here = os.path.join(here, name)  # noqa: PTH118
        if not Path(os.path.realpath(here)).is_relative_to(folder):
            return path
        found.append(name)
    return "/".join(found)


def _regular(descriptor: int) -> BinaryIO | None:
    """The open file, or None (and closed) if it is no regular file."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    return None


def _is_binary(file: BinaryIO) -> bool:
    head = file.read(_SNIFF)
    file.seek(0)
    return b"\0" in head


def _around(line: str, word: str) -> str:
    """The part of a line near a word, in at most about MAX_LINE characters."""
    line = line.strip()
    if len(line) <= MAX_LINE:
        return line
    start = max(0, line.casefold().find(word) - MAX_LINE // 3)
    return "…" * (start > 0) + line[start : start + MAX_LINE] + "…" * (start + MAX_LINE < len(line))


def _printable(name: str) -> str:
    """A path on one line, also if its bytes are no text; different for different paths."""
    text = name.replace("\\", "\\\\").encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
