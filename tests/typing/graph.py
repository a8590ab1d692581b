"""What pyright must infer of graphs, and what it must refuse; checked by `pyright`, never run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_type

from pydantic import BaseModel

from agentree.graph import (
    Ctx,
    Graph,
    Limits,
    Node,
    Program,
    Run,
    Selector,
    best,
    best_of_n,
    collect,
    first,
    map_reduce,
    react,
    top,
    vote,
)
from agentree.lm import Generation, Runtime
from agentree.messages import Message, user
from agentree.tools import ToolCalls, ToolResult, tool


class Draft(BaseModel):
    text: str


class Grade(BaseModel):
    points: int


@dataclass
class Count:
    rounds: int = 0


@tool
def look(word: str) -> str:
    return word


g = Graph("essay", state=Count, input=str, output=str)


@g.llm(Draft)
def write(ctx: Ctx[Count], topic: str) -> Message:
    assert_type(ctx.state, Count)
    assert_type(ctx.attempt, int)
    return user(topic)


@g.llm(Draft, Grade)
def judge(ctx: Ctx[Count], draft: Draft) -> Message:
    return user(draft.text)


@g.llm(Draft, tools=[look])
def research(ctx: Ctx[Count], topic: str) -> Message:
    return user(topic)


@g.step
async def split(ctx: Ctx[Count], draft: Draft) -> list[str]:
    return draft.text.split()


@g.step(retries=2, timeout=1.5, pure=True)
async def text(ctx: Ctx[Count], draft: Draft) -> str:
    return draft.text


@g.step
async def points(ctx: Ctx[Count], grade: Grade) -> str:
    return str(grade.points)


@g.sample(3, Draft)
def tries(ctx: Ctx[Count], topic: str) -> Message:
    return user(topic)


assert_type(write, Node[Count, str, Draft])
assert_type(judge, Node[Count, Draft, Draft | Grade])
assert_type(research, Node[Count, str, ToolCalls | Draft])
assert_type(split, Node[Count, Draft, list[str]])
assert_type(text, Node[Count, Draft, str])
assert_type(tries, Node[Count, str, list[Generation[Draft]]])
assert_type(g.tools(look), Node[Count, ToolCalls, list[ToolResult]])
assert_type(g.map(split, write), Node[Count, str, Draft])
assert_type(g.join(write, collect(Draft)), Node[Count, Draft, list[Draft]])
assert_type(g.join(write, top(2, lambda d: len(d.text))), Node[Count, Draft, list[Draft]])
assert_type(g.join([write, write], vote(Draft), keep="winner"), Node[Count, Draft, Draft])
assert_type(g.join(write, first(Draft), keep="none", on_error="collect"), Node[Count, Draft, Draft])
assert_type(vote(Draft), Selector[Draft])


def length(draft: Draft) -> float:
    return float(len(draft.text))


assert_type(best(length), Selector[Draft])
assert_type(g.compile(limits=Limits(turns=3)), Program[Count, str, str])
assert_type(react(tools=[look], output=Draft), Program[None, str, Draft])
assert_type(best_of_n(output=Draft), Program[None, str, Draft])
assert_type(best_of_n(output=int, pick=max), Program[None, str, int])
assert_type(map_reduce(item=Grade, output=Draft), Program[None, Sequence[str], Draft])

# No class: nothing is inferred of these, what is written holds.
verdicts: Program[None, str, Literal["yes", "no"]] = best_of_n(output=Literal["yes", "no"])
either: Program[None, str, Draft | Grade] = react(tools=[look], output=Draft | Grade)
notes: Program[None, Sequence[str], Literal["good", "bad"]] = map_reduce(
    item=Literal["+", "-"], output=Literal["good", "bad"]
)
assert_type(map_reduce(item=Literal["+", "-"], output=Draft), Program[None, Sequence[str], Draft])
assert_type(best_of_n(output=Literal["yes", "no"]), Program[None, str, Any])

assert_type(g.call(react(tools=[look], output=Draft)), Node[Count, str, Draft])


g.edge(write, judge)
g.edge(judge, write)  # pyright: ignore[reportArgumentType]
g.edge(write, g.end)  # pyright: ignore[reportArgumentType]
g.edge(g.start, judge)  # pyright: ignore[reportArgumentType]
g.branch(judge).case(Draft, text).case(Grade, points)
g.branch(judge).case(Draft, text, where=lambda d: d.text == "").otherwise(points)
g.branch(judge).case(Grade, text)  # pyright: ignore[reportArgumentType]
g.map(write, judge)  # pyright: ignore[reportArgumentType]
g.join(write, collect(Draft), keep="winner")  # pyright: ignore[reportCallIssue, reportArgumentType]


@g.step  # pyright: ignore[reportArgumentType]
async def other_state(ctx: Ctx[int], x: str) -> str:
    return x


plain = Graph("plain", input=str, output=int)
assert_type(plain, Graph[None, str, int])


async def runs(program: Program[Count, str, str], lm: Runtime) -> None:
    assert_type(await program.run("a", lm=lm, state=Count()), str)
    await program.run(1, lm=lm)  # pyright: ignore[reportArgumentType]
    await program.run("a", lm=lm, state="no")  # pyright: ignore[reportArgumentType]
    async with program.stream("a", lm=lm) as run:
        assert_type(run, Run[str])
        assert_type(run.output, str)
    assert_type(program.run_sync("a"), str)
    assert_type(await program.resume("a", lm=lm, journal="j"), str)
    assert_type(program.resume_sync("a", journal="j"), str)
    async with program.resume_stream("a", lm=lm, journal="j") as again:
        assert_type(again, Run[str])


def untyped(node: Node[Count, Any, Any]) -> None:
    g.edge(node, g.end)
