"""The live view in a terminal, and what it leaves behind when it ends."""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agentree.events import Event, now
from agentree.trace.above import Above
from agentree.trace.glyphs import ASCII, COLOURED, PLAIN, Glyphs, clip
from agentree.trace.render import Drawing
from agentree.trace.state import Picture
from agentree.trace.summary import facts

ROWS = 60
"""Rows of the tree that stay on the screen afterwards."""
_OUTPUT_LINES = 3
"""Lines of a run's output in the summary."""


def glyphs_for(console: Console) -> Glyphs:
    """Characters that the terminal can show and that tell the four kinds of tokens apart."""
    if not console.encoding.lower().startswith("utf"):
        return ASCII
    return PLAIN if console.no_color or console.color_system is None else COLOURED


class ConsoleView:
    """Draws a picture while events come; closing it leaves the tree and a summary."""

    def __init__(
        self,
        console: Console | None = None,
        *,
        clock: Callable[[], float] = now,
        output: bool | None = None,
        footer: Callable[[int], Sequence[Text]] = lambda width: (),
    ) -> None:
        """Nothing is drawn yet.

        Args:
            console: Where to draw; None: on stderr.
            clock: Tells the present by the clock of the events, in seconds.
            output: Whether the summary has the runs' outputs; None: where they don't go to the same terminal.
            footer: Lines below the view, by its width in cells.
        """
        self.picture = Picture()
        self._waiting: list[Event] = []
        self._clock = clock
        self._output = output
        self._footer = footer
        self._console = console or Console(stderr=True, highlight=False)
        self._glyphs = glyphs_for(self._console)
        self._lock = threading.RLock()
        self._printing: tuple[TextIO, TextIO] | None = None
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    def feed(self, batch: Sequence[Event]) -> None:
        """Take events; they are folded in when it is drawn."""
        self._waiting += batch

    def show_again(self, events: Sequence[Event]) -> None:
        """Forget what was fed, and fold these events in instead."""
        self.picture = Picture()
        self._waiting = list(events)

    def tick(self) -> None:
        """Draw the present state."""
        self._fold()
        drawing = self._drawing()
        footer = self._footer(drawing.width)
        lines = [*drawing.live(self._console.height - 2 - len(footer)), *footer]
        # The cursor rests on an empty line, where the ^C that a terminal echoes can't wrap.
        view = Group(*map(_cropped, lines), Text())
        with self._lock:
            if not self._live.is_started:
                self._live.start()
                self._redirect()
            self._live.update(view, refresh=True)

    def close(self) -> None:
        """Take the live view down; print the tree and the summary."""
        self._restore()
        self._live.stop()
        self._fold()
        if not self.picture.runs:
            return
        drawing = Drawing(self.picture, self._console.width - 1, now=self.picture.now, glyphs=self._glyphs)
        for line in drawing.head.lines()[:1] + drawing.tree(ROWS):
            self._console.print(line, soft_wrap=True)
        self._console.print()
        output = not sys.stdout.isatty() if self._output is None else self._output
        for part in summary(self.picture, output=output, width=self._console.width - 1):
            self._console.print(part)

    def _fold(self) -> None:
        events, self._waiting = self._waiting, []
        self.picture.feed(events)

    def _redirect(self) -> None:
        """What the program prints itself appears above the view, if it goes to this terminal too."""
        self._printing = (sys.stdout, sys.stderr)
        if sys.stdout.isatty():
            sys.stdout = Above(self._console, sys.stdout, self._lock)
        if sys.stderr.isatty():
            sys.stderr = Above(self._console, sys.stderr, self._lock)

    def _restore(self) -> None:
        if self._printing is None:
            return
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, Above):
                stream.finish()
        sys.stdout, sys.stderr = self._printing

    def _drawing(self) -> Drawing:
        return Drawing(self.picture, self._console.width - 1, now=self._clock(), glyphs=self._glyphs)


def summary(picture: Picture, *, output: bool, width: int) -> list[Table | Text]:
    """What remains to be said of a picture; `output` to say the runs' outputs too, in a few lines each."""
    table = Table.grid(padding=(0, 2, 0, 0))
    outputs: list[Text] = []
    for name, figure, remark in facts(picture, output=output):
        if name == "output":
            outputs.append(Text(f"{name}  ", "dim").append(clip(figure, _OUTPUT_LINES * width - 10), "bold"))
        else:
            table.add_row(Text(name, "dim"), Text(figure, "bold"), Text(remark, "dim"))
    return [table, *outputs]


def _cropped(line: Text) -> Text:
    line.no_wrap, line.overflow = True, "crop"
    return line
