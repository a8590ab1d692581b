"""What a command says on stderr when it ends early, and the exit codes."""

import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

from agentree.errors import AgentreeError
from agentree.trace.text import escape, one_line

DONE, FAILED, WRONG_USE, WAITING, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143
_REASON = 1000
"""Characters of a reason that are shown."""


class WrongUse(AgentreeError):
    """The command line asks for something that is not there or makes no sense."""


class OutputClosed(Exception):
    """Whoever read stdout is gone, as in `agentree ... | head -1`: no error worth a word."""


def put(text: str) -> None:
    """Result lines on stdout: as they are, on a terminal with controls escaped.

    Raises:
        OutputClosed: Its reader is gone.
        OSError: It can't be written for another reason, such as a full disk.
        AgentreeError: Whoever started the command has closed stdout.
    """
    stream = cast("TextIO | None", sys.stdout)
    if stream is None:
        raise AgentreeError("standard output is closed: there is nowhere to print the result")
    if stream.isatty():
        text = escape(text, keep="\n\t")
    try:
        stream.write(text + "\n")
        stream.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error


def say(text: str) -> None:
    """One line on stderr, if anybody listens there."""
    stream = cast("TextIO | None", sys.stderr)
    if stream is not None:
        with suppress(OSError, ValueError):
            stream.write(f"agentree: {text}\n")
            stream.flush()


def reason(error: BaseException) -> str:
    """An error in one line: our own as they are, others with their type; of a group, its first."""
    more = ""
    while isinstance(error, BaseExceptionGroup):
        inner = cast("list[BaseException]", list(error.exceptions))
        more = f" (and {len(inner) - 1} more)" if len(inner) > 1 else more
        error = inner[0]
    if isinstance(error, OSError) and error.strerror:
        where = f"{_name(error.filename)}: " if error.filename else ""
        text = f"{where}{error.strerror}"
    elif isinstance(error, AgentreeError):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return one_line(" ".join(text.split()), _REASON) + more


def _name(filename: object) -> str:
    return filename.decode(errors="replace") if isinstance(filename, bytes) else str(filename)


def fail(error: BaseException, *, code: int, debug: bool) -> int:
    """Say why a command failed; returns the exit code."""
    if debug and cast("TextIO | None", sys.stderr) is not None:
        with suppress(OSError):
            traceback.print_exception(error)
    say(f"error: {reason(error)}")
    return code


def place(error: BaseException, file: Path) -> str:
    """Where in a user's file an error comes from: "agents.py:12", or the file alone."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).name != file.name:
        return f"{error.filename}:{error.lineno}" if error.lineno else error.filename
    if isinstance(error, SyntaxError):
        return f"{file}:{error.lineno}" if error.lineno else str(file)
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)
    ]
    return f"{file}:{lines[-1]}" if lines else str(file)
