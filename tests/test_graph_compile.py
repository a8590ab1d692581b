"""What `compile()` accepts, and what it says about the rest."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Never

import pytest
from pydantic import BaseModel

from agentree.errors import GraphError
from agentree.graph import Ctx, Graph, Limits, Program
from agentree.graph.flow import fits, flow_of, matches, overlaps, show
from agentree.messages import Message, user
from agentree.tools import Tool, ToolCalls, ToolResult, tool, tool_result


class Yes(BaseModel):
    text: str


class No(BaseModel):
    reason: str


@tool(pure=True)
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@tool(pure=True)
def negate(a: int) -> int:
    """Change the sign."""
    return -a


async def strings(ctx: Ctx, x: str) -> str:
    return x


def named(name: str, fn: Callable[..., Any] = strings) -> Any:
    made = partial(fn)
    made.__name__ = name  # pyright: ignore[reportAttributeAccessIssue]
    return made


def linear() -> tuple[Any, Any, Any]:
    g = Graph("g", input=str, output=str)
    a, b = g.step(named("a")), g.step(named("b"))
    g.edge(g.start, a)
    g.edge(a, b)
    return g, a, b


def refusal(g: Graph[Any, Any, Any], limits: Limits | None = None) -> str:
    with pytest.raises(GraphError) as caught:
        g.compile(limits=limits)
    return str(caught.value)


def test_a_line_compiles() -> None:
    g, _, b = linear()
    g.edge(b, g.end)
    program = g.compile()
    assert isinstance(program, Program)
    assert [type(op).__name__ for op in program.plan.ops] == ["Call", "Call"]


def test_later_changes_do_not_reach_a_program() -> None:
    g, a, b = linear()
    g.edge(b, g.end)
    program = g.compile()
    drawn = program.mermaid()
    g.step(named("c"))
    g.edge(a, g.end)
    assert program.mermaid() == drawn
    assert "'a' has two" in refusal(g)


def test_nothing_after_the_start() -> None:
    assert "g.edge(g.start" in refusal(Graph("g", input=str, output=str))


def test_an_unreachable_node_is_named() -> None:
    g, _, b = linear()
    g.edge(b, g.end)
    lost = g.step(named("lost"))
    g.edge(lost, g.end)
    assert "'lost' is unreachable" in refusal(g)


def test_a_node_without_a_way_on_is_named() -> None:
    g, _, _ = linear()
    assert "'b' leads nowhere: add g.edge(b, g.end)" in refusal(g)


def test_duplicate_names() -> None:
    g, _, b = linear()
    again = g.step(named("b"))
    g.edge(b, again)
    g.edge(again, g.end)
    assert "2 nodes are named 'b'" in refusal(g)


def test_two_lambdas_are_two_nodes_with_one_name() -> None:
    g = Graph("g", input=str, output=str)
    say: Callable[[Ctx, str], Message] = lambda ctx, x: user(x)  # noqa: E731
    a, b = g.llm(str)(say), g.llm(str)(say)
    g.edge(g.start, a)
    g.edge(a, b)
    g.edge(b, g.end)
    assert "named '<lambda>': give their functions different names" in refusal(g)


def test_start_and_end_are_taken() -> None:
    g = Graph("g", input=str, output=str)
    step = g.step(named("start"))
    g.edge(g.start, step)
    g.edge(step, g.end)
    assert "are taken" in refusal(g)


def test_an_edge_and_a_branch_from_one_node() -> None:
    g, a, b = linear()
    g.branch(a).otherwise(b)
    g.edge(b, g.end)
    assert "'a' has two ways on (a branch and an edge)" in refusal(g)


def test_no_path_to_the_end() -> None:
    g, a, b = linear()
    g.edge(b, a, max_visits=2)
    assert "no path leads from" in refusal(g)


def test_an_unbounded_cycle() -> None:
    g, a, b = linear()
    g.branch(b).case(str, a, where=bool).otherwise(g.end)
    assert "nothing bounds the cycle a -> b -> a: compile with limits=" in refusal(g)
    assert "no llm node is on it" in refusal(g, Limits())
    g.compile(limits=Limits(seconds=5))


def test_max_visits_bounds_a_cycle() -> None:
    g = Graph("g", input=str, output=str)
    a, b = g.step(named("a")), g.step(named("b"))
    g.edge(g.start, a)
    g.edge(a, b, max_visits=3)
    g.branch(b).case(str, a, where=bool).otherwise(g.end)
    g.compile()


def test_turns_bound_a_cycle_with_an_llm_node() -> None:
    g = Graph("g", input=str, output=str)

    @g.llm(str)
    def ask(ctx: Ctx, x: str) -> Message:
        return user(x)

    g.edge(g.start, ask)
    g.branch(ask).case(str, ask, where=bool).otherwise(g.end)
    assert "cycle ask -> ask" in refusal(g)
    g.compile(limits=Limits(turns=3))


def test_tool_calls_bound_a_cycle_of_tools() -> None:
    g = Graph("g", input=ToolCalls, output=ToolCalls)
    act = g.tools(add)

    @g.step
    async def again(ctx: Ctx, results: list[ToolResult]) -> ToolCalls:
        return ToolCalls(())

    g.edge(g.start, act)
    g.edge(act, again)
    g.branch(again).case(ToolCalls, act, where=lambda c: bool(c.calls)).otherwise(g.end)
    assert "nothing bounds" in refusal(g, Limits())
    g.compile(limits=Limits(tool_calls=3))


def two_answers() -> tuple[Any, Any, Any, Any]:
    g = Graph("g", input=str, output=str)

    @g.llm(Yes, No)
    def ask(ctx: Ctx, x: str) -> Message:
        return user(x)

    @g.step
    async def yes(ctx: Ctx, y: Yes) -> str:
        return y.text

    @g.step
    async def no(ctx: Ctx, n: No) -> str:
        return n.reason

    g.edge(g.start, ask)
    g.edge(yes, g.end)
    g.edge(no, g.end)
    return g, ask, yes, no


def test_a_branch_over_all_types_compiles() -> None:
    g, ask, yes, no = two_answers()
    g.branch(ask).case(Yes, yes).case(No, no)
    assert "Select" in str(g.compile().plan)


def test_an_open_branch_names_what_is_missing() -> None:
    g, ask, yes, no = two_answers()
    g.branch(ask).case(Yes, yes).case(No, no, where=bool)
    assert "is open: no case is sure to take No" in refusal(g)


def test_otherwise_closes_a_branch() -> None:
    g, ask, yes, no = two_answers()
    g.branch(ask).case(Yes, yes).otherwise(no)
    g.compile()
    with pytest.raises(GraphError, match="one otherwise"):
        case = g.branch(ask)
        case.otherwise(no)
        case.otherwise(yes)


def test_a_case_that_can_not_come() -> None:
    g, ask, yes, no = two_answers()
    g.branch(ask).case(Yes, yes).case(No, no).case(ToolResult, g.end)
    assert "a case for ToolResult, but 'ask' gives Yes | No" in refusal(g)


def test_a_case_whose_node_takes_something_else() -> None:
    g, ask, yes, _ = two_answers()
    g.branch(ask).case(Yes, yes).case(No, yes)
    assert "sends No to 'yes', which takes Yes" in refusal(g)


def test_a_branch_without_cases() -> None:
    g, ask, _, _ = two_answers()
    g.branch(ask)
    assert "no case" in refusal(g)


def test_a_type_mismatch_on_an_edge() -> None:
    g, ask, yes, _ = two_answers()
    g.edge(ask, yes)
    assert "edge 'ask' -> 'yes': 'ask' gives Yes | No, 'yes' takes Yes" in refusal(g)


def test_a_tools_node_must_know_the_tools() -> None:
    g = Graph("g", input=str, output=str)

    @g.llm(str, tools=[add, negate])
    def ask(ctx: Ctx, x: Any) -> Message:
        return user(str(x))

    act = g.tools(add)
    g.edge(g.start, ask)
    g.branch(ask).case(ToolCalls, act).otherwise(g.end)
    g.edge(act, ask)
    assert "'ask' may call negate, which 'tools' doesn't have" in refusal(g, Limits())


def test_system_only_for_the_first_llm_node() -> None:
    g = Graph("g", input=str, output=str)

    @g.llm(str, system="one")
    def first(ctx: Ctx, x: str) -> Message:
        return user(x)

    @g.llm(str, system="two")
    def second(ctx: Ctx, x: str) -> Message:
        return user(x)

    g.edge(g.start, first)
    g.edge(first, second)
    g.edge(second, g.end)
    assert "'second' has system=..., but 'first' comes before it" in refusal(g)


def test_a_loop_back_to_the_node_with_system_is_fine() -> None:
    g = Graph("g", input=str, output=str)

    @g.llm(str, system="one")
    def first(ctx: Ctx, x: str) -> Message:
        return user(x)

    @g.llm(str)
    def second(ctx: Ctx, x: str) -> Message:
        return user(x)

    g.edge(g.start, first)
    g.edge(first, second)
    g.branch(second).case(str, first, where=bool).otherwise(g.end)
    program = g.compile(limits=Limits())
    assert "begin with system" in program.explain()


@pytest.mark.parametrize("order", [[add, negate], [negate, add]])
def test_static_prefix_does_not_depend_on_the_order_of_tools(order: list[Tool[..., Any]]) -> None:
    g = Graph("g", input=str, output=str)

    @g.llm(str, tools=order)
    def ask(ctx: Ctx, x: str) -> Message:
        return user(x)

    act = g.tools(*order)

    @g.step
    async def observe(ctx: Ctx, results: list[ToolResult]) -> str:
        return tool_result(results).text

    g.edge(g.start, ask)
    g.branch(ask).case(ToolCalls, act).otherwise(g.end)
    g.edge(act, observe)
    g.edge(observe, ask)
    (head,) = g.compile(limits=Limits())._definition.heads.values()
    assert [t.name for t in head.tools] == ["add", "negate"]


def test_nodes_of_another_graph() -> None:
    g, _, _ = linear()
    other, a, _ = linear()
    with pytest.raises(GraphError, match="belongs to another graph than 'g'"):
        g.edge(a, g.end)
    with pytest.raises(GraphError, match="is not a node: decorate"):
        other.edge(other.start, strings)


def test_functions_with_a_wrong_shape() -> None:
    g: Graph[None, str, str] = Graph("g", input=str, output=str)

    async def lonely(ctx: Ctx) -> str:
        return ""

    with pytest.raises(GraphError, match=r"'lonely': its function must take \(ctx, value\)"):
        g.step(lonely)  # pyright: ignore[reportArgumentType]
    with pytest.raises(GraphError, match="write 'def'"):
        g.llm(str)(strings)  # pyright: ignore[reportArgumentType]


def test_edges_into_start_and_out_of_end() -> None:
    g, a, b = linear()
    g.edge(b, g.end)
    g.edge(g.end, a)
    assert "nothing comes after 'end'" in refusal(g)
    g, _, b = linear()
    g.edge(b, g.start)
    assert "leads back to 'start'" in refusal(g)


@pytest.mark.parametrize(
    "bad",
    [{"turns": 0}, {"tokens": 0}, {"tool_calls": -1}, {"seconds": 0}, {"repeats": 1}, {"on_limit": "stop"}],
)
def test_limits_out_of_range(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))}="):
        Limits(**bad)


def test_explain_and_mermaid_name_every_node() -> None:
    g, ask, yes, no = two_answers()
    g.branch(ask).case(Yes, yes).case(No, no)
    program = g.compile()
    for name in ("ask", "yes", "no", "start", "end"):
        assert name in program.explain()
        assert f'"{name}"' in program.mermaid()
    assert "generate Yes | No" in program.explain()
    assert "release ask" in program.explain()
    assert '-->|"Yes"|' in program.mermaid()


def test_mermaid_escapes_labels() -> None:
    g: Graph[None, str, str] = Graph("g", input=str, output=str)
    odd = g.step(named('<b>"&'))
    g.edge(g.start, odd)
    g.edge(odd, g.end)
    assert "&lt;b&gt;&quot;&amp;" in g.compile().mermaid()


def test_next_use_counts_visits() -> None:
    g = Graph("g", input=str, output=str)

    @g.llm(str)
    def ask(ctx: Ctx, x: str) -> Message:
        return user(x)

    a, b = g.step(named("a")), g.step(named("b"))
    g.edge(g.start, ask)
    g.edge(ask, a)
    g.edge(a, b)
    g.branch(b).case(str, ask, where=bool).otherwise(g.end)
    program = g.compile(limits=Limits())
    assert program._definition.distance["ask"] == 3
    assert program._definition.distance["b"] == 1
    assert "lease ask: read again after 3 visits" in program.explain()


@dataclass
class Base:
    x: int = 0


class Derived(Base):
    pass


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (int, int, True),
        (bool, int, True),
        (int, float, True),
        (float, int, False),
        (str, int, False),
        (Derived, Base, True),
        (Base, Derived, False),
        (list[int], list[int], True),
        (list[str], list[int], False),
        (list[int], list, True),
        (dict[str, int], dict[str, str], False),
        (int | str, int, False),
        (int, int | str, True),
        (int | None, int | None, True),
        (None, int, False),
        (Literal["a"], str, True),
        (str, Literal["a"], True),
        (Literal["a"], Literal["a", "b"], True),
        (Literal["c"], Literal["a", "b"], False),
        (Any, int, True),
        (int, Any, True),
        (Never, int, True),
        (int, object, True),
    ],
)
def test_fits(source: Any, target: Any, expected: bool) -> None:
    assert fits(source, target) is expected, (show(source), show(target))


def test_overlaps_goes_both_ways() -> None:
    assert overlaps(Base, Derived)
    assert overlaps(Derived, Base)
    assert not overlaps(int | str, Yes)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (1, int, True),
        (1, float, True),
        (1.5, int, False),
        ("a", Literal["a", "b"], True),
        ("c", Literal["a", "b"], False),
        (1, Literal[True], False),
        ([1], list[int], True),
        (None, None, True),
        (None, int | None, True),
        (Derived(), Base, True),
        ("x", Any, True),
    ],
)
def test_matches(value: object, kind: Any, expected: bool) -> None:
    assert matches(value, kind) is expected


def test_flow_of_functions_that_tell_little() -> None:
    def bare(ctx, x):  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]
        return x  # pyright: ignore[reportUnknownVariableType]

    assert flow_of(bare).input is Any  # pyright: ignore[reportUnknownArgumentType]
    assert flow_of(strings).input is str
    assert flow_of(strings).output is str
