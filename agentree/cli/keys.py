"""Single keys from a terminal, without waiting for Enter."""

import os
import select
import sys
from collections.abc import Generator
from contextlib import contextmanager

_SEQUENCES = {"\x1b[C": "right", "\x1b[D": "left", "\x1bOC": "right", "\x1bOD": "left", "\r": "\n"}


class Keyboard:
    """Reads keys of the terminal behind a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def key(self, seconds: float) -> str:
        """The next key: a character, "left" or "right"; "" if none comes in time, "q" at the end of input."""
        ready, _, _ = select.select([self._descriptor], [], [], max(seconds, 0.0))
        if not ready:
            return ""
        read = os.read(self._descriptor, 16).decode(errors="replace")
        return _SEQUENCES.get(read, read[:1]) if read else "q"


@contextmanager
def keyboard() -> Generator[Keyboard | None]:
    """The keyboard while the block runs; None where there is no terminal to read keys from."""
    try:
        import termios
        import tty
    except ImportError:
        yield None
        return
    if not sys.stdin.isatty():
        yield None
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
