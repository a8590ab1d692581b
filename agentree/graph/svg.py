"""A program's plan as a drawing: SVG with boxes for nodes, and the plan's operations written in them."""

import textwrap
import unicodedata
from collections.abc import Sequence
from html import escape

from agentree.graph.layout import Layout, Point, Way, lay_out
from agentree.graph.nodes import Definition, MapWay
from agentree.graph.outline import Notes, ways

MARGIN = 24.0
PAD = 10.0
LINE = 16.0
"""Height of a line of text, in pixels, as all lengths here."""
CELL = 7.3
"""Width of a character at 12 pixels in fonts of one width: a little more than the widest usual one."""
COLUMNS = 56
"""Longest line in a box, in characters."""
STYLE = """
text { font: 12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2430; }
.name { font-weight: 600; } .kind, .note { fill: #5b6472; } .label { fill: #5b6472; font-style: italic; }
.box { stroke: #8a93a3; stroke-width: 1; fill: #ffffff; }
.llm, .sample { fill: #e8f0fe; } .tools { fill: #fff3dd; } .join { fill: #e9f7ec; } .call { fill: #f3ebfb; }
.start, .end { fill: #eceff3; }
.way { fill: none; stroke: #5b6472; stroke-width: 1.3; } .each { stroke-width: 3; }
.paper { fill: #ffffff; } .arrow { fill: #5b6472; }
"""


def svg(definition: Definition, title: str, notes: Notes) -> str:
    """An SVG document that needs nothing else: no script, no font, no other file."""
    texts = {name: _lines(definition, name, notes) for name in definition.nodes}
    sizes = {name: _size(lines) for name, lines in texts.items()}
    arrows: list[tuple[Way, str, bool]] = []
    for name, route in definition.routes.items():
        for label, to in ways(route):
            said = _plain(label.strip().rstrip(":"))
            width, height = (_width(said) + 2 * PAD, LINE) if said else (0.0, 0.0)
            arrows.append((Way(name, to.name, width, height), said, isinstance(route, MapWay)))
    order = dict.fromkeys([definition.start.name, *definition.nodes])
    layout = lay_out({name: sizes[name] for name in order}, [way for way, _, _ in arrows])
    return _document(definition, _plain(title), layout, sizes, texts, arrows)


def _lines(definition: Definition, name: str, notes: Notes) -> list[str]:
    """The name, and below it what the plan says."""
    wrapped = [
        line
        for note in notes(name)
        for line in textwrap.wrap(_plain(note), COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
    ]
    return [_plain(name), *wrapped]


def _size(lines: Sequence[str]) -> Point:
    kind = 10 * CELL  # room for the kind, beside the name
    widest = max(_width(lines[0]) + kind, *(_width(line) for line in lines))
    return widest + 2 * PAD, len(lines) * LINE + 2 * PAD


def _width(text: str) -> float:
    return CELL * sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _document(
    definition: Definition,
    title: str,
    layout: Layout,
    sizes: dict[str, Point],
    texts: dict[str, list[str]],
    arrows: Sequence[tuple[Way, str, bool]],
) -> str:
    head = LINE + PAD
    width = max(layout.width, _width(title)) + 2 * MARGIN
    height = layout.height + 2 * MARGIN + head
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto" markerUnits="userSpaceOnUse"><path class="arrow" d="M0 0L8 4L0 8z"/></marker></defs>',
        f'<rect class="paper" width="{width:.0f}" height="{height:.0f}"/>',
        _text(MARGIN, MARGIN + LINE * 0.75, title, "name"),
        f'<g transform="translate({MARGIN:.0f} {MARGIN + head:.0f})">',
    ]
    for (_, _, each), points in zip(arrows, layout.ways, strict=True):
        kind = "way each" if each else "way"
        parts.append(f'<path class="{kind}" marker-end="url(#tip)" d="{_path(points)}"/>')
    for name, (x, top) in layout.boxes.items():
        box_width, box_height = sizes[name]
        left, kind = x - box_width / 2, definition.nodes[name].kind
        parts.append(
            f'<rect class="box {kind}" x="{left:.1f}" y="{top:.1f}" width="{box_width:.1f}" '
            f'height="{box_height:.1f}" rx="{14 if kind in ("start", "end") else 4}"/>'
        )
        shown = "" if kind in ("start", "end") else kind
        baseline = top + PAD + LINE * 0.75
        parts.append(_text(x + box_width / 2 - PAD, baseline, shown, "kind", anchor="end"))
        for i, line in enumerate(texts[name]):
            parts.append(_text(left + PAD, baseline + i * LINE, line, "note" if i else "name"))
    for (way, said, _), (x, y) in zip(arrows, layout.labels, strict=True):
        if said:
            parts.append(
                f'<rect class="paper" x="{x - way.width / 2:.1f}" y="{y - LINE / 2:.1f}" '
                f'width="{way.width:.1f}" height="{LINE:.1f}"/>'
            )
            parts.append(_text(x, y + LINE * 0.25, said, "label", anchor="middle"))
    return "\n".join([part for part in parts if part] + ["</g>", "</svg>"]) + "\n"


def _path(points: Sequence[Point]) -> str:
    """Curves that leave and arrive upright, with straight stretches between them."""
    x, y = points[0]
    made = [f"M{x:.1f} {y:.1f}"]
    for i, (to_x, to_y) in enumerate(points[1:]):
        if i % 2 or x == to_x or y == to_y:
            made.append(f"L{to_x:.1f} {to_y:.1f}")
        else:
            middle = (y + to_y) / 2
            made.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return "".join(made)


def _text(x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> str:
    if not text:
        return ""
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" xml:space="preserve">'
        f"{escape(text)}</text>"
    )


def _plain(text: str) -> str:
    """What XML can hold on one line: other characters as escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
