"""Plans as drawings: nothing overlaps, arrows begin and end at their boxes, and any name is text."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentree.cli.load import load_file
from agentree.graph import Ctx, Graph, Limits, Program
from agentree.graph.layout import GAP, Layout, Way, lay_out
from agentree.messages import Message, user
from agentree.tools import ToolCalls, tool

EXAMPLES = Path(__file__).parent.parent / "examples" / "agents"
SPACE = "{http://www.w3.org/2000/svg}"
SLACK = 1e-6

Rectangle = tuple[float, float, float, float]


def rectangle(x: float, top: float, width: float, height: float) -> Rectangle:
    return x - width / 2, top, x + width / 2, top + height


def apart(a: Rectangle, b: Rectangle) -> bool:
    return a[2] <= b[0] + SLACK or b[2] <= a[0] + SLACK or a[3] <= b[1] + SLACK or b[3] <= a[1] + SLACK


def on_edge(point: tuple[float, float], box: Rectangle) -> bool:
    x, y = point
    inside = box[0] - SLACK <= x <= box[2] + SLACK and box[1] - SLACK <= y <= box[3] + SLACK
    return inside and (min(abs(y - box[1]), abs(y - box[3]), abs(x - box[0]), abs(x - box[2])) < SLACK)


@st.composite
def drawings(draw: st.DrawFn) -> tuple[dict[str, tuple[float, float]], list[Way]]:
    n = draw(st.integers(1, 8))
    size = st.tuples(st.floats(10, 400), st.floats(10, 120))
    boxes = {f"n{i}": draw(size) for i in range(n)}
    ends = st.integers(0, n - 1)
    pairs = draw(st.lists(st.tuples(ends, ends), max_size=14))
    label = st.sampled_from([(0.0, 0.0), (30.0, 16.0), (200.0, 16.0)])
    return boxes, [Way(f"n{a}", f"n{b}", *draw(label)) for a, b in pairs]


@settings(deadline=None)
@given(drawings())
def test_nothing_overlaps(drawing: tuple[dict[str, tuple[float, float]], list[Way]]) -> None:
    boxes, ways = drawing
    layout: Layout = lay_out(boxes, ways)
    places = {name: rectangle(*layout.boxes[name], *size) for name, size in boxes.items()}
    labels = [
        rectangle(x, y - way.height / 2, way.width, way.height)
        for way, (x, y) in zip(ways, layout.labels, strict=True)
        if way.width
    ]
    drawn = [*places.values(), *labels]
    for i, one in enumerate(drawn):
        assert one[0] >= -SLACK
        assert one[1] >= -SLACK
        assert one[2] <= layout.width + SLACK
        assert one[3] <= layout.height + SLACK
        assert all(apart(one, other) for other in drawn[i + 1 :])
    assert len(layout.ways) == len(ways)
    for way, points in zip(ways, layout.ways, strict=True):
        assert on_edge(points[0], places[way.source])
        assert on_edge(points[-1], places[way.target])
        if way.source == way.target:  # a loop stands right beside its box
            (left, top), (right, bottom) = points[0], points[2]
            others = [box for name, box in places.items() if name != way.source]
            assert all(apart((left, top, right, bottom), box) for box in others)
        # Straight stretches pass beside every box that is not one of the arrow's own.
        for (x, top), (_, bottom) in zip(points[1:-1:2], points[2:-1:2], strict=False):
            for name, box in places.items():
                if name not in (way.source, way.target) and way.source != way.target:
                    assert not (box[0] < x < box[2] and top < box[3] and box[1] < bottom)
    assert lay_out(boxes, ways) == layout


def test_a_chain_is_a_straight_column() -> None:
    layout = lay_out({"a": (100, 20), "b": (40, 20), "c": (80, 20)}, [Way("a", "b"), Way("b", "c")])
    assert {round(x) for x, _ in layout.boxes.values()} == {50}
    tops = [y for _, y in layout.boxes.values()]
    assert tops == sorted(tops)
    assert all(len({round(x) for x, _ in points}) == 1 for points in layout.ways)


def test_branches_stand_side_by_side_below_their_source() -> None:
    layout = lay_out(
        {"a": (60, 20), "b": (60, 20), "c": (60, 20), "d": (60, 20)},
        [Way("a", "b"), Way("a", "c"), Way("b", "d"), Way("c", "d")],
    )
    (a, b, c, d) = layout.boxes.values()
    assert b[1] == c[1]
    assert c[0] - b[0] == pytest.approx(60 + GAP)
    assert a[0] == pytest.approx((b[0] + c[0]) / 2)
    assert d[0] == pytest.approx(a[0])


def texts(document: str) -> list[str]:
    root = ElementTree.fromstring(document)
    return ["".join(element.itertext()) for element in root.iter(f"{SPACE}text")]


def paths(document: str) -> int:
    root = ElementTree.fromstring(document)
    return len([e for e in root.iter(f"{SPACE}path") if "way" in e.get("class", "")])


def one_step(name: str, doc: str) -> Program[None, str, str]:
    g = Graph("g", input=str, output=str)

    async def run(ctx: Ctx, x: str) -> str:
        return x

    run.__name__, run.__doc__ = name, doc
    node = g.step(run)
    g.edge(g.start, node)
    g.edge(node, g.end)
    return g.compile()


@settings(deadline=None)
@given(st.text(min_size=1, max_size=40), st.text(max_size=200))
def test_any_name_is_text(name: str, doc: str) -> None:
    if name in ("start", "end"):
        return
    drawn = texts(one_step(name, doc).svg())
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
    assert shown in drawn
    assert all(c.isprintable() for text in drawn for c in text)


def test_markup_in_a_name_is_no_markup() -> None:
    document = one_step('</text><script>alert("&")</script>', "<b>bold</b> & more").svg()
    assert '</text><script>alert("&")</script>' in texts(document)
    assert "<b>bold</b> & more" in texts(document)
    assert "<script" not in document


@tool
def look(word: str) -> str:
    """Look a word up."""
    return word


def looping() -> Program[Any, Any, Any]:
    g: Any = Graph("loop", input=str, output=str)

    @g.llm(str, tools=[look])
    def think(ctx: Ctx, x: Any) -> Message:
        return user(str(x))

    act = g.tools(look)
    g.edge(g.start, think)
    g.branch(think).case(ToolCalls, act).case(str, g.end)
    g.edge(act, think, max_visits=3)
    return g.compile(limits=Limits())


def test_ways_are_labelled_and_loops_are_drawn() -> None:
    program = looping()
    document = program.svg()
    drawn = texts(document)
    assert {"ToolCalls", "str", "(at most 3x)", "loop: str -> str"} <= set(drawn)
    assert paths(document) == 4
    assert document.count("marker-end") == 4


@pytest.mark.parametrize(
    "name", [path.stem for path in sorted(EXAMPLES.glob("*.py")) if path.stem != "extract"]
)
def test_each_example_is_drawn_whole(name: str) -> None:
    program = load_file(EXAMPLES / f"{name}.py").agent
    document = program.svg()
    drawn = texts(document)
    assert set(program._definition.nodes) <= set(drawn)
    # Every note of the plan is there, wrapped; words are not cut.
    said = " ".join(drawn).split()
    for line in program.explain().splitlines()[1:]:
        if "[" not in line and "(again)" not in line:
            assert set(re.sub(r"[│├└─]", "", line).replace("each:", "").split()) <= {*said, "otherwise:"}
    root = ElementTree.fromstring(document)
    assert float(root.get("width", "0")) < 1000
    assert "http" not in document.replace('xmlns="http://www.w3.org/2000/svg"', "")
