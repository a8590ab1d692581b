"""The picture that events fold into."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_events import dated, forked_run, generation, react_run

from agentree import events as ev
from agentree.trace.rows import all_rows, fitting
from agentree.trace.state import Picture
from agentree.trace.tree import Branch, Call, Tokens, split_path


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("", []),
        ("think", ["think"]),
        ("think#2", ["think#2"]),
        ("solve/answer[3]#2", ["solve", "answer", "[3]#2"]),
        ("beam[1][4]", ["beam", "[1]", "[4]"]),
        ("[2]", ["[2]"]),
        ("[2]/x#3/y", ["[2]", "x#3", "y"]),
        ("odd[name", ["odd[name"]),
        ("a#b", ["a#b"]),
    ],
)
def test_split_path(path: str, names: list[str]) -> None:
    assert split_path(path) == names


@given(st.text())
def test_split_path_loses_nothing_but_separators(path: str) -> None:
    assert "".join(split_path(path)) == path.replace("/", "")


def branch_at(picture: Picture, run: str, path: str) -> Branch:
    return next(branch for branch in picture.runs[run].root.walk() if branch.path == path)


def test_react_run() -> None:
    picture = Picture()
    picture.feed(react_run())
    run = picture.runs["r1"]
    assert (run.program, run.status, run.output) == ("react", "done", "391")
    assert branch_at(picture, "r1", "think").tokens == Tokens(0, 312, 24, 9)
    assert branch_at(picture, "r1", "think#2").tokens == Tokens(344, 21, 22, 8)
    assert [call.content for _, call in picture.calls()] == ["391"]
    assert picture.hit_rate() == (344, 677)
    assert picture.passes == 17, "as the engine counts: requests that share a pass don't add up"
    assert not picture.writing
    assert {branch.shown_status for branch in run.root.walk() if branch.path} == {"done"}
    assert branch_at(picture, "r1", "think").miss == "never seen"


def test_branches_nest_under_their_fork() -> None:
    picture = Picture()
    picture.feed(forked_run(width=3))
    answer = branch_at(picture, "r2", "answer")
    assert list(answer.children) == ["[0]", "[1]", "[2]"]
    assert answer.forks == [(3, 227)]
    assert [child.path for child in answer.children.values()] == ["answer[0]", "answer[1]", "answer[2]"]
    assert answer.sum().cached == 3 * 227
    assert (picture.pressure.evicted, picture.pressure.revoked) == (120, 64)
    failed = [call for _, call in picture.calls() if call.status == "failed"]
    assert [call.tool for call in failed] == ["search_files"]


def test_every_prefix_of_a_stream_makes_a_picture() -> None:
    events = react_run() + forked_run()
    for end in range(len(events)):
        picture = Picture()
        picture.feed(events[:end])
        fitting(picture, 7)
        assert picture.totals.total == sum(run.root.sum().total for run in picture.runs.values())


@given(st.integers(0, 60), st.data())
def test_lost_events_never_break_the_picture(missing: int, data: st.DataObject) -> None:
    events = react_run() + forked_run()
    kept = list(events)
    for _ in range(missing):
        kept.pop(data.draw(st.integers(0, len(kept) - 1)))
    picture = Picture()
    picture.feed(kept)
    assert picture.generations == sum(isinstance(event, ev.GenerationEnded) for event in kept)


def test_same_path_twice_adds_up() -> None:
    picture = Picture()
    picture.feed(
        dated([*generation("", "", 1, 0, 10, 0, 5, "one"), *generation("", "", 2, 15, 3, 2, 4, "two")])
    )
    root = picture.runs[""].root
    assert (root.generations, root.tokens) == (2, Tokens(15, 13, 2, 9))


@pytest.mark.parametrize(
    ("finish", "status"), [("aborted", "cancelled"), ("failed", "failed"), ("length", "done")]
)
def test_how_a_generation_ends(finish: str, status: str) -> None:
    events = dated(generation("r", "think", 1, 0, 10, 0, 5, "text"))
    last = events[-1]
    assert isinstance(last, ev.GenerationEnded)
    picture = Picture()
    picture.feed([*events[:-1], replace(last, finish=finish)])
    assert branch_at(picture, "r", "think").status == status


def test_calls_with_the_same_id_meet_their_own_ends() -> None:
    start = ev.ToolStarted(run="r", path="a[0]", call="1", tool="t", arguments="{}")
    end = ev.ToolEnded(run="r", path="a[0]", call="1", tool="t", content="zero", error=False, seconds=0.1)
    one = replace(end, path="a[1]", content="one")
    picture = Picture()
    picture.feed(dated([start, replace(start, path="a[1]"), one, end]))
    assert [(branch.path, call.content) for branch, call in picture.calls()] == [
        ("a[0]", "zero"),
        ("a[1]", "one"),
    ]


def test_rate_counts_the_last_moments_only() -> None:
    def text(sampled: int) -> ev.TextGenerated:
        return ev.TextGenerated(request=1, text="x", sampled_tokens=sampled)

    picture = Picture()
    picture.feed(dated([text(0), text(100), text(120), text(140)], step=1.0))
    assert picture.totals.sampled == 140
    assert picture.rate(1003.0) == (100 + 20 + 20) / 2.0
    assert picture.rate(1004.5) == 20 / 2.0
    assert picture.rate(1009.0) == 0.0


@given(st.integers(1, 40), st.integers(1, 12))
def test_rows_fit_and_keep_their_parents(limit: int, width: int) -> None:
    picture = Picture()
    picture.feed(react_run() + forked_run(width=width))
    everything = all_rows(picture)
    rows, hidden = fitting(picture, limit)
    assert len(rows) <= limit
    assert len(rows) + hidden == len(everything)
    depths = [len(row.guides) for row in rows]
    assert all(deeper <= depth + 1 for depth, deeper in itertools.pairwise(depths))
    if limit >= len(everything):
        assert [type(row.item) for row in rows].count(Call) == 2


def test_running_rows_are_kept_first() -> None:
    events = forked_run(width=4)
    picture = Picture()
    picture.feed(events[: len(events) - 8])
    running = {branch.path for branch in picture.runs["r2"].root.walk() if branch.status == "running"}
    assert running
    rows, hidden = fitting(picture, len(running) + 2)
    assert hidden
    shown = {row.item.path for row in rows if isinstance(row.item, Branch)}
    assert running <= shown
