"""`agentree trace`: replays, steps, explains and draws trace files, also broken ones."""

import io
import json
import math
import os
import re
import select
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_trace_views import ANY_TEXT, hostile_run
from trace_events import forked_run, react_run

from agentree import events as ev
from agentree.cli import main
from agentree.graph import Graph, Limits, react
from agentree.messages import Message, user
from agentree.testing import ScriptedRuntime, final_answer
from agentree.tools import ToolCall, calculator
from agentree.trace import JSONLWriter, Picture, Watch, explain
from agentree.trace.replay import Player, described
from agentree.trace.svg import svg


def write(path: Path, events: Sequence[ev.Event]) -> Path:
    writer = JSONLWriter(path)
    writer.feed(events)
    writer.close()
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "t.jsonl", react_run())


# ------------------------------------------------------------------------------------ pace


@given(st.lists(st.floats(-5, 50), min_size=1, max_size=30), st.floats(0.01, 100), st.floats(0.01, 10))
def test_a_replay_gives_each_event_once_in_its_time(dates: list[float], speed: float, frame: float) -> None:
    events = [ev.Forked(seq=i, time=date, n=i, shared_tokens=0) for i, date in enumerate(dates)]
    player = Player(events, speed=speed)
    given: list[ev.Event] = []
    waited = 0.0
    for _ in range(40):
        given += player.advance(frame)
        waited += frame
        assert given == events[: player.given]
        due = [max(dates[: i + 1]) - dates[0] for i in range(len(dates))]
        for i, date in enumerate(due):
            if date < waited * speed * (1 - 1e-6):
                assert i < player.given
            if date > waited * speed * (1 + 1e-6) + 1e-6:
                assert i >= player.given
    player.speed = math.inf
    given += player.advance(frame)
    assert player.over
    assert given == events


def test_steps_go_forth_and_back_while_time_stands_still() -> None:
    events = react_run()
    player = Player(events, paused=True)
    assert player.advance(1e9) == ()
    assert [*player.next(), *player.next()] == events[:2]
    assert player.last == events[1]
    assert player.back() == events[:1]
    assert (player.at, player.given) == (events[0].time, 1)
    assert player.back() == player.back() == []
    for event in events:
        assert player.next() == [event]
    assert player.next() == ()
    assert player.over


# --------------------------------------------------------------------------------- explain


async def recorded(tmp_path: Path) -> tuple[str, str]:
    """What a run says of itself, and what its trace file says of it."""
    g = Graph("votes", input=str, output=list[int])

    @g.llm(list[str], system="You list things.")
    def plan(ctx: object, text: str) -> Message:
        return user(text)

    @g.llm(int)
    def count(ctx: object, text: str) -> Message:
        return user(f"How many letters has {text}?")

    def each(found: Sequence[int]) -> list[int]:
        return list(found)

    g.edge(g.start, plan)
    g.map(plan, count)
    g.edge(g.join(count, each), g.end)
    path = tmp_path / "run.jsonl"
    script = {"plan": [["a", "bb"]], "count": [1, 2]}
    async with ScriptedRuntime(script) as lm:
        with Watch(lm.bus, [JSONLWriter(path)]):
            async with g.compile(limits=Limits(turns=5)).stream("go", lm=lm) as run:
                async for _ in run:
                    pass
        return run.explain(), f"{run.id}|{explain(read(path))}"


def read(path: Path) -> list[ev.Event]:
    from agentree.trace import read_trace

    return list(read_trace(path))


@pytest.mark.anyio
async def test_a_trace_explains_a_run_as_the_run_does(tmp_path: Path) -> None:
    of_run, of_trace = await recorded(tmp_path)
    run_id, _, text = of_trace.partition("|")
    assert text == f"run {run_id}, done\n{of_run}"
    # Which branch generates first is the event loop's choice: trio shuffles its tasks.
    assert sorted(re.findall(r"count\[(\d)\]: prompt ", text)) == ["0", "1"]
    assert "never seen" in text


@pytest.mark.anyio
async def test_loops_are_explained_in_the_order_of_visits(tmp_path: Path) -> None:
    calls = [ToolCall("", "calculator", {"expression": f"{i}+1"}) for i in range(11)]
    path = tmp_path / "run.jsonl"
    async with ScriptedRuntime([*calls, final_answer(7)]) as lm:
        with Watch(lm.bus, [JSONLWriter(path)]):
            await react(tools=[calculator], output=int, limits=Limits(turns=20)).run("go", lm=lm)
    text = explain(read(path))
    assert re.findall(r"(\w+(?:#\d+)?): prompt", text) == ["think", *(f"think#{i}" for i in range(2, 13))]


def test_explain_of_what_has_no_plan() -> None:
    loose = [replace(event, run="") for event in react_run() if isinstance(event, ev.GenerationEnded)]
    text = explain([*react_run(), *loose])
    assert text.startswith("run r1, done\nreact\n   think: prompt 312 = 0 cached + 312 computed;")
    assert "2:transcripts\n   think: prompt 312" in text
    assert text.count("missed: never seen") == 2


# ----------------------------------------------------------------------------- the command


def test_lines_then_the_plan(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(trace)]) == 0
    out = capsys.readouterr().out
    assert "run react: What is 17*23?" in out
    assert out.index("hit rate") < out.index("run r1, done\nreact\n   think: prompt 312")


def test_explain_of_a_file_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "load.jsonl", [ev.ModelLoading(model="m", stage="load")])
    assert main(["trace", str(path), "--explain"]) == 0
    assert "the file has no run" in capsys.readouterr().out


def test_explain_only(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(trace), "--explain"]) == 0
    assert capsys.readouterr().out == f"\n{explain(react_run())}\n"


def test_stepping_through_a_pipe(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n\n\n\n\n"))
    assert main(["trace", str(trace), "--step"]) == 0
    said = capsys.readouterr().out.splitlines()
    events = react_run()
    picture = Picture()
    picture.feed(events)
    assert said[:5] == [described(event, picture) for event in events[:5]]
    assert said[4] == "#5  0.400 s  RunStarted  react  program=react  input=What is 17*23?"
    assert said[5] == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("\n\n", "line 1"),
        ("hello\nthere\n", "line 1: Expecting value"),
        ('{"a": 1}\n', "line 1: there is no event kind"),
        ("\x00\x01\xff\n", "line 1"),
        ("[" * 100_000 + "\n", "line 1"),
    ],
)
def test_a_file_without_any_event(
    text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(text.encode("latin-1"))
    assert main(["trace", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"agentree: error: there is no event in {str(path)!r}: ")
    assert why in said.err


def test_files_that_can_not_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, why in ((tmp_path / "no[red]", "No such file"), (tmp_path, "Is a directory")):
        assert main(["trace", str(path)]) == 2
        said = capsys.readouterr().err
        assert why in said
        assert str(path) in said


def test_what_is_readable_of_a_damaged_file_is_shown(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = trace.read_text().splitlines(keepends=True)
    lines[2] = '{"event": "ModelReady", "model": 3}\n'
    for i in range(10, 18):
        lines[i] = "damaged\n"
    lines[-1] = lines[-1][:-20]
    trace.write_text("".join(lines))
    assert main(["trace", str(trace)]) == 1
    said = capsys.readouterr()
    assert "run react: What is 17*23?" in said.out
    assert "run r1, not over\nreact" in said.out
    errors = said.err.splitlines()
    assert errors[0] == f"agentree: error: {str(trace)!r}, line 3: ModelReady.model can't be 3"
    assert errors[1].startswith(f"agentree: error: {str(trace)!r}, line 11: ")
    assert errors[-1] == f"agentree: error: {str(trace)!r}, 5 more lines that are no events"
    assert len(errors) == 6


def test_a_line_that_is_cut_off_is_named(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = trace.read_bytes()
    trace.write_bytes(data[:-9])
    assert main(["trace", str(trace)]) == 1
    number = data.count(b"\n")
    assert f"line {number}: it is cut off" in capsys.readouterr().err
    trace.write_bytes(data[:-1])
    assert main(["trace", str(trace)]) == 0, "an editor that drops the last line feed does no harm"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--speed", "0"],
        ["--speed", "nan"],
        ["--speed", "fast"],
        ["--at", "-1"],
        ["--at", "inf"],
        ["--width", "39"],
        ["--rows", "99999999999999"],
    ],
)
def test_numbers_that_can_not_be(
    arguments: list[str], trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["trace", str(trace), *arguments])
    assert caught.value.code == 2
    assert f"argument {arguments[0]}: {arguments[1]!r}: write a number" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--at", "--width", "--rows"])
def test_what_is_about_the_picture_needs_one(
    option: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", str(trace), option, "40"]) == 2
    said = capsys.readouterr()
    assert f"error: {option} belongs to the picture that --svg OUT writes" in said.err
    assert said.out == ""


# -------------------------------------------------------------------------------- pictures


def texts(picture: str) -> str:
    """Everything that a picture says, after it was read as XML."""
    root = xml.fromstring(picture)
    lines: dict[str, str] = {}
    for element in root.iter("{http://www.w3.org/2000/svg}text"):
        y = element.attrib["y"]
        lines[y] = lines.get(y, "") + (element.text or "")
    return "\n".join(lines.values()).replace("\xa0", " ")


def test_a_picture_of_a_trace(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t.svg"
    assert main(["trace", str(trace), "--svg", str(out), "--width", "90"]) == 0
    assert capsys.readouterr().out == ""
    picture = out.read_text()
    said = texts(picture)
    assert re.search(r"think#2 +▇+ *344 +21 +22 +8", re.sub(r"(?<=▇)(?=\d)", " ", said))
    assert "hit rate" in said
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")
    assert len(picture) < 12_000
    assert main(["trace", str(trace), "--svg", str(out), "--at", "0.35"]) == 0
    assert "think#2" not in texts(out.read_text())


def test_a_picture_that_can_not_be_written(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", str(trace), "--svg", str(tmp_path)]) == 2
    assert "can't write the picture" in capsys.readouterr().err


def test_pictures_escape_what_people_and_models_say() -> None:
    hostile = [
        replace(event, input="</text><script>alert(1)</script>&amp;")
        if isinstance(event, ev.RunStarted)
        else event
        for event in forked_run()
    ]
    said = texts(svg(hostile))
    assert "</text><script>" in said
    assert "<script" not in svg(hostile)
    xml.fromstring(svg(hostile_run()))


@given(ANY_TEXT)
def test_any_text_makes_a_picture(text: str) -> None:
    run = ev.RunStarted(time=1.0, run="r", program=text, input=text)
    xml.fromstring(svg([run, ev.NodeStarted(time=2.0, run="r", path=f"a{text}", node="a", kind="llm")]))


# ----------------------------------------------------------------------------- a terminal


def on_terminal(arguments: list[str], keys: bytes = b"", *, awaits: bytes = b"") -> tuple[int, str]:
    """Run the command on a terminal of 80x24; type the keys once `awaits` is on the screen."""
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(
        [sys.executable, "-m", "agentree", *arguments], stdin=slave, stdout=slave, stderr=slave, env=env
    )
    os.close(slave)
    seen = b""
    pending = [keys[i : i + 1] for i in range(len(keys))]
    while True:
        ready, _, _ = select.select([master], [], [], 60)
        assert ready, "it hangs"
        try:
            data = os.read(master, 1 << 16)
        except OSError:
            break
        if not data:
            break
        seen += data
        if pending and awaits in data:
            os.write(master, pending.pop(0))
    os.close(master)
    return process.wait(), seen.decode()


def test_a_replay_on_a_terminal(trace: Path) -> None:
    code, seen = on_terminal(["trace", str(trace), "--speed", "max"])
    assert code == 0
    assert "\x1b[?25h" in seen, "the cursor is back"
    assert "think#2" in seen
    assert seen.rindex("run r1, done") > seen.rindex("hit rate")


def test_stepping_on_a_terminal(trace: Path) -> None:
    code, seen = on_terminal(["trace", str(trace), "--step"], b"\n\nb\nq", awaits=b"paused")
    assert code == 0
    where = re.findall(r"(\d+)/\d+  [\d.]+ s  paused", seen)
    steps = [number for i, number in enumerate(where) if i == 0 or number != where[i - 1]]
    assert steps == ["0", "1", "2", "1", "2"]
    assert "ModelLoading" in seen
    assert "run r1" not in seen, "who quits has seen enough"


def test_events_of_ones_own_are_shown_when_stepping() -> None:
    line = json.dumps({"event": "Weather", "seq": 4, "time": 5.0, "path": "a", "place": "Rome\x1b[31m"})
    from agentree.trace.jsonl import from_dict

    event = from_dict(json.loads(line))
    picture = Picture()
    picture.feed([replace(event, time=4.0), event])
    shown = described(event, picture)
    assert shown == "#4  1.000 s  OtherEvent  a  kind=Weather  data={'place': 'Rome\\x1b[31m'}"
