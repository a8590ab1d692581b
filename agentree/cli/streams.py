"""Standard streams that may be closed, and signals that ask for an end."""

import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal; a closed one (`>&-`) is None."""
    return stream is not None and stream.isatty()


def occupy_closed() -> None:
    """Let closed standard streams lead nowhere, so that no file that is opened later gets their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one


def never_refuse(stream: TextIO | None) -> None:
    """Characters that the stream's encoding lacks are written as escapes, not raised as errors."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def let_go_of_stdout() -> None:
    """What is still buffered for a reader that is gone is not written again when the interpreter ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@contextmanager
def terminable() -> Generator[threading.Event]:
    """While the block lasts, SIGTERM ends it as Ctrl-C does; the event tells which of the two it was.

    Only in the main thread, which alone may handle signals.
    """
    told = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        told.set()
        interrupt = signal.getsignal(signal.SIGINT)  # that of the event loop while one runs
        if callable(interrupt):
            interrupt(signal.SIGINT, frame)
        else:  # ignored, as in the background of a shell
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield told
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield told
    finally:
        signal.signal(signal.SIGTERM, before)
