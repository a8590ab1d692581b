"""What a value shares with the run's state it shares again after the run was resumed."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from journal_harness import Stop, facts, once, stopping

from agentree.errors import JournalError
from agentree.graph import Ctx, Graph, Program, collect
from agentree.testing import ScriptedRuntime

pytestmark = pytest.mark.anyio


@dataclass
class Page:
    lines: list[str] = field(default_factory=list[str])


@dataclass
class Book:
    pages: list[Page] = field(default_factory=list[Page])
    last: Page | None = None


def writing(stop: Any) -> Program[Book, str, str]:
    """A step gives a page of the book, the next one writes on it."""
    g = Graph("writing", state=Book, input=str, output=str)

    @g.step
    async def turn(ctx: Ctx[Book], text: str) -> tuple[Page, list[Page]]:
        page = Page([text])
        ctx.state.pages.append(page)
        ctx.state.last = page
        return page, [page, Page()]

    @g.step
    async def same(ctx: Ctx[Book], given: tuple[Page, list[Page]]) -> tuple[Page, list[Page]]:
        return given

    @g.step
    async def write(ctx: Ctx[Book], given: tuple[Page, list[Page]]) -> str:
        stop()
        given[0].lines.append("more")
        assert given[1][0] is given[0]
        assert ctx.state.last is ctx.state.pages[0]
        return f"{ctx.state.pages} {given[1]}"

    g.edge(g.start, turn)
    g.edge(turn, same)
    g.edge(same, write)
    g.edge(write, g.end)
    return g.compile()


async def test_a_value_that_is_part_of_the_state_stays_part_of_it(journal: Path) -> None:
    async with ScriptedRuntime({}) as lm:
        plain = await writing(lambda: None).run("x", lm=lm)
        assert plain == "[Page(lines=['x', 'more'])] [Page(lines=['x', 'more']), Page(lines=[])]"
        for stop in range(4):
            run = f"r{stop}"
            with stopping(stop), pytest.raises(JournalError, match="stopped here"):
                await writing(lambda: None).run("x", lm=lm, journal=journal, run_id=run)
            assert await writing(lambda: None).resume(run, lm=lm, journal=journal) == plain
        with pytest.raises(Stop):
            await writing(once()).run("x", lm=lm, journal=journal, run_id="run")
        assert await writing(lambda: None).resume("run", lm=lm, journal=journal) == plain


async def test_branches_and_joins_keep_what_they_share_with_the_state(journal: Path) -> None:
    g = Graph("branches", state=Book, input=str, output=str)
    stops = [once(), once()]

    @g.step
    async def spread(ctx: Ctx[Book], text: str) -> list[Page]:
        ctx.state.pages += [Page(["a"]), Page(["b"])]
        return ctx.state.pages

    @g.step
    async def read(ctx: Ctx[Book], page: Page) -> Page:
        return page

    @g.step
    async def late(ctx: Ctx[Book], page: Page) -> Page:
        if page.lines == ["b"]:
            stops[0]()
        return page

    @g.step
    async def write(ctx: Ctx[Book], pages: list[Page]) -> str:
        stops[1]()
        for page in pages:
            page.lines.append("more")
        return f"{ctx.state.pages}"

    g.edge(g.start, spread)
    g.map(spread, read)
    g.edge(read, late)
    g.edge(g.join(late, collect(Page)), write)
    g.edge(write, g.end)
    program = g.compile()
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(Stop):
            await program.run("x", lm=lm, journal=journal, run_id="run")
        with pytest.raises(Stop):
            await program.resume("run", lm=lm, journal=journal)
        assert await program.resume("run", lm=lm, journal=journal) == (
            "[Page(lines=['a', 'more']), Page(lines=['b', 'more'])]"
        )


async def test_a_state_that_changed_in_its_types_alone_is_read_again(journal: Path) -> None:
    @dataclass
    class Box:
        value: float = 1

    stop = once()
    g = Graph("box", state=Box, input=str, output=str)

    @g.step
    async def change(ctx: Ctx[Box], text: str) -> str:
        ctx.state.value = True if text == "true" else 1.0
        return text

    @g.step
    async def look(ctx: Ctx[Box], text: str) -> str:
        stop()
        return repr(ctx.state.value)

    g.edge(g.start, change)
    g.edge(change, look)
    g.edge(look, g.end)
    program = g.compile()
    async with ScriptedRuntime({}) as lm:
        for text, value in (("true", "True"), ("float", "1.0")):
            stop = once()
            with pytest.raises(Stop):
                await program.run(text, lm=lm, journal=journal, run_id=text)
            assert await program.resume(text, lm=lm, journal=journal) == value


async def test_what_shares_nothing_is_written_without_a_word_of_the_state(journal: Path) -> None:
    async with ScriptedRuntime({}) as lm:
        await writing(lambda: None).run("x", lm=lm, journal=journal, run_id="run")
    outputs = {fact.path: fact.body["output"] for fact in facts(journal) if fact.kind == "node ended"}
    assert "of the state" in str(outputs["turn"])
    assert isinstance(outputs["write"], str)
