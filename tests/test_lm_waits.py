"""When an agent is expected back: means by tool and by step, and what the lease is told."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lm_scripted import scripted

from agentree.lm.holding import owner_of
from agentree.lm.waits import UNKNOWN, WEIGHT, Waits, after, tool
from agentree.messages import user
from agentree.runtime.request import Scope


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def away(waits: Waits, clock: Clock, what: list[str], seconds: float, owner: str = "a") -> float:
    expected = waits.leave(owner, what)
    clock.now += seconds
    waits.back(owner)
    return expected


def test_means_by_what_is_done() -> None:
    clock = Clock()
    waits = Waits(clock)
    assert away(waits, clock, ["tool slow"], 9.0) == UNKNOWN
    assert away(waits, clock, ["tool fast"], 1.0) == 9.0, "unknown: the mean of all"
    assert away(waits, clock, ["tool slow"], 7.0) == 9.0
    assert waits.expect(["tool slow"]) == pytest.approx(8.0)
    assert waits.expect(["tool fast"]) == 1.0
    assert waits.expect(["tool new"]) == pytest.approx((9 + 1 + 7) / 3)


def test_calls_of_one_turn_run_side_by_side() -> None:
    clock = Clock()
    waits = Waits(clock)
    away(waits, clock, ["tool slow"], 8.0)
    away(waits, clock, ["tool fast"], 1.0)
    assert waits.expect(["tool fast", "tool slow", "tool new"]) == 8.0
    away(waits, clock, ["tool slow", "tool fast", "tool fast"], 12.0)
    assert waits.expect(["tool fast", "tool slow"]) == 12.0, "a set has a mean of its own"
    assert waits.expect(["tool slow"]) == 8.0


def test_who_never_comes_back_tells_nothing() -> None:
    clock = Clock()
    waits = Waits(clock)
    for owner in ("run", "run/[1]", "other"):
        waits.leave(owner, ["x"])
    clock.now += 1e6
    waits.forget_run("run")
    waits.forget("other")
    for owner in ("run", "run/[1]", "other", "nobody"):
        waits.back(owner)
    assert waits.expect(["x"]) == UNKNOWN


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=3 * WEIGHT), st.floats(0, 1e3))
def test_a_mean_lies_among_what_was_seen_and_follows_change(before: list[float], then: float) -> None:
    clock = Clock()
    waits = Waits(clock)
    for seconds in before:
        away(waits, clock, ["x"], seconds)
    assert min(before) - 1e-6 <= waits.expect(["x"]) <= max(before) + 1e-6
    for _ in range(8 * WEIGHT):
        away(waits, clock, ["x"], then)
    assert waits.expect(["x"]) == pytest.approx(then, abs=1.0)


def test_branches_and_visits_of_a_node_count_together() -> None:
    assert after("solve[3]/answer[2]#4") == after("solve/answer") != after("answer")
    assert tool("search") != after("search")


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("answer", "r"),
        ("answer#3", "r"),
        ("answer[2]#3", "r/[2]"),
        ("answer[2][0]", "r/[2][0]"),
        ("call/answer", "r/call"),
        ("call[1]#2/answer[0]#7", "r/call[1]#2/[0]"),
    ],
)
def test_each_path_of_tasks_has_a_lease_of_its_own(path: str, owner: str) -> None:
    assert owner_of(Scope("r", path)) == owner


@pytest.mark.asyncio
async def test_a_turn_says_when_its_branch_is_expected_back() -> None:
    made = scripted("yes")
    async with (made.empty + user("Hello.")).fork(1) as kids:
        kid = kids[0]
        for _ in range(2):
            kid = (await kid.gen(str)).transcript
            await anyio.sleep(0.05)
    (owner, first), (same, second) = made.engine.expected
    assert owner == same
    assert first == UNKNOWN
    assert 0.04 < second < 0.5
