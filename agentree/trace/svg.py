"""A trace as a picture for a page: tree and figures as SVG, with no fonts or scripts from elsewhere."""

import io
import re
from collections.abc import Iterable

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from agentree.events import Event
from agentree.trace.console import ROWS
from agentree.trace.line import put
from agentree.trace.render import Drawing
from agentree.trace.state import Picture

_GREY, _RED, _GREEN, _YELLOW = (40, 46, 58), (229, 83, 75), (87, 171, 90), (218, 165, 55)
_BLUE, _MAGENTA, _CYAN, _WHITE = (83, 155, 245), (189, 118, 219), (57, 197, 187), (208, 214, 224)
_THEME = TerminalTheme((17, 21, 28), _WHITE, [_GREY, _RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN, _WHITE])
_FORMAT = """\
<svg class="agentree" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; white-space: pre; }}
{styles}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#11151c"/>
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
_NOISE = re.compile(r' clip-path="[^"]*"|<text[^>]*>\s*</text>')
"""Ids that rich makes of the text, and what is blank."""
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to say (section 2.2)."""


def svg(events: Iterable[Event], *, width: int = 100, rows: int = ROWS) -> str:
    """The picture after these events, as a console of `width` cells shows it, the tree in so many rows."""
    picture = Picture()
    picture.feed(events)
    console = Console(
        file=io.StringIO(),
        width=width,
        record=True,
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
        legacy_windows=False,
        _environ={},
    )
    drawing = Drawing(picture, width - 1, now=picture.now)
    put(console, [line.cut(width) for line in (*drawing.head.lines(losses=3), *drawing.tree(rows))])
    text = console.export_svg(title="", theme=_THEME, code_format=_FORMAT, unique_id="trace")
    # Where a page's font is wider or narrower than the cells, its characters are stretched, not set apart.
    text = _NOISE.sub("", text.replace("&#160;", "\N{NO-BREAK SPACE}")).replace(
        " textLength", ' lengthAdjust="spacingAndGlyphs" textLength'
    )
    return _ILLEGAL.sub("\ufffd", text)
