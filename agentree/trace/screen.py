"""Lines at the bottom of a terminal, drawn again in place: what has changed is written, nothing else."""

import threading
from collections.abc import Sequence

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType, Segment, Segments
from rich.text import Text

from agentree.trace.line import Line

_UP, _ERASE = ControlType.CURSOR_UP, ControlType.ERASE_IN_LINE
_START = ControlType.CARRIAGE_RETURN
_TO_THE_END, _WHOLE = 0, 2


class Screen:
    """Lines that stay below what is printed. Safe from any thread.

    The cursor rests on an empty line below them, where the ^C that a terminal echoes can't wrap. Where the
    console is no terminal, or one that can't move its cursor, nothing is drawn.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.RLock()
        self._shown: list[Line] = []
        self._width = 0
        self._able = console.is_terminal and not console.is_dumb_terminal
        self._hidden = False

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines instead of those before, cut to the size of the terminal."""
        if not self._able:
            return
        with self._lock:
            width, height = self._console.size
            self._replace(list(lines)[: max(height - 1, 0)], width)

    def above(self, text: Text) -> None:
        """Print text above the lines; the terminal wraps what is too long."""
        with self._lock, self._console:
            lines = self._shown
            self._replace([], self._width)
            self._console.print(text, soft_wrap=True)
            if self._hidden:
                self._replace(lines, self._width)

    def close(self) -> None:
        """Take the lines away and give the cursor back."""
        with self._lock:
            if self._hidden:
                self._replace([], self._width)
                self._console.show_cursor()
                self._hidden = False

    def _replace(self, lines: list[Line], width: int) -> None:
        before, same = self._shown, width == self._width
        self._shown, self._width = lines, width
        out: list[Segment] = []
        if lines and not self._hidden:
            self._hidden = True
            out += [Control(ControlType.HIDE_CURSOR).segment]
        out += [Control(_START, (_ERASE, _WHOLE)).segment]
        if before:
            out += [Control((_UP, len(before))).segment]
        for i, line in enumerate(lines):
            if i >= len(before) or not same or before[i] != line:
                # Not up to the last cell: there a terminal may wrap, or erase what was just written.
                out += [*line.cut(width - 1).segments(), Control((_ERASE, _TO_THE_END)).segment]
            out += [Segment.line()]
        for _ in before[len(lines) :]:
            out += [Control((_ERASE, _WHOLE)).segment, Segment.line()]
        if len(before) > len(lines):
            out += [Control((_UP, len(before) - len(lines))).segment]
        self._console.print(Segments(out), end="", crop=False)
