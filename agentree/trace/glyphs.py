"""What a drawing is made of: characters for three kinds of terminals, bars, and text cut to cells."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells

from agentree.trace.line import Line
from agentree.trace.text import escape
from agentree.trace.tree import Status, Tokens

KINDS = (("cached", "blue"), ("computed", "yellow"), ("forced", "cyan"), ("sampled", "magenta"))
"""The four origins of a token, in the order of a bar, with their colours."""


@dataclass(frozen=True)
class Glyphs:
    """The characters a drawing is made of."""

    bars: str
    """One character per origin of a token, in the order of `KINDS`."""
    rest: str
    branch: tuple[str, str, str, str]
    """Guides: a branch, the last branch, a passing line, nothing."""
    spinner: str
    marks: dict[Status, str]
    arrow: str
    dot: str
    more: str
    spark: str
    """Heights of a sparkline, lowest first."""


COLOURED = Glyphs(
    "▇▇▇▇",
    "▁",
    ("├─ ", "└─ ", "│  ", "   "),
    "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏",
    {"idle": "·", "done": "✓", "failed": "✗", "cancelled": "○", "waiting": "?", "limit": "!"},
    "→",
    " · ",
    "…",
    "▁▂▃▄▅▆▇█",
)
PLAIN = Glyphs(
    "█▓▒░", "·", COLOURED.branch, COLOURED.spinner, COLOURED.marks, "→", " · ", "…", COLOURED.spark
)
ASCII = Glyphs(
    "#=+-",
    ".",
    ("|- ", "`- ", "|  ", "   "),
    "|/-\\",
    {"idle": ".", "done": "v", "failed": "x", "cancelled": "o", "waiting": "?", "limit": "!"},
    "->",
    " - ",
    ":",
    "_.-=+*%#",
)


def clip(text: str, width: int, glyphs: Glyphs = COLOURED) -> str:
    """The text on one line of at most `width` terminal cells, controls escaped."""
    head = text[: max(width, 0) + 1]
    shown = escape(head)
    if len(head) == len(text) and cell_len(shown) <= width:
        return shown
    end = "~" if glyphs is ASCII else "…"
    return chop_cells(shown, max(width - 1, 1))[0] + end if width > 1 else end[:width]


def wrap(line: str, width: int) -> list[str]:
    """The line in pieces of at most `width` cells, broken between words where there is a choice."""
    parts = textwrap.wrap(line, width, replace_whitespace=False, break_on_hyphens=False)
    return [piece for part in parts for piece in chop_cells(part, width)] or [""]


def bar(tokens: Tokens, longest: int, width: int, glyphs: Glyphs) -> Line:
    """Where tokens came from, to scale: `longest` tokens fill the width. What is not zero gets a cell."""
    text = Line()
    if not longest or width <= 0:
        return text
    parts = (tokens.cached, tokens.computed, tokens.forced, tokens.sampled)
    cells = [max(round(part * width / longest), 1) if part else 0 for part in parts]
    while sum(cells) > width:
        cells[cells.index(max(cells))] -= 1
    for cell, (_, colour), glyph in zip(cells, KINDS, glyphs.bars, strict=True):
        text.append(glyph * cell, colour)
    return text


def share_bar(part: float, whole: float, width: int, colour: str, glyphs: Glyphs) -> Line:
    """A share as a bar of fixed width."""
    full = round(width * part / whole) if whole else 0
    return Line().append(glyphs.bars[0] * full, colour).append(glyphs.rest * (width - full), "dim")


def sparkline(values: Sequence[float | None], top: float, colour: str, glyphs: Glyphs) -> Line:
    """Values from 0 to `top` as a row of heights; a gap for None."""
    heights = glyphs.spark
    last = len(heights) - 1
    cells = [
        " " if value is None else heights[min(max(round(value / top * last), 0), last) if top else 0]
        for value in values
    ]
    return Line("".join(cells), colour)
