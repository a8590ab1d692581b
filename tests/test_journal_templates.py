"""Templates and kinds of nodes, stopped at every write of their journal: the same output, nothing twice."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from journal_harness import MEMORY, ended, generated, stopping
from pydantic import BaseModel

from agentree.errors import JournalError
from agentree.graph import Ctx, Graph, Limits, Program, best_of_n, map_reduce, react, tree_of_thought
from agentree.lm import Generation
from agentree.messages import Message, user
from agentree.testing import ScriptedRequest, ScriptedRuntime, final_answer
from agentree.tools import ToolCall, tool


class Answer(BaseModel):
    number: int


@tool(pure=True)
async def add(x: int) -> int:
    """Add one.

    Args:
        x: A number.
    """
    return x + 1


def reacting() -> Program[Any, Any, Any]:
    return react(tools=[add], output=Answer, limits=Limits(turns=2, on_limit="answer"))


def reacted(request: ScriptedRequest) -> Any:
    if request.path in ("think", "think#2"):
        return ToolCall("", "add", {"x": len(request.path)})
    return final_answer(Answer(number=7))


def best() -> Program[Any, Any, Any]:
    return best_of_n(output=Answer, n=3)


def worth(answer: Answer) -> float:
    return answer.number % 7


def search() -> Program[Any, Any, Any]:
    return tree_of_thought(thought=Answer, value=worth, breadth=3, width=2, depth=2)


def counted(request: ScriptedRequest) -> Any:
    return Answer(number=sum(request.prompt.encode()) % 50)


def reading() -> Program[Any, Any, Any]:
    return map_reduce(item=str, output=Answer, parallel=2)


def read(request: ScriptedRequest) -> Any:
    return "note" if request.path.startswith("read") else Answer(number=3)


def told(request: ScriptedRequest) -> Any:
    return f"<{len(request.prompt)}>"


def streaming() -> Program[Any, Any, Any]:
    g = Graph("streaming", input=str, output=str)

    @g.step
    async def tell(ctx: Ctx, text: str) -> str:
        pieces: list[str] = []
        async with (ctx.transcript + user(text)).stream(str, max_tokens=20) as stream:
            pieces += [piece async for piece in stream]
        scores = await stream.generation.transcript.score(["a", "b"])
        more = await stream.generation.transcript.gen(str, max_tokens=20, seed=4, temperature=1.0)
        ctx.goto(more.transcript)
        return "".join(pieces) + more.value + str(scores)

    @g.step
    async def after(ctx: Ctx, text: str) -> str:
        return f"{text} {len(ctx.transcript)}"

    g.edge(g.start, tell)
    g.edge(tell, after)
    g.edge(after, g.end)
    return g.compile()


def sampling() -> Program[Any, Any, Any]:
    """Generations flow along edges, out of a fork too."""
    g = Graph("sampling", input=str, output=str)

    @g.step
    async def two(ctx: Ctx, text: str) -> list[str]:
        return [text, text + "!"]

    draws = g.sample(3, Answer, max_tokens=40)

    @draws
    def draw(ctx: Ctx, text: str) -> Message:
        return user(text)

    @g.step
    async def pick(ctx: Ctx, made: list[Generation[Answer]]) -> Generation[Answer]:
        ctx.goto(made[1].transcript)
        return made[1]

    def together(made: Any) -> Any:
        return list(made)

    @g.step
    async def show(ctx: Ctx, made: list[Generation[Answer]]) -> str:
        return f"{[(one.value.number, len(one.transcript), one.seed) for one in made]}"

    g.edge(g.start, two)
    g.map(two, draw)
    g.edge(draw, pick)
    g.edge(g.join(pick, together), show)
    g.edge(show, g.end)
    return g.compile()


CASES: dict[str, tuple[Callable[[], Program[Any, Any, Any]], Any, Any]] = {
    "react with a last turn": (reacting, reacted, "go"),
    "best_of_n": (best, counted, "go"),
    "tree_of_thought": (search, counted, "go"),
    "map_reduce": (reading, read, ["a", "b", "c"]),
    "stream, score, goto": (streaming, told, "go"),
    "sample": (sampling, counted, "go"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_stopped_anywhere(name: str, backend: str) -> None:
    make, script, value = CASES[name]
    program = make()

    async def main(folder: Path) -> None:
        async with ScriptedRuntime(script, kv_tokens=1 << 17) as lm:
            whole = folder / "whole"
            plain = await program.run(value, lm=lm, seed=3)
            assert await program.run(value, lm=lm, seed=3, journal=whole, run_id="run") == plain
            stop = 0 if backend == "asyncio" else 2
            while True:
                parts = folder / f"parts{stop}"
                try:
                    with stopping(stop):
                        await program.run(value, lm=lm, seed=3, journal=parts, run_id="run")
                except JournalError:
                    pass
                else:
                    break
                assert await program.resume("run", lm=lm, journal=parts) == plain
                assert generated(parts) == generated(whole)
                assert ended(parts) == ended(whole)
                stop += 1 if backend == "asyncio" else 4
            assert stop > 2
            lm.check()

    with TemporaryDirectory(dir=MEMORY) as folder:
        anyio.run(main, Path(folder), backend=backend)
