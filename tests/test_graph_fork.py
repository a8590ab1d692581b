"""Forks, maps and joins: who waits for whom, in which order results come, and which transcript goes on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from trio.testing import MockClock

from agentree.errors import GraphError, LimitReached
from agentree.events import Event, NodeEnded, NodeStarted
from agentree.graph import Ctx, Graph, Limits, Program, best, collect, first, top, vote
from agentree.messages import Message, user
from agentree.testing import Reply, ScriptedRuntime, assert_cached

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Trio with a clock that jumps: sleeping takes no time, and times are exact."""
    return "trio", {"clock": MockClock(autojump_threshold=0)}


def same(x: Any) -> Any:
    return x


class Graphs:
    """A graph of ints whose steps sleep for as long as their input or name says."""

    def __init__(self, output: Any = object) -> None:
        self.g: Any = Graph("g", input=object, output=output)
        self.log: list[tuple[str, Any, float]] = []

    def step(self, name: str, *, seconds: float = 0.0, fn: Callable[[Any], Any] = same) -> Any:
        async def run(ctx: Ctx, x: Any) -> Any:
            await anyio.sleep(seconds)
            made = fn(x)
            self.log.append((name, x, anyio.current_time()))
            return made

        run.__name__ = name
        return self.g.step(run)

    def line(self, *nodes: Any) -> Any:
        for a, b in pairwise(nodes):
            self.g.edge(a, b)
        return nodes[-1]

    async def run(self, value: Any = None, limits: Limits | None = None) -> tuple[Any, float]:
        async with ScriptedRuntime([]) as lm:
            began = anyio.current_time()
            made = await self.g.compile(limits=limits).run(value, lm=lm)
            return made, anyio.current_time() - began


def fail(error: Exception) -> Any:
    def act(x: Any) -> Any:
        raise error

    return act


async def test_unequal_branches_end_with_the_longest() -> None:
    b = Graphs()
    a, s1, s2, slow = (
        b.step("a"),
        b.step("s1", seconds=5),
        b.step("s2", seconds=5),
        b.step("slow", seconds=20),
    )
    after = b.step("after")
    b.line(b.g.start, a)
    b.g.fork(a, s1, slow)
    b.line(s1, s2)
    b.line(b.g.join([s2, slow], collect(int)), after, b.g.end)
    made, seconds = await b.run(7)
    assert made == [7, 7]
    assert seconds == 20
    assert [name for name, _, _ in b.log].count("after") == 1


async def test_results_come_in_fork_order() -> None:
    b = Graphs()
    a = b.step("a", fn=lambda n: list(range(n)))
    work = b.g.step(named_sleep())
    b.line(b.g.start, a)
    b.line(b.g.join(b.g.map(a, work), collect(int)), b.g.end)
    made, seconds = await b.run(5)
    assert made == [0, 1, 2, 3, 4]
    assert seconds == 5


def named_sleep() -> Any:
    async def work(ctx: Ctx, x: int) -> int:
        await anyio.sleep(5 - x)
        return x

    return work


@pytest.mark.parametrize(("parallel", "expected"), [(None, 1), (1, 6), (2, 3), (4, 2)])
async def test_map_runs_so_many_at_a_time(parallel: int | None, expected: int) -> None:
    b = Graphs()
    a, work = b.step("a", fn=lambda n: list(range(n))), b.step("work", seconds=1)
    b.line(b.g.start, a)
    b.line(b.g.join(b.g.map(a, work, parallel=parallel), collect(int)), b.g.end)
    made, seconds = await b.run(6)
    assert made == list(range(6))
    assert seconds == expected


async def test_an_empty_map_joins_once() -> None:
    b = Graphs()
    a, work = b.step("a", fn=lambda n: []), b.step("work")
    after = b.step("after")
    b.line(b.g.start, a)
    b.line(b.g.join(b.g.map(a, work), collect(int)), after, b.g.end)
    assert (await b.run(6))[0] == []
    assert [name for name, _, _ in b.log] == ["a", "after"]


async def test_a_selector_has_nothing_to_pick_from() -> None:
    b = Graphs()
    a, work = b.step("a", fn=lambda n: []), b.step("work")
    b.line(b.g.start, a)
    b.line(b.g.join(b.g.map(a, work), best(float)), b.g.end)
    with pytest.raises(GraphError, match=r"best\(\) has nothing to pick from"):
        await b.run(6)


async def test_mapping_over_a_text_is_refused() -> None:
    b = Graphs()
    a, work = b.step("a"), b.step("work")
    b.line(b.g.start, a)
    b.line(b.g.join(b.g.map(a, work), collect(int)), b.g.end)
    with pytest.raises(GraphError, match=r"'a' gave str abc, which can't be mapped over: return a list"):
        await b.run("abc")


async def test_nested_maps() -> None:
    b = Graphs()
    rows = b.step("rows")
    row = b.step("row")
    cell = b.step("cell", seconds=1, fn=lambda x: x * 10)
    b.line(b.g.start, rows)
    b.g.map(rows, row)
    inner = b.g.join(b.g.map(row, cell), collect(int))
    total = b.step("total", fn=sum)
    b.line(inner, total)
    b.line(b.g.join(total, collect(int)), b.g.end)
    program = b.g.compile()
    async with ScriptedRuntime([]) as lm:
        async with program.stream([[1, 2], [], [3]], lm=lm) as run:
            events = [e async for e in run]
        assert run.output == [30, 0, 30]
    paths = {e.path for e in events if isinstance(e, NodeStarted) and e.node == "cell"}
    assert paths == {"cell[0][0]", "cell[0][1]", "cell[2][0]"}
    assert {e.path for e in events if isinstance(e, NodeStarted) and e.kind == "join"} == {
        "join_cell[0]",
        "join_cell[1]",
        "join_cell[2]",
        "join_total",
    }


async def test_fork_join_map_join() -> None:
    b = Graphs()
    a, x, y = (
        b.step("a"),
        b.step("x", seconds=1, fn=lambda v: v + 1),
        b.step("y", seconds=3, fn=lambda v: v + 2),
    )
    b.line(b.g.start, a)
    b.g.fork(a, x, y)
    met = b.g.join([x, y], collect(int))
    work = b.step("work", seconds=1, fn=lambda v: v * 10)
    b.line(b.g.join(b.g.map(met, work), collect(int)), b.g.end)
    made, seconds = await b.run(0)
    assert made == [10, 20]
    assert seconds == 4


async def test_two_joins_under_one_fork() -> None:
    b = Graphs()
    a = b.step("a")
    p, q, r = (b.step(n, seconds=s, fn=lambda v: str(v)) for n, s in (("p", 1), ("q", 2), ("r", 9)))
    early = b.step("early", fn="+".join)
    b.line(b.g.start, a)
    b.g.fork(a, p, q, r)
    b.line(b.g.join([p, q], collect(str)), early)
    b.line(b.g.join([early, r], collect(str)), b.g.end)
    made, seconds = await b.run(0)
    assert made == ["0+0", "0"]
    assert seconds == 9
    assert next(t for name, _, t in b.log if name == "early") - next(t for n, _, t in b.log if n == "a") == 2


def is_even(x: int) -> bool:
    return x % 2 == 0


async def test_a_map_whose_branches_go_different_ways() -> None:
    b = Graphs()
    a = b.step("a")
    sort = b.step("sort")
    even, odd = b.step("even", seconds=1), b.step("odd", seconds=2)
    b.line(b.g.start, a)
    b.g.map(a, sort)
    b.g.branch(sort).case(int, even, where=is_even).otherwise(odd)
    evens = b.step("evens", fn=lambda xs: ("evens", xs))
    b.line(b.g.join(even, collect(int)), evens)
    final = b.g.join([evens, odd], collect(object))
    b.line(final, b.g.end)
    assert (await b.run([1, 2, 3, 4]))[0] == [1, ("evens", [2, 4]), 3]
    assert (await b.run([1, 3]))[0] == [1, 3]
    assert (await b.run([2]))[0] == [("evens", [2])]
    assert (await b.run([]))[0] == []


async def test_a_skipped_arm_still_joins() -> None:
    b = Graphs()
    a, check, long, other = (
        b.step("a"),
        b.step("check"),
        b.step("long", seconds=5),
        b.step("other", seconds=1),
    )
    b.line(b.g.start, a)
    b.g.fork(a, check, other)
    join = b.g.join([long, other], collect(int))
    b.g.branch(check).case(int, long, where=bool).otherwise(join)
    b.line(join, b.g.end)
    assert await b.run(1) == ([1, 1], 5)
    assert await b.run(0) == ([0, 0], 1)


def below_four(xs: list[int]) -> bool:
    return max(xs) < 4


async def test_a_join_in_a_loop_fires_every_round() -> None:
    b = Graphs()
    a, work = b.step("a"), b.step("work", fn=lambda x: x + 1)
    total = b.step("total")
    again = b.step("again")
    b.line(b.g.start, a)
    b.line(b.g.join(b.g.map(a, work), collect(int)), total)
    b.g.branch(total).case(list, again, where=below_four).otherwise(b.g.end)
    b.g.map(again, work)
    program = b.g.compile(limits=Limits(seconds=100))
    async with ScriptedRuntime([]) as lm:
        async with program.stream([0, 1], lm=lm) as run:
            events = [e async for e in run]
        assert run.output == [3, 4]
    visits = [e.path for e in events if isinstance(e, NodeStarted) and e.node in ("work", "join_work")]
    assert set(visits) == {f"work[{i}]{k}" for i in (0, 1) for k in ("", "#2", "#3")} | {
        "join_work",
        "join_work#2",
        "join_work#3",
    }


async def test_first_cancels_the_others() -> None:
    b = Graphs()
    a = b.step("a")
    fast, slow = b.step("fast", seconds=2, fn=lambda x: "fast"), b.step("slow", seconds=50)
    b.line(b.g.start, a)
    b.line(b.g.join(b.g.fork(a, slow, fast), first(str)), b.g.end)
    async with ScriptedRuntime([]) as lm:
        began = anyio.current_time()
        async with b.g.compile().stream(0, lm=lm) as run:
            events = [e async for e in run]
        assert run.output == "fast"
        assert anyio.current_time() - began == 2
    assert [e.error for e in events if isinstance(e, NodeEnded) and e.node == "slow"] == ["cancelled"]


def minus(x: int) -> float:
    return -float(x)


REDUCERS: list[tuple[Any, Any]] = [
    (collect(int), [3, 1, 3, 2]),
    (top(2, float), [3, 3]),
    (best(float), 3),
    (best(minus), 1),
    (vote(int), 3),
    (first(int), 3),
    (sum, 9),
]


@pytest.mark.parametrize(("reduce", "expected"), REDUCERS)
async def test_reducers(reduce: Any, expected: Any) -> None:
    b = Graphs()
    a, work = b.step("a"), b.step("work", seconds=1)
    b.line(b.g.start, a)
    b.line(b.g.join(b.g.map(a, work, parallel=1), reduce), b.g.end)
    assert (await b.run([3, 1, 3, 2]))[0] == expected


# ------------------------------------------------------------------------------------------ failures


async def test_a_failure_cancels_and_awaits_the_siblings() -> None:
    ended: list[str] = []
    error = ValueError("mine")
    g: Any = Graph("g", input=object, output=object)

    @g.step
    async def a(ctx: Ctx, x: Any) -> Any:
        return x

    @g.step
    async def bad(ctx: Ctx, x: Any) -> Any:
        await anyio.sleep(1)
        raise error

    @g.step
    async def good(ctx: Ctx, x: Any) -> Any:
        try:
            await anyio.sleep(100)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(3)
            ended.append("good")

    g.edge(g.start, a)
    g.edge(g.join(g.fork(a, bad, good), collect(object)), g.end)
    async with ScriptedRuntime([]) as lm:
        began = anyio.current_time()
        with pytest.raises(ValueError, match="mine") as caught:
            await g.compile().run(0, lm=lm)
        assert caught.value is error
        assert ended == ["good"]
        assert anyio.current_time() - began == 4


async def test_failures_may_be_left_out() -> None:
    def work(x: int) -> int:
        if x % 2:
            raise ValueError(f"odd {x}")
        return x

    b = Graphs()
    a, node = b.step("a"), b.step("node", fn=work)
    b.line(b.g.start, a)
    b.line(b.g.join(b.g.map(a, node), collect(int), on_error="collect"), b.g.end)
    assert (await b.run([0, 1, 2, 3]))[0] == [0, 2]
    assert (await b.run([]))[0] == []
    with pytest.raises(ValueError, match="odd"):
        await b.run([1, 3])


async def test_a_reducer_that_raises() -> None:
    b = Graphs()
    a, work = b.step("a"), b.step("work")
    b.line(b.g.start, a)
    b.line(b.g.join(b.g.map(a, work), fail(LookupError("reduce"))), b.g.end)
    with pytest.raises(LookupError, match="reduce"):
        await b.run([1])


# --------------------------------------------------------------------------------------------- state


@dataclass
class Board:
    seen: list[str] = field(default_factory=list[str])
    best: int = 0


def boards(write: Any) -> Program[Board, int, list[int]]:
    g = Graph("g", state=Board, input=int, output=list[int])

    @g.step
    async def spread(ctx: Ctx[Board], n: int) -> list[int]:
        ctx.state.seen.append("spread")
        return list(range(n))

    @g.step
    async def work(ctx: Ctx[Board], x: int) -> int:
        assert ctx.state.seen == ["spread"]
        assert isinstance(ctx.state, Board)
        write(ctx)
        return x

    @g.step
    async def after(ctx: Ctx[Board], xs: list[int]) -> list[int]:
        ctx.state.best = max(xs)
        ctx.state.seen.append("after")
        return xs

    g.edge(g.start, spread)
    g.edge(g.join(g.map(spread, work), collect(int)), after)
    g.edge(after, g.end)
    return g.compile()


async def test_state_is_read_only_inside_a_fork() -> None:
    async with ScriptedRuntime([]) as lm:
        state = Board()
        assert await boards(same).run(3, lm=lm, state=state) == [0, 1, 2]
        assert state == Board(["spread", "after"], 2)


def _replace(ctx: Any) -> None:
    ctx.state = Board()


def _assign(ctx: Any) -> None:
    ctx.state.best = 1


def _append(ctx: Any) -> None:
    ctx.state.seen.append("x")


@pytest.mark.parametrize("write", [_assign, _replace, _append])
async def test_writing_state_inside_a_fork_is_refused(write: Any) -> None:
    async with ScriptedRuntime([]) as lm:
        with pytest.raises(GraphError, match="read-only inside a fork: return the value"):
            await boards(write).run(3, lm=lm)


# --------------------------------------------------------------------------------------- transcripts


class Idea(BaseModel):
    text: str


def ideas(keep: Any, reduce: Any = None) -> Program[None, str, str]:
    g: Any = Graph("ideas", input=str, output=str)

    @g.llm(str, system="Think.")
    def plan(ctx: Ctx, x: str) -> Message:
        return user(x)

    @g.step
    async def angles(ctx: Ctx, x: str) -> list[str]:
        return x.split()

    @g.llm(Idea, max_tokens=64)
    def idea(ctx: Ctx, angle: str) -> Message:
        return user(f"Idea on {angle}?")

    @g.llm(str)
    def sum_up(ctx: Ctx, found: Any) -> Message:
        return user("Sum up.")

    g.edge(g.start, plan)
    g.edge(plan, angles)
    g.edge(g.join(g.map(angles, idea), reduce or collect(Idea), keep=keep), sum_up)
    g.edge(sum_up, g.end)
    return g.compile()


def length(i: Idea) -> float:
    return len(i.text)


SCRIPT = {
    "plan": "red green blue",
    "idea[0]": Idea(text="rose"),
    "idea[1]": Idea(text="grasshopper"),
    "idea[2]": Idea(text="sea"),
    "sum_up": "done",
}


@pytest.mark.parametrize(
    ("keep", "there", "missing"),
    [
        ("fork", ["Think.", "red green blue", "Sum up."], ["Idea on"]),
        ("winner", ["Think.", "Idea on green?", "grasshopper", "Sum up."], ["Idea on red", "sea"]),
        ("none", ["Sum up."], ["Think.", "Idea on"]),
    ],
)
async def test_a_join_names_what_survives(keep: Any, there: Sequence[str], missing: Sequence[str]) -> None:
    async with ScriptedRuntime(SCRIPT) as lm:
        async with ideas(keep, best(length)).stream("go", lm=lm) as run:
            _ = [e async for e in run]
        text = run.transcript.text
        assert [t for t in there if t in text] == there
        assert [t for t in missing if t in text] == []
        lm.check()
        assert lm.stats().leased == lm.stats().private == 0


async def test_branches_share_every_token_of_their_trunk() -> None:
    async with ScriptedRuntime(SCRIPT) as lm:
        async with ideas("fork").stream("go", lm=lm) as run:
            _ = [e async for e in run]
        by_path = {e.path: e for e in run._shared.record.generations}
        trunk = by_path["plan"].prompt_tokens
        for i in range(3):
            assert by_path[f"idea[{i}]"].cached_tokens > trunk
        assert by_path["sum_up"].cached_tokens > trunk
        assert_cached(run, at_least=0.6)
        assert "Idea on red" not in run.transcript.text


async def test_branches_wait_for_the_model_at_the_same_time() -> None:
    script = SCRIPT | {f"idea[{i}]": Reply(Idea(text="x"), seconds=10) for i in range(3)}
    async with ScriptedRuntime(script) as lm:
        await ideas("fork").run("go", lm=lm)  # binds the constraints, in worker threads
        began = anyio.current_time()
        await ideas("fork").run("go", lm=lm)
        assert anyio.current_time() - began == 10


async def test_turns_count_along_a_path_not_over_branches() -> None:
    g: Any = Graph("g", input=int, output=list[str])

    @g.step
    async def many(ctx: Ctx, n: int) -> list[int]:
        return list(range(n))

    @g.llm(str)
    def one(ctx: Ctx, i: int) -> Message:
        return user(str(i))

    @g.llm(str)
    def two(ctx: Ctx, x: str) -> Message:
        return user(x)

    g.edge(g.start, many)
    g.map(many, one)
    g.edge(one, two)
    g.edge(g.join(two, collect(str)), g.end)
    async with ScriptedRuntime({"": "x"}) as lm:
        assert await g.compile(limits=Limits(turns=2)).run(10, lm=lm) == ["x"] * 10
        with pytest.raises(LimitReached, match="1 turns"):
            await g.compile(limits=Limits(turns=1)).run(10, lm=lm)
        assert lm.stats().leased == 0


async def test_sample_gives_generations_and_goes_on_from_before() -> None:
    g: Any = Graph("g", input=str, output=str)

    @g.sample(3, Idea, max_tokens=64)
    def tries(ctx: Ctx, x: str) -> Message:
        return user(f"Try {x}")

    @g.step
    async def pick(ctx: Ctx, made: list[Any]) -> str:
        ctx.goto(made[1].transcript)
        return made[1].value.text

    @g.llm(str)
    def polish(ctx: Ctx, x: str) -> Message:
        return user("Polish.")

    g.edge(g.start, tries)
    g.edge(tries, pick)
    g.edge(pick, polish)
    g.edge(polish, g.end)
    script = {"tries": [Idea(text="a"), Idea(text="bb"), Idea(text="c")], "polish": "done"}
    async with ScriptedRuntime(script) as lm:
        async with g.compile().stream("it", lm=lm) as run:
            _ = [e async for e in run]
        assert run.output == "done"
        assert '"bb"' in run.transcript.text
        assert '"a"' not in run.transcript.text


# ----------------------------------------------------------------------------------- called programs


async def test_a_program_as_a_node() -> None:
    inner: Any = Graph("inner", state=Board, input=int, output=int)

    @inner.step
    async def count(ctx: Ctx[Board], x: int) -> int:
        ctx.state.seen.append("x")
        return x + len(ctx.state.seen)

    @inner.llm(str)
    def say(ctx: Ctx[Board], x: int) -> Message:
        return user(str(x))

    @inner.step
    async def back(ctx: Ctx[Board], x: str) -> int:
        return int(x)

    inner.edge(inner.start, count)
    inner.edge(count, say)
    inner.edge(say, back)
    inner.edge(back, inner.end)
    called = inner.compile(limits=Limits(turns=1))
    outer: Any = Graph("outer", input=list[int], output=list[int])

    @outer.step
    async def items(ctx: Ctx, xs: list[int]) -> list[int]:
        return xs

    solve = outer.call(called)
    outer.edge(outer.start, items)
    outer.edge(outer.join(outer.map(items, solve), collect(int)), outer.end)
    script = {f"inner[{i}]/say": str(i * 10) for i in range(3)} | {"say": "1"}
    async with ScriptedRuntime(script) as lm:
        async with outer.compile(limits=Limits(turns=5)).stream([1, 2, 3], lm=lm) as run:
            events: list[Event] = [e async for e in run]
        assert run.output == [0, 10, 20]
        assert "inner[2]/back" in {e.path for e in events}
        assert "inner[2]/say: prompt" in run.explain()
        with pytest.raises(LimitReached, match="program 'outer': 1 turns"):
            await twice(called).run(1, lm=lm)


def twice(called: Program[Any, Any, Any]) -> Program[None, Any, Any]:
    g: Any = Graph("outer", input=int, output=int)
    one, two = g.call(called), g.call(called)
    g.edge(g.start, one)
    g.edge(one, two)
    g.edge(two, g.end)
    return g.compile(limits=Limits(turns=1))
