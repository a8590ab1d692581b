"""Random graphs against a plain interpreter of the same tree: values, failures, prefixes, leases."""

import re
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from agentree.errors import GraphError
from agentree.events import Event, NodeEnded, NodeStarted, RunEnded
from agentree.graph import Ctx, Graph, Limits, best
from agentree.graph.plan import Extend
from agentree.messages import Message, user
from agentree.testing import ScriptedRequest, ScriptedRuntime
from agentree.testing.engine import ScriptedEngine
from benchmarks.agents import Account

ROUNDS = 12
"""A loop that goes on for longer makes an example too large."""
Keep = Literal["fork", "winner", "none"]
OnError = Literal["raise", "collect"]


@dataclass(frozen=True)
class Tree:
    """A part of a graph with one way in and one way out."""

    kind: str
    parts: tuple["Tree", ...] = ()
    keep: Keep = "fork"
    on_error: OnError = "raise"
    fails: bool = False


def trees() -> st.SearchStrategy[Tree]:
    leaves = st.one_of(
        st.builds(Tree, st.just("step"), fails=st.sampled_from([False] * 9 + [True])),
        st.just(Tree("llm")),
        st.just(Tree("llm")),
        st.just(Tree("fresh")),
    )
    keeps, errors = (
        st.sampled_from(["fork", "winner", "none"]),
        st.sampled_from(["raise", "raise", "collect"]),
    )

    def grow(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        one, some = st.tuples(inner), st.lists(inner, min_size=1, max_size=3).map(tuple)
        return st.one_of(
            st.builds(Tree, st.just("seq"), some),
            st.builds(Tree, st.just("fork"), some, keeps, errors),
            st.builds(Tree, st.just("map"), one, keeps, errors),
            st.builds(Tree, st.just("branch"), st.tuples(inner, inner)),
            st.builds(Tree, st.just("loop"), one),
        )

    return st.recursive(leaves, grow, max_leaves=10)


class Boom(Exception):
    """A step that fails, or several of which any may be the first."""

    def __init__(self, steps: set[int]) -> None:
        super().__init__(f"steps {sorted(steps)}")
        self.steps = steps


def stepped(x: int, number: int) -> int:
    return (x * 31 + number) % 1009


def said(x: int, number: int) -> int:
    return number * 100 + (x * 17 + number) % 100


@dataclass
class Built:
    """A graph with an interpreter beside it. Numbers are given in the same order by both."""

    g: Any = field(default_factory=lambda: Graph("random", input=int, output=int))
    numbers: dict[int, int] = field(default_factory=dict[int, int])
    seen: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Per llm visit: its node, and the node whose answer its transcript ends with."""
    count: int = 0

    def number(self) -> int:
        self.count += 10
        return self.count

    # ------------------------------------------------------------------------------- as a graph

    def step(
        self,
        source: Any,
        number: int,
        *,
        fails: bool = False,
        fn: Any = None,
        edge: bool = True,
        transcript: str = "continue",
    ) -> Any:
        async def run(ctx: Ctx, x: int) -> Any:
            await anyio.lowlevel.checkpoint()
            if fails:
                raise Boom({number})
            return fn(x) if fn else stepped(x, number)

        run.__name__ = f"s{number}"
        node = self.g.step(run)
        if edge:
            self.g.edge(source, node, transcript=transcript)
        return node

    def build(self, tree: Tree, source: Any, path: tuple[int, ...] = ()) -> Any:
        """Wire a tree after `source`; the node that it ends with."""
        number = self.numbers[hash_of(path)] = self.number()
        match tree.kind:
            case "step":
                return self.step(source, number, fails=tree.fails)
            case "fresh":
                return self.step(source, number, transcript="fresh")
            case "llm":
                return self.llm(source, number)
            case "seq":
                for i, part in enumerate(tree.parts):
                    source = self.build(part, source, (*path, i))
                return source
            case "fork":
                heads = [self.step(source, number + 1 + i, edge=False) for i in range(len(tree.parts))]
                self.g.fork(source, *heads)
                parts = zip(tree.parts, heads, range(len(heads)), strict=True)
                return self.join([self.build(part, head, (*path, i)) for part, head, i in parts], tree)
            case "map":
                many = self.step(source, number, fn=spread)
                head = self.step(many, number + 1, edge=False)
                self.g.map(many, head)
                return self.join([self.build(tree.parts[0], head, (*path, 0))], tree)
            case "branch":
                a = self.step(source, number + 1, edge=False)
                b = self.step(source, number + 2, edge=False)
                self.g.branch(source).case(int, a, where=is_even).otherwise(b)
                end = self.step(self.build(tree.parts[0], a, (*path, 0)), number + 3)
                self.g.edge(self.build(tree.parts[1], b, (*path, 1)), end)
                return end
            case _:
                head = self.step(source, number + 1)
                check = self.step(self.build(tree.parts[0], head, (*path, 0)), number + 2)
                end = self.step(check, number + 3, edge=False)
                self.g.branch(check).case(int, head, where=is_third).otherwise(end)
                return end

    def llm(self, source: Any, number: int) -> Any:
        def prompt(ctx: Ctx, x: int) -> Message:
            answers = re.findall(r"assistant\n(\d+)", ctx.transcript.text)
            self.seen.append((f"l{number}", f"l{int(answers[-1]) // 100}" if answers else ""))
            return user(str(x))

        prompt.__name__ = f"l{number}"
        node = self.g.llm(int, max_tokens=32)(prompt)
        self.g.edge(source, node)
        return node

    def join(self, ends: list[Any], tree: Tree) -> Any:
        reduce = best(rank) if tree.keep == "winner" else total
        return self.g.join(ends, reduce, keep=tree.keep, on_error=tree.on_error)

    # -------------------------------------------------------------------------- as an interpreter

    def value(self, tree: Tree, x: int, path: tuple[int, ...] = ()) -> int:
        number = self.numbers[hash_of(path)]
        match tree.kind:
            case "step":
                if tree.fails:
                    raise Boom({number})
                return stepped(x, number)
            case "fresh":
                return stepped(x, number)
            case "llm":
                return said(x, number)
            case "seq":
                for i, part in enumerate(tree.parts):
                    x = self.value(part, x, (*path, i))
                return x
            case "fork":
                begins = [(i, stepped(x, number + 1 + i)) for i in range(len(tree.parts))]
                return self.met(tree, begins, path)
            case "map":
                begins = [(0, stepped(x + i, number + 1)) for i in range(x % 4)]
                if not begins and tree.keep == "winner":
                    raise Boom({0})
                return self.met(tree, begins, path)
            case "branch":
                way = 0 if x % 2 == 0 else 1
                inner = self.value(tree.parts[way], stepped(x, number + 1 + way), (*path, way))
                return stepped(inner, number + 3)
            case _:
                for _ in range(ROUNDS):
                    inner = self.value(tree.parts[0], stepped(x, number + 1), (*path, 0))
                    x = stepped(inner, number + 2)
                    if x % 3:
                        return stepped(x, number + 3)
                assume(False)
                raise AssertionError

    def met(self, tree: Tree, begins: list[tuple[int, int]], path: tuple[int, ...]) -> int:
        results: list[int] = []
        failed: set[int] = set()
        for i, begin in begins:
            try:
                results.append(self.value(tree.parts[i], begin, (*path, i)))
            except Boom as boom:
                failed |= boom.steps
        if failed and (tree.on_error == "raise" or not results):
            raise Boom(failed)
        return max(results, key=rank) if tree.keep == "winner" else total(results)


def spread(x: int) -> list[int]:
    return [x + i for i in range(x % 4)]


def is_even(x: int) -> bool:
    return x % 2 == 0


def is_third(x: int) -> bool:
    return x % 3 == 0


def rank(x: int) -> int:
    return x * 7 % 31


def hash_of(path: tuple[int, ...]) -> int:
    return hash(path)


def total(xs: Any) -> int:
    return sum(xs) % 1009


def script(request: ScriptedRequest) -> int:
    number = int(re.findall(r"l(\d+)(?:\[\d+\])*(?:#\d+)?$", request.path)[0])
    return said(int(re.findall(r"user\n(\d+)", request.prompt)[-1]), number)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(tree=trees(), x=st.integers(0, 50))
def test_random_graphs(backend: str, tree: Tree, x: int) -> None:
    built = Built()
    tail = built.build(tree, built.step(built.g.start, 0, fn=int))
    built.g.edge(tail, built.g.end)
    program = built.g.compile(limits=Limits(turns=10_000, seconds=600))
    expected: int | Boom
    try:
        expected = built.value(tree, x)
    except Boom as boom:
        expected = boom

    async def main() -> None:
        events: list[Event] = []
        account = Account()
        async with ScriptedRuntime(script, kv_tokens=1 << 18) as lm:
            outcome: object = None
            engine = lm._home.last.engine()
            assert isinstance(engine, ScriptedEngine)
            account.observe(engine)
            try:
                async with program.stream(x, lm=lm) as run:
                    events.extend([event async for event in run])
                    outcome = run.output
            except Exception as error:
                outcome = error
            lm.check()
            stats = lm.stats()
        if isinstance(expected, int):
            assert outcome == expected
        elif expected.steps == {0}:
            assert "nothing to pick from" in str(outcome)
        else:
            assert isinstance(outcome, Boom) or "nothing to pick from" in str(outcome)
            assert not isinstance(outcome, Boom) or outcome.steps <= expected.steps
        assert stats.leased == stats.private == 0
        assert account.computed == stats.computed_tokens == account.unique + account.full_hits
        assert isinstance(events[-1], RunEnded)
        started = [e.path for e in events if isinstance(e, NodeStarted)]
        ended = [e.path for e in events if isinstance(e, NodeEnded)]
        assert len(set(started)) == len(started)
        assert sorted(started) == sorted(ended)

    anyio.run(main, backend=backend)
    for node, producer in built.seen:
        onto = {t for op in program.plan.blocks[node] if isinstance(op, Extend) for t in op.onto}
        assert producer in onto, f"{node} went on from {producer!r}, the plan says {onto}"


LLM = Tree("llm")
KEPT: list[tuple[Tree, set[str]]] = [
    (Tree("fork", (LLM, LLM), "fork"), {"before"}),
    (Tree("fork", (LLM, LLM), "winner"), {"inside"}),
    (Tree("fork", (LLM, LLM), "none"), {"nothing"}),
    (Tree("fork", (LLM, Tree("step")), "winner"), {"inside", "before"}),
    (Tree("map", (LLM,), "fork"), {"before"}),
    (Tree("map", (LLM,), "none"), {"nothing"}),
    (Tree("map", (Tree("fork", (LLM, LLM), "winner"),), "winner"), {"inside"}),
    (Tree("fork", (Tree("map", (LLM,), "none"), LLM), "winner"), {"inside", "nothing"}),
    (Tree("branch", (LLM, Tree("step"))), {"inside", "before"}),
    (Tree("branch", (Tree("fork", (LLM,), "none"), Tree("map", (LLM,), "fork"))), {"nothing", "before"}),
    (Tree("loop", (LLM,)), {"inside"}),
    (Tree("fresh"), {"nothing"}),
    (Tree("branch", (Tree("fresh"), LLM)), {"nothing", "inside"}),
    (Tree("fork", (Tree("fresh"), LLM), "winner"), {"nothing", "inside"}),
    (Tree("fork", (Tree("fresh"), LLM), "fork"), {"before"}),
    (Tree("loop", (Tree("seq", (LLM, Tree("fresh"))),)), {"nothing"}),
]


@pytest.mark.parametrize(("tree", "kinds"), KEPT)
def test_planned_prefix_edges_are_the_observed_ones(tree: Tree, kinds: set[str]) -> None:
    """Over inputs that take every way, nothing is seen that was not planned, and all that was is seen."""
    built = Built()
    tail = built.build(Tree("seq", (LLM, tree, LLM)), built.step(built.g.start, 0, fn=int))
    built.g.edge(tail, built.g.end)
    program = built.g.compile(limits=Limits(turns=10_000, seconds=600))

    async def main() -> None:
        async with ScriptedRuntime(script, kv_tokens=1 << 18) as lm:
            for x in range(60):
                try:
                    await program.run(x, lm=lm)
                except GraphError as error:
                    assert "nothing to pick from" in str(error)
                stats = lm.stats()
                assert stats.leased == stats.private == 0

    anyio.run(main)
    observed: dict[str, set[str]] = {}
    for node, producer in built.seen:
        observed.setdefault(node, set()).add(producer)
    planned = {
        op.node: set(op.onto) for op in program.plan.ops if isinstance(op, Extend) and op.parts == ("prompt",)
    }
    assert observed == planned
    first, last = (min(planned, key=number_of), max(planned, key=number_of))
    named = {"": "nothing", first: "before"}
    assert {named.get(t, "inside") for t in planned[last]} == kinds


def number_of(node: str) -> int:
    return int(node[1:])
