"""The picture that events fold into."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_events import dated, forked_run, generation, react_run

from agentree import events as ev
from agentree.trace.history import History
from agentree.trace.rows import Rest, Row, Rows
from agentree.trace.state import Picture
from agentree.trace.tree import Branch, Call, RunView, Tokens, split_path


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
    assert answer.total.cached == 3 * 227
    assert (picture.pressure.evicted, picture.pressure.revoked) == (120, 64)
    failed = [call for _, call in picture.calls() if call.status == "failed"]
    assert [call.tool for call in failed] == ["search_files"]


def test_every_prefix_of_a_stream_makes_a_picture() -> None:
    events = react_run() + forked_run()
    for end in range(len(events)):
        picture = Picture()
        picture.feed(events[:end])
        Rows(picture).fitting(7)
        for run in picture.runs.values():
            for branch in run.root.walk():
                below = Tokens()
                for other in branch.walk():
                    below.add(other.tokens)
                assert branch.total == below
        assert picture.totals.total == sum(run.root.total.total for run in picture.runs.values())


@settings(deadline=None)
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


def forked_agents(width: int, visits: int) -> list[ev.Event]:
    """A graph's run: a map over `width` agents, each of which thinks and acts in turn."""
    run = "r3"
    events: list[ev.Event] = [
        ev.RunStarted(run=run, program="many", input="go"),
        ev.NodeStarted(run=run, path="plan", node="plan", kind="llm"),
        *generation(run, "plan", 1, 0, 50, 5, 5, "plan"),
        ev.NodeEnded(run=run, path="plan", node="plan"),
        ev.Forked(run=run, path="plan", n=width, shared_tokens=60),
    ]
    for visit in range(1, visits + 1):
        for i in range(width):
            number = "" if visit == 1 else f"#{visit}"
            think, act = f"think[{i}]{number}", f"act[{i}]{number}"
            events += [
                ev.NodeStarted(run=run, path=think, node="think", kind="llm"),
                *generation(run, think, 100 * visit + i, 60 * visit, 7 + i, 3, 4, "x"),
                ev.NodeEnded(run=run, path=think, node="think"),
                ev.NodeStarted(run=run, path=act, node="act", kind="tools"),
                ev.ToolStarted(run=run, path=act, call="c", tool="look", arguments="{}"),
                ev.ToolEnded(run=run, path=act, call="c", tool="look", content="", error=False, seconds=0.1),
                ev.NodeEnded(run=run, path=act, node="act"),
            ]
    return dated(events, step=0.01)


def shown_tokens(rows: list[Row]) -> Tokens:
    """What all rows stand for: each branch's own, with what is below it where it is folded."""
    total = Tokens()
    for row in rows:
        match row.item:
            case Branch():
                total.add(row.item.total if row.folded or not row.kids else row.item.tokens)
            case Rest():
                total.add(row.item.sum())
            case Call():
                pass
            case _:
                total.add(row.item.root.total if row.folded else row.item.root.tokens)
    return total


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 12), st.integers(0, 3), st.integers(0, 400))
def test_rows_fit_and_stand_for_every_token(limit: int, width: int, visits: int, left_out: int) -> None:
    events = react_run() + forked_run(width=width) + forked_agents(width, visits)
    picture = Picture()
    picture.feed(events[: max(len(events) - left_out, 1)])
    rows = Rows(picture).fitting(limit)
    assert len(rows) <= limit
    assert shown_tokens(rows) == picture.totals
    depths = [len(row.guides) for row in rows]
    assert all(deeper <= depth + 1 for depth, deeper in itertools.pairwise(depths))
    if limit >= len(Rows(picture).all()):
        assert len(rows) == len(Rows(picture).all())
        assert not any(isinstance(row.item, Rest) for row in rows)


def test_running_rows_are_kept_first() -> None:
    events = forked_run(width=4)
    picture = Picture()
    picture.feed(react_run() + events[: len(events) - 8])
    running = {branch.path for branch in picture.runs["r2"].root.walk() if branch.status == "running"}
    assert running
    rows = Rows(picture).fitting(len(running) + 4)
    assert [row.folded for row in rows if isinstance(row.item, RunView)] == [True, False]
    shown = {row.item.path for row in rows if isinstance(row.item, Branch)}
    assert running <= shown


def test_agents_are_rows_with_their_visits_below() -> None:
    picture = Picture()
    picture.feed(forked_agents(3, 2))
    root = picture.runs["r3"].root
    assert [child.name for child in root.children.values()] == ["plan", "think"]
    fork = root.children["think[]"]
    assert fork.forks == [(3, 60)]
    agents = fork.ordered()
    assert [agent.name for agent in agents] == ["[0]", "[1]", "[2]"]
    assert [visit.name for visit in agents[1].ordered()] == ["think", "act", "think#2", "act#2"]
    assert [visit.path for visit in agents[1].ordered()] == ["think[1]", "act[1]", "think[1]#2", "act[1]#2"]
    assert agents[1].total == Tokens(180, 16, 6, 8)


def test_forty_agents_are_a_row_each_on_a_screen_of_fifty_lines() -> None:
    picture = Picture()
    picture.feed(forked_agents(40, 4))
    rows = Rows(picture).fitting(43)
    assert len(rows) == 43
    assert [row.item.name for row in rows[3:] if isinstance(row.item, Branch)] == [
        f"[{i}]" for i in range(40)
    ]
    assert all(row.folded for row in rows[3:])


def visits(*paths: str) -> Branch:
    """The tree of a run with these visits."""
    picture = Picture()
    picture.feed(dated(ev.NodeStarted(run="r", path=path, node="", kind="") for path in paths))
    return picture.runs["r"].root


def drawn(branch: Branch) -> list[object]:
    return [[child.name, *drawn(child)] for child in branch.ordered()]


def test_a_second_fork_is_another_one_once_the_branches_have_met() -> None:
    root = visits("a[0]", "a[1]", "b[1]", "join", "a[0]#2", "a[1]#2", "join#2", "c[0]")
    assert drawn(root) == [
        ["a", ["[0]", ["a"]], ["[1]", ["a"], ["b"]]],
        ["join"],
        ["a#2", ["[0]", ["a#2"]], ["[1]", ["a#2"]]],
        ["join#2"],
        ["c", ["[0]", ["c"]]],
    ]


def test_a_fork_is_named_after_what_its_branches_begin_with() -> None:
    assert drawn(visits("a[0]", "b[1]", "c[0]", "b[2]")) == [
        ["a, b", ["[0]", ["a"], ["c"]], ["[1]", ["b"]], ["[2]", ["b"]]]
    ]


def test_forks_in_forks_and_in_programs_that_are_called() -> None:
    assert drawn(visits("a[0]", "b[0][1]", "call[0]", "call[0]/x", "call[0]/y[2]", "a[1]")) == [
        ["a", ["[0]", ["a"], ["b", ["[1]", ["b"]]], ["call", ["x"], ["y", ["[2]", ["y"]]]]], ["[1]", ["a"]]]
    ]


def test_a_resumed_run_that_waits_for_a_person() -> None:
    picture = Picture()
    picture.feed(
        dated(
            [
                ev.RunStarted(run="r", program="p", input=""),
                ev.NodeRestored(run="r", path="a[0]", node="a", kind="llm"),
                ev.NodeStarted(run="r", path="ask[0]", node="ask", kind="step"),
                ev.NodeEnded(run="r", path="ask[0]", node="ask", error="waits for an answer: yes?"),
                ev.NodeStarted(run="r", path="b[1]", node="b", kind="step"),
                ev.NodeEnded(run="r", path="b[1]", node="b", error="cancelled"),
                ev.QuestionAsked(run="r", path="ask[0]", text="yes?"),
                ev.RunEnded(run="r", error="waits", status="waiting"),
            ]
        )
    )
    root = picture.runs["r"].root
    assert drawn(root) == [["a, b", ["[0]", ["a"], ["ask"]], ["[1]", ["b"]]]]
    assert {branch.path: branch.status for branch in root.walk() if not branch.children} == {
        "a[0]": "done",
        "ask[0]": "waiting",
        "b[1]": "cancelled",
    }


def test_branches_that_a_step_makes_by_itself_are_below_its_visit() -> None:
    picture = Picture()
    picture.feed(
        dated(
            [
                ev.NodeStarted(run="r", path="vote[3]#2", node="vote", kind="step"),
                ev.Forked(run="r", path="vote[3]#2", n=2, shared_tokens=9),
                *generation("r", "vote[3]#2[0]", 1, 1, 1, 1, 1, "x"),
                *generation("r", "vote[3]#2[1]", 2, 1, 1, 1, 1, "x"),
            ]
        )
    )
    assert drawn(picture.runs["r"].root) == [["vote", ["[3]", ["vote#2", ["[0]"], ["[1]"]]]]]


@given(st.lists(st.tuples(st.floats(0, 1e4), st.integers(0, 9)), max_size=80), st.integers(1, 20))
def test_history_loses_nothing_but_what_is_not_over(given: list[tuple[float, int]], most: int) -> None:
    history = History(1, most=8, span=0.5)
    for time, amount in sorted(given):
        history.add(time, (amount,))
    assert len(history.spans) <= 8
    assert sum(row[0] for row in history.spans) == sum(amount for _, amount in given)
    last = max((time for time, _ in given), default=0.0)
    seconds, cells = history.cells(most, last)
    assert len(cells) <= most
    began = min((time for time, _ in given), default=0.0)
    over = began + seconds * len(cells)
    assert sum(cell[0] for cell in cells) == pytest.approx(
        sum(amount for time, amount in given if time < over - 1e-6), abs=9 * len(given) * (over > last)
    )


def test_a_burst_of_losses_is_one() -> None:
    def lost(path: str, tokens: int) -> ev.Evicted:
        return ev.Evicted(run="r", path=path, tokens=tokens)

    picture = Picture()
    picture.feed(dated([lost("a", 5), lost("a", 6), lost("b", 1)]))
    picture.feed(dated([lost("b", 2), lost("b", 3)], start=2000.0, step=5.0))
    assert [(event.path, event.tokens) for event in picture.pressure.latest] == [
        ("a", 11),
        ("b", 1),
        ("b", 2),
        ("b", 3),
    ]
    assert picture.pressure.evicted == 17
