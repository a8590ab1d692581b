"""Which sinks a command's events go to, and what is said when one of them fails."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO, cast

from agentree.cli.files import TraceFile
from agentree.cli.report import reason, say
from agentree.cli.streams import is_terminal
from agentree.events import Bus
from agentree.trace import LineView, Sink, Watch


def view() -> Sink | None:
    """What suits stderr: the live console in a terminal, plain lines elsewhere, nothing if it is closed."""
    stream = cast("TextIO | None", sys.stderr)
    if stream is None:
        return None
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        from agentree.trace.console import ConsoleView

        return ConsoleView()
    return LineView(stream, output=not is_terminal(sys.stdout))


@contextmanager
def watching(bus: Bus, sinks: list[Sink]) -> Generator[Watch]:
    """Deliver the bus's events to the sinks while the block runs; afterwards say which of them failed."""
    watch = Watch(bus, sinks)
    try:
        with watch:
            yield watch
    finally:
        for sink, error in watch.failures:
            what = f"trace file {str(sink.path)!r}" if isinstance(sink, TraceFile) else "trace on the screen"
            say(f"error: the {what} is incomplete: {reason(error)}")
