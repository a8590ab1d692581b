"""The live view in a terminal, and what it leaves behind when it ends."""

import sys
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console

from agentree.events import Event, now
from agentree.trace.above import Above
from agentree.trace.glyphs import ASCII, COLOURED, PLAIN, Glyphs, clip, wrap
from agentree.trace.line import Line, put
from agentree.trace.render import Drawing
from agentree.trace.screen import Screen
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
        footer: Callable[[int], Sequence[Line]] = lambda width: (),
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
        self._printing: tuple[TextIO, TextIO] | None = None
        self._screen = Screen(self._console)

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
        if self._printing is None:
            self._redirect()
        self._screen.draw([*drawing.live(self._console.height - 2 - len(footer)), *footer])

    def close(self) -> None:
        """Take the live view down; print the tree and the summary."""
        self._restore()
        self._screen.close()
        self._fold()
        if not self.picture.runs:
            return
        drawing = Drawing(self.picture, self._console.width - 1, now=self.picture.now, glyphs=self._glyphs)
        output = not sys.stdout.isatty() if self._output is None else self._output
        said = summary(self.picture, output=output, width=drawing.width, glyphs=self._glyphs)
        put(self._console, [*drawing.head.lines()[:1], *drawing.tree(ROWS), Line(), *said])

    def _fold(self) -> None:
        events, self._waiting = self._waiting, []
        self.picture.feed(events)

    def _redirect(self) -> None:
        """What the program prints itself appears above the view, if it goes to this terminal too."""
        self._printing = (sys.stdout, sys.stderr)
        if sys.stdout.isatty():
            sys.stdout = Above(self._screen, sys.stdout)
        if sys.stderr.isatty():
            sys.stderr = Above(self._screen, sys.stderr)

    def _restore(self) -> None:
        if self._printing is None:
            return
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, Above):
                stream.finish()
        sys.stdout, sys.stderr = self._printing

    def _drawing(self) -> Drawing:
        return Drawing(self.picture, self._console.width - 1, now=self._clock(), glyphs=self._glyphs)


def summary(picture: Picture, *, output: bool, width: int, glyphs: Glyphs) -> list[Line]:
    """What remains to be said of a picture; `output` to say the runs' outputs too, in a few lines each."""
    said = facts(picture, output=output)
    rows = [fact for fact in said if fact[0] != "output"]
    first = max((len(name) for name, _, _ in rows), default=0) + 2
    second = min(max((cell_len(figure) for _, figure, _ in rows), default=0), (width - first) // 2) + 2
    lines: list[Line] = []
    for name, figure, remark in rows:
        columns = zip_longest(wrap(figure, second - 2), wrap(remark, width - first - second), fillvalue="")
        for number, (left, right) in enumerate(columns):
            line = Line(name if number == 0 else "", "dim").pad(first).append(left, "bold")
            lines.append(line.pad(first + second).append(right, "dim") if right else line)
    outputs = (
        clip(figure, _OUTPUT_LINES * width - 10, glyphs) for name, figure, _ in said if name == "output"
    )
    return [*lines, *(Line("output  ", "dim").append(output, "bold") for output in outputs)]
