"""Names that views give to paths of several runs, and tool calls that are being written."""

import io
import itertools
import re
from dataclasses import replace

from trace_events import dated, generation

from agentree import events as ev
from agentree.trace import LineView, Picture, explain
from agentree.trace.line import Line
from agentree.trace.render import Drawing
from agentree.trace.replay import described


def picture_of(events: list[ev.Event]) -> Picture:
    picture = Picture()
    picture.feed(events)
    return picture


def plain(lines: list[Line]) -> str:
    return "\n".join(line.plain for line in lines)


def lines_of(events: list[ev.Event]) -> list[str]:
    out = io.StringIO()
    view = LineView(out)
    view.feed(events)
    view.close()
    return out.getvalue().splitlines()


def two_runs() -> list[ev.Event]:
    """Two runs of one program, then transcripts outside of programs; each misses, and makes another lose."""
    events: list[ev.Event] = []
    for number, run in enumerate(("a1", "b2", "")):
        path = "answer" if run else ""
        events += [
            *([ev.RunStarted(run=run, program="greet", input="hello")] if run else []),
            *generation(run, path, number, 5, 5, 5, 5, "text of an answer", miss="never seen"),
            ev.Evicted(run=run, path=path, tokens=3),
            ev.LeaseRevoked(run=run, path=path, owner=f"{run}/{path}" if run else "", tokens=4),
            *([ev.RunEnded(run=run, output="hi")] if run else []),
        ]
    return dated(events)


def test_every_view_gives_a_path_of_several_runs_the_same_name() -> None:
    events, names = two_runs(), ("answer", "2:answer", "3:transcripts")
    lines = lines_of(events)
    table = [line.split()[0] for line in lines if re.search(r"(  +\d+){6}$", line)]
    assert table == list(names)
    said = "\n".join(line.split("s  ", 1)[1] for line in itertools.takewhile(bool, lines))
    for name in names:
        assert f"\n{name}: prompt 10" in said
        assert f"\n3 tokens evicted for {name}\n" in said
        assert f"\nlease of {name} revoked: 4 tokens" in said
        assert re.search(rf"^miss +{name}  \(never seen\)", "\n".join(lines), re.MULTILINE)
    assert said.startswith("run greet: hello\n") and "\nrun 2:greet: hello\n" in said
    assert "\nrun greet done: hi\n" in said and "\nrun 2:greet done: hi\n" in said

    drawing = Drawing(picture_of(events), 99, now=1003.0)
    shown = plain(drawing.live(30))
    for name in names[1:]:
        assert f"lease of {name} revoked for {name}: 4 tokens" in shown
    assert "\n3:transcripts │ text of an answer" in shown
    assert "✓ greet  hello" in shown and "✓ 2:greet  hello" in shown

    stepped = [described(event, drawing.picture).split("  ")[3] for event in events]
    assert {who for who in stepped if "=" not in who} == {"greet", "2:greet", *names[:2]}
    assert re.findall(r"^\S.*", explain(events), re.MULTILINE) == [
        "run a1, done", "greet", "2:run b2, done", "greet", "3:transcripts",
    ]  # fmt: skip


def writing_calls(path: str = "think") -> list[ev.Event]:
    """A turn that writes two calls: named, written, the second only named so far."""
    run = "r"
    return dated(
        [
            ev.RunStarted(run=run, program="p", input=""),
            ev.NodeStarted(run=run, path=path, node="think", kind="llm"),
            ev.GenerationStarted(run=run, path=path, request=1, prompt_tokens=5),
            ev.ToolCallNamed(run=run, path=path, request=1, index=0, tool="look"),
            ev.ToolCallWritten(
                run=run, path=path, request=1, index=0, tool="look", arguments='{"word": "x"}'
            ),
            ev.ToolCallNamed(run=run, path=path, request=1, index=1, tool="[red]find"),
        ]
    )


def test_a_call_is_shown_while_it_is_written() -> None:
    events = writing_calls()
    moments = [plain(Drawing(picture_of(events[:end]), 119, now=1003.0).live(30)) for end in range(3, 7)]
    shown = [re.search(r"think(.*?)  ", moment) for moment in moments]
    assert [match and match[1] for match in shown] == ["", " → look", " → look ✓", " → look ✓, [red]find"]
    over = generation("r", "think", 1, 0, 5, 5, 5, "both calls")[-1:]
    assert "→" not in plain(Drawing(picture_of(events + dated(over)), 119, now=1003.0).live(30))


def test_a_folded_row_shows_the_call_that_is_written_below_it() -> None:
    others = [
        ev.NodeStarted(run="r", path=f"think[{i}]", node="think", kind="llm") for i in range(2)
    ]  # of one fork
    visit = [replace(event, path="think[1]#2") for event in writing_calls()[1:4]]
    drawing = Drawing(picture_of(dated([*others, *visit])), 119, now=1003.0)
    assert "[1] think#2 → look" in plain(drawing.tree(4))


def test_lines_of_calls_that_are_written() -> None:
    said = [line.split("s  ", 1)[1] for line in itertools.takewhile(bool, lines_of(writing_calls()))]
    assert said[1:] == [
        "think: writes a call of look",
        'think: wrote a call of look {"word": "x"}',
        "think: writes a call of [red]find",
    ]
