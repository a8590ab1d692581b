"""Which sinks a command's events go to, and what is said when one of them fails."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

from agentree.cli.report import WrongUse, reason, say
from agentree.events import Bus
from agentree.trace import JSONLWriter, LineView, Sink, Watch


def view() -> Sink:
    """What suits stderr: the live console in a terminal, plain lines elsewhere."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from agentree.trace.console import ConsoleView

        return ConsoleView()
    return LineView(sys.stderr, output=not sys.stdout.isatty())


def open_trace(path: str) -> JSONLWriter:
    """A trace file to write. Raises WrongUse where it can't be opened."""
    try:
        return JSONLWriter(path)
    except OSError as error:
        raise WrongUse(f"can't write the trace: {reason(error)}") from error


@contextmanager
def watching(bus: Bus, sinks: list[Sink]) -> Generator[Watch]:
    """Deliver the bus's events to the sinks while the block runs; afterwards say which of them failed."""
    watch = Watch(bus, sinks)
    try:
        with watch:
            yield watch
    finally:
        for sink, error in watch.failures:
            what = (
                f"trace file {str(sink.path)!r}" if isinstance(sink, JSONLWriter) else "trace on the screen"
            )
            say(f"error: the {what} is incomplete: {reason(error)}")
