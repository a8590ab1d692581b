"""What pyright makes of the public signatures: checked with the types, not run."""

from typing import Any, Literal, assert_type

from pydantic import BaseModel

from agentree.lm import Forks, Generation, Runtime, Stream, Transcript
from agentree.messages import user
from agentree.runtime.constraint import Choice, Regex
from agentree.tools import Tool, ToolCalls


class City(BaseModel):
    name: str


async def signatures(lm: Runtime, tools: list[Tool[..., Any]]) -> None:
    t = lm.transcript(user("a"), tools=tools, salt="x")
    assert_type(t, Transcript)
    assert_type(t + user("b"), Transcript)
    assert_type(t + [user("b"), user("c")], Transcript)  # noqa: RUF005
    assert_type(await t.gen(str), Generation[str])
    assert_type(await t.gen(City, max_tokens=9), Generation[City])
    assert_type(await t.gen(City, int), Generation[City | int])
    assert_type(await t.gen(Regex("a")), Generation[str])
    assert_type(await t.gen(Choice(["a"])), Generation[str])
    assert_type(await t.gen(Literal["a", "b"]), Generation[Any])
    assert_type(await t.gen(City | int | None), Generation[Any])
    assert_type(await t.call(tools, output=City), Generation[ToolCalls | City])
    assert_type(await t.score(["a"]), list[float])
    async with t.stream(City) as stream:
        assert_type(stream, Stream[City])
        assert_type(stream.generation, Generation[City])
        async for piece in stream:
            assert_type(piece, str)
    async with t.fork(2) as kids, lm.fork([t], each=2) as more:
        assert_type(kids, Forks)
        assert_type(more[0], Transcript)
        cities = await kids.gen(City)
        assert_type(cities, list[Generation[City]])
        assert_type(kids.keep(cities), list[Transcript])
        assert_type(kids.keep(c.transcript for c in cities), list[Transcript])


def test_signatures_are_for_pyright() -> None:
    assert signatures.__annotations__["lm"] is Runtime
