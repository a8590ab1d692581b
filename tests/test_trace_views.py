"""What people see: the live console, the plain lines, and the summaries."""

import io
import itertools
import re
import sys
import threading
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from trace_events import dated, forked_run, generation, pool, react_run

from agentree import events as ev
from agentree.trace import LineView, Picture, Watch
from agentree.trace.console import ConsoleView, glyphs_for
from agentree.trace.explanation import explain
from agentree.trace.glyphs import ASCII, COLOURED, KINDS, PLAIN, Glyphs, bar, clip
from agentree.trace.line import Line, put
from agentree.trace.render import Drawing
from agentree.trace.text import count, duration, escape, one_line, percent
from agentree.trace.tree import Tokens

HOSTILE = "[red]a[/red] \x1b[31m\x1b]0;t\x07\r\b\u202e\u2028\ud800 end"
SHOWN = r"[red]a[/red] \x1b[31m\x1b]0;t\x07\r\x08\u202e\u2028\ud800 end"
ANY_TEXT = st.text(st.characters(exclude_categories=()))


def picture_of(events: list[ev.Event]) -> Picture:
    picture = Picture()
    picture.feed(events)
    return picture


def plain(lines: list[Line]) -> str:
    return "\n".join(line.plain for line in lines)


def terminal(width: int, *, height: int = 30, colour: bool = True) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        height=height,
        force_terminal=True,
        highlight=False,
        color_system="truecolor" if colour else None,
        _environ={"TERM": "xterm-256color"},
    )
    return console, out


def hostile_run() -> list[ev.Event]:
    """Every text of every event is hostile."""
    run, path = "r", f"node{HOSTILE}"
    return dated(
        [
            ev.ModelReady(model=HOSTILE, device=HOSTILE, weights=HOSTILE, pool=100, seconds=1),
            ev.RunStarted(run=run, program=HOSTILE, input=HOSTILE),
            ev.NodeStarted(run=run, path=path, node=HOSTILE, kind="llm"),
            *generation(run, path, 1, 5, 5, 5, 5, HOSTILE, miss=HOSTILE),
            ev.ToolStarted(run=run, path=path, call="1", tool=HOSTILE, arguments=HOSTILE),
            ev.ToolEnded(run=run, path=path, call="1", tool=HOSTILE, content=HOSTILE, error=True, seconds=1),
            ev.LeaseRevoked(run=run, path=path, owner=HOSTILE, tokens=4),
            ev.Evicted(run=run, path=path, tokens=4),
            ev.Preempted(run=run, path=path, request=1, tokens=4),
            ev.NodeEnded(run=run, path=path, node=HOSTILE, error=HOSTILE),
            ev.RunEnded(run=run, error=HOSTILE, status="failed"),
            ev.ModelLoading(model=HOSTILE, stage="fetch", done=1, total=3),
        ]
    )


# -------------------------------------------------------------------------------------- text


def test_escape() -> None:
    assert escape(HOSTILE) == SHOWN
    assert escape("a\nb", keep="\n") == "a\nb"
    assert escape("👩‍👩‍👧 naïve 日本") == "👩‍👩‍👧 naïve 日本"


@given(ANY_TEXT)
def test_escaped_text_is_printable_and_encodable(text: str) -> None:
    shown = escape(text)
    shown.encode()
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", shown)


@given(ANY_TEXT, st.integers(1, 30))
def test_one_line_says_when_it_cuts(text: str, limit: int) -> None:
    shown = one_line(text, limit)
    assert len(shown) <= limit
    assert shown == escape(text) or shown.endswith("…")


@given(ANY_TEXT, st.integers(0, 40), st.sampled_from([ASCII, COLOURED]))
def test_clip_fits(text: str, width: int, glyphs: Glyphs) -> None:
    shown = clip(text, width, glyphs)
    assert cell_len(shown) <= width
    assert shown == escape(text) or shown.endswith(("…", "~")) or not width


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [(0, 0, "-"), (0, 9, "0 %"), (1, 1000, "<1 %"), (999, 1000, ">99 %"), (1, 1, "100 %")],
)
def test_percent_is_exact_at_its_ends(part: int, whole: int, shown: str) -> None:
    assert percent(part, whole) == shown


def test_figures() -> None:
    assert [count(n) for n in (0, 1234, 99_999, 123_456, 2_345_678)] == [
        "0",
        "1,234",
        "99,999",
        "123.5k",
        "2.35M",
    ]
    spans = [duration(s) for s in (0, 0.0001, 0.0123, 0.9996, 4.25, 59.96, 65, 3725)]
    assert spans == ["0 ms", "<1 ms", "12 ms", "1.0 s", "4.2 s", "1:00 min", "1:05 min", "1:02:05 h"]


# ------------------------------------------------------------------------------- the drawing

TOKENS = st.builds(Tokens, *[st.integers(0, 5000)] * 4)


@given(TOKENS, st.integers(4, 80), st.integers(0, 5000))
def test_bar_is_to_scale_and_shows_every_kind(tokens: Tokens, width: int, more: int) -> None:
    text = bar(tokens, tokens.total + more, width, PLAIN).plain
    assert len(text) <= width
    parts = (tokens.cached, tokens.computed, tokens.forced, tokens.sampled)
    assert text == "".join(sorted(text, key=PLAIN.bars.index))
    for part, glyph in zip(parts, PLAIN.bars, strict=True):
        assert bool(part) == (glyph in text)


@pytest.mark.parametrize("width", [40, 79, 119, 200])
@pytest.mark.parametrize("glyphs", [COLOURED, PLAIN, ASCII])
def test_every_moment_fits_the_screen(width: int, glyphs: Glyphs) -> None:
    events = react_run() + forked_run(width=9) + hostile_run()
    for end in range(0, len(events), 3):
        lines = Drawing(picture_of(events[:end]), width, now=1002.0, glyphs=glyphs).live(24)
        assert len(lines) <= 24
        assert all(cell_len(line.plain) <= width for line in lines), plain(lines)
        assert all(escape(line.plain) == line.plain for line in lines)
        if glyphs is ASCII:
            assert plain(lines).isascii()


def test_tree_shows_tokens_and_calls() -> None:
    shown = plain(Drawing(picture_of(react_run()), 79, now=1003.0).live(30))
    assert re.search(r"think +▇+ +312 +24 +9\n", shown)
    assert re.search(r"think#2 +▇+ +344 +21 +22 +8", shown)
    assert 'calculator {"expression": "17*23"} → 391  <1 ms' in shown
    assert "hit rate  51 %" in shown
    assert "7 % ▇" in shown
    assert "smollm2-135m-instruct · cpu · fp16" in shown


def test_running_text_is_shown_as_it_comes() -> None:
    events = react_run()
    cut = next(i for i, event in enumerate(events) if isinstance(event, ev.TextGenerated)) + 3
    shown = plain(Drawing(picture_of(events[:cut]), 79, now=1003.0).live(30))
    assert '\n\nthink │ {"name": "calcu'[:24] in shown
    started = plain(Drawing(picture_of(events[: cut - 3]), 79, now=1003.0).live(30))
    assert "reading the prompt: 312 tokens" in started


def test_loading_bar() -> None:
    shown = plain(Drawing(picture_of(react_run()[:2]), 79, now=1000.1).live(30))
    assert re.search(r"loading smollm2-135m-instruct  ▇+▁+  90 of 272 tensors", shown)


def test_rows_without_room_share_one() -> None:
    drawing = Drawing(picture_of(forked_run(width=30)), 79, now=1003.0)
    shown = plain(drawing.live(20))
    rest = re.search(r"└─ … (\d+) more, done +([\d,]+)", shown)
    assert rest
    branches = re.findall(r"[├└]─ . \[\d+\] ", shown)
    assert len(branches) + int(rest[1]) == 30
    assert int(rest[2].replace(",", "")) == 227 * int(rest[1])


def test_colours_are_those_of_the_header() -> None:
    console, out = terminal(100)
    put(console, Drawing(picture_of(react_run()), 99, now=1003.0).tree(20))
    codes = {"blue": "34", "yellow": "33", "cyan": "36", "magenta": "35"}
    for kind, colour in KINDS:
        assert f"\x1b[{codes[colour]}m" in out.getvalue(), kind


def test_nothing_hostile_reaches_the_terminal() -> None:
    console, out = terminal(100, colour=False)
    view = ConsoleView(console)
    for event in hostile_run():
        view.feed([event])
        view.tick()
    view.close()
    shown = out.getvalue()
    assert "[red]a[/red]" in shown
    assert r"\x1b[31m" in shown
    assert "\x1b[31m" not in shown
    assert not {"\x07", "\b", "\u202e", "\u2028", "\ud800"} & set(shown)


def test_glyphs_follow_the_terminal() -> None:
    assert glyphs_for(terminal(80)[0]) is COLOURED
    assert glyphs_for(terminal(80, colour=False)[0]) is PLAIN
    latin = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    assert glyphs_for(Console(file=latin, force_terminal=True)) is ASCII


def test_console_leaves_tree_and_summary() -> None:
    console, out = terminal(100, colour=False)
    view = ConsoleView(console)
    view.feed(react_run())
    view.close()
    shown = out.getvalue()
    for part in (
        "think#2",
        "hit rate",
        "344 of 677 prompt tokens",
        "46",
        "17",
        "tool calls",
        "none failed",
        "391",
    ):
        assert part in shown
    assert re.search(r"miss +think  never seen", shown)


def test_console_with_no_events_says_nothing() -> None:
    console, out = terminal(80)
    ConsoleView(console).close()
    assert not re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", out.getvalue()).strip()


class FakeTerminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_own_prints_stand_above_the_view_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    console, out = terminal(60, colour=False)
    real = FakeTerminal()
    monkeypatch.setattr(sys, "stdout", real)
    view = ConsoleView(console)
    view.feed(react_run())
    view.tick()
    print("[red]mine[/red]", end=" ")
    print("and\x1b[2J more\nlast", end="", flush=True)
    view.tick()
    assert sys.stdout is not real
    view.close()
    assert sys.stdout is real
    shown = out.getvalue()
    assert "[red]mine[/red] and more\n" in shown
    assert shown.index("and more") < shown.index("last\n") < shown.rindex("hit rate")
    assert "\x1b[2J" not in shown


def test_prints_from_many_threads_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    console, out = terminal(60, colour=False)
    monkeypatch.setattr(sys, "stdout", FakeTerminal())
    view = ConsoleView(console)
    view.feed(react_run())
    view.tick()

    def say(k: int) -> None:
        for i in range(50):
            print(f"<{k}.{i}>")

    threads = [threading.Thread(target=say, args=(k,), daemon=True) for k in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        view.tick()
    view.close()
    for k in range(4):
        found = [int(i) for i in re.findall(rf"<{k}\.(\d+)>", out.getvalue())]
        assert found == list(range(50))


# --------------------------------------------------------------------------------- the lines


def lines_of(events: list[ev.Event]) -> list[str]:
    out = io.StringIO()
    view = LineView(out)
    view.feed(events)
    view.close()
    return out.getvalue().splitlines()


def test_lines_of_a_run() -> None:
    lines = lines_of(react_run())
    said = [line.split("s  ", 1)[1] for line in itertools.takewhile(bool, lines)]
    assert said[0] == "load smollm2-135m-instruct: 0 of 272 tensors"
    assert said[3] == (
        "model smollm2-135m-instruct ready, 1.9 s after its loading began: cpu, fp16, pool of 8,192 tokens"
    )
    assert said[4] == "run react: What is 17*23?"
    assert said[6] == 'act: calculator {"expression": "17*23"}'
    assert said[7] == "act: calculator -> 391 (<1 ms)"
    assert said[8].startswith(
        "think#2: prompt 365 (344 cached), output 8 sampled + 22 forced, 8 passes, 500 ms"
    )
    assert said[9] == "run react done: 391"
    assert (
        "think#2                                       1      344       21       22        8        8"
        in lines
    )
    assert "forced tokens   46  (73 % of 63 output tokens)" in lines


def test_a_limit_is_no_failure() -> None:
    limit = f"{ev.STOPPED} 8 turns are used up"
    ends = [
        ev.NodeEnded(run="r", path="act", node="act", error=limit),
        ev.NodeEnded(run="r", path="ask", node="ask", error="OSError: disk full"),
        ev.NodeEnded(run="r", path="look", node="look", error="cancelled"),
        ev.RunEnded(run="r", status="limit", error=limit),
    ]
    events = dated([ev.RunStarted(run="r", program="p", input=""), *ends])
    said = [line.split("s  ", 1)[1] for line in itertools.takewhile(bool, lines_of(events))]
    assert said[1:] == [
        f"act: {limit}",
        "ask: failed: OSError: disk full",
        "look: cancelled",
        f"run p {limit}",
    ]
    picture = Picture()
    picture.feed(events)
    status = {branch.path: branch.status for branch in picture.runs["r"].root.walk()}
    assert (status["act"], status["ask"], status["look"]) == ("limit", "failed", "cancelled")
    assert picture.runs["r"].status == "limit"
    assert f"run r, {limit}" in explain(events)


def test_lines_hold_no_controls() -> None:
    for line in lines_of(hostile_run()):
        assert escape(line) == line


def test_a_long_fetch_takes_few_lines() -> None:
    steps = [ev.ModelLoading(model="m", stage="fetch", done=i, total=1000) for i in range(1001)]
    fetch = [line for line in lines_of(dated(steps)) if "fetch" in line]
    assert len(fetch) == 5


# ------------------------------------------------------------------------------------- watch


class Recorder:
    """A sink that keeps what it gets, and fails when told to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.events: list[ev.Event] = []
        self.ticks = 0
        self.closed = False
        self.fails = fails

    def feed(self, batch: Sequence[ev.Event]) -> None:
        if self.fails:
            raise OSError("no space left")
        self.events += batch

    def tick(self) -> None:
        self.ticks += 1

    def close(self) -> None:
        self.closed = True


def test_watch_delivers_everything_in_order_and_closes() -> None:
    bus, sink = ev.Bus(), Recorder()
    with Watch(bus, [sink]):
        emitted = [bus.emit(ev.Forked(n=i, shared_tokens=0)) for i in range(5000)]
    assert sink.events == emitted
    assert sink.closed
    assert not bus.watched


def test_a_failing_sink_does_not_stop_the_others() -> None:
    bus, bad, good = ev.Bus(), Recorder(fails=True), Recorder()
    with Watch(bus, [bad, good]) as watch:
        bus.emit(pool(1))
    assert [(sink, str(error)) for sink, error in watch.failures] == [(bad, "no space left")]
    assert (len(good.events), good.closed) == (1, True)


def test_watch_draws_while_nothing_happens() -> None:
    sink = Recorder()
    with Watch(ev.Bus(), [sink]):
        deadline = time.monotonic() + 20
        while sink.ticks < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert sink.ticks >= 2


def test_watch_delivers_when_the_block_raises() -> None:
    bus, sink = ev.Bus(), Recorder()
    with pytest.raises(ValueError, match="stop"), Watch(bus, [sink]):
        bus.emit(pool(1))
        raise ValueError("stop")
    assert (len(sink.events), sink.closed) == (1, True)


def test_a_visit_that_waits_for_a_person_has_not_failed() -> None:
    events = dated(
        [
            ev.RunStarted(run="r", program="p", input=""),
            ev.NodeStarted(run="r", path="tools", node="tools", kind="tools"),
            ev.NodeEnded(run="r", path="tools", node="tools", error=f"{ev.WAITS}: tools:call_1"),
            ev.RunEnded(run="r", error=f"{ev.WAITS}: tools:call_1", status="waiting"),
        ]
    )
    out = io.StringIO()
    view = LineView(out)
    view.feed(events)
    view.close()
    assert "tools: waits for an answer: tools:call_1" in out.getvalue()
    assert "run p waits for an answer: tools:call_1" in out.getvalue()
    assert "failed" not in out.getvalue()
    root = picture_of(events).runs["r"].root
    assert {branch.path: branch.status for branch in root.walk()}["tools"] == "waiting"
