"""Limits in tokens count whatever the journal has recorded, once each, whichever process generated it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from journal_harness import Stop, facts, once, stopping
from pydantic import BaseModel

from agentree.errors import JournalError, LimitReached
from agentree.graph import Ctx, Graph, Limits, Program, collect
from agentree.graph.journal.past import Past, tokens_of
from agentree.messages import Message, user
from agentree.testing import ScriptedRuntime

pytestmark = pytest.mark.anyio


class Note(BaseModel):
    text: str


def writing(word: Callable[[], str], stop: Callable[[], None], tokens: int) -> Program[None, str, str]:
    """A step that generates and may be stopped after that, then a turn of the model."""
    g = Graph("writing", input=str, output=str)

    @g.step
    async def write(ctx: Ctx, text: str) -> str:
        async with (ctx.transcript + user(word() * 50)).fork(2) as kids:
            made = await kids.gen(str, max_tokens=8)
        stop()
        return made[0].value

    @g.llm(str, max_tokens=8)
    def say(ctx: Ctx, text: str) -> Message:
        return user(text)

    g.edge(g.start, write)
    g.edge(write, say)
    g.edge(say, g.end)
    return g.compile(limits=Limits(tokens=tokens, on_limit="raise"))


def spent(journal: Path) -> tuple[int, int]:
    """What a resumed run would count as used, and what the journal recorded."""
    found = facts(journal)
    recorded = sum(tokens_of(fact.body) for fact in found if fact.kind == "generation")
    return Past(found).spent("").tokens, recorded


@pytest.mark.parametrize("words", [["a", "a", "a"], ["a", "b", "c"], ["a", "b", "a"]])
async def test_a_step_that_asks_for_something_else_has_used_both(journal: Path, words: list[str]) -> None:
    left = list(words)
    stops = [once(), once()]

    def stop() -> None:
        while stops:
            try:
                stops[-1]()
            except Stop:
                stops.pop()
                raise
            return

    program = writing(lambda: left.pop(0), stop, 100_000)
    async with ScriptedRuntime(lambda request: "ok") as lm:
        with pytest.raises(Stop):
            await program.run("go", lm=lm, journal=journal, run_id="run")
        with pytest.raises(Stop):
            await program.resume("run", lm=lm, journal=journal)
        await program.resume("run", lm=lm, journal=journal)
        used, recorded = spent(journal)
        assert used == recorded
        # All of it is used up: the limit is hit before the last turn.
        last = next(tokens_of(f.body) for f in reversed(facts(journal)) if f.kind == "generation")
        journal.unlink()
        left[:], stops[:] = words, [once(), once()]
        program = writing(lambda: left.pop(0), stop, recorded - last)
        for _ in range(2):
            with pytest.raises(Stop):
                if journal.exists():
                    await program.resume("run", lm=lm, journal=journal)
                else:
                    await program.run("go", lm=lm, journal=journal, run_id="run")
        with pytest.raises(LimitReached) as over:
            await program.resume("run", lm=lm, journal=journal)
        assert over.value.limit == "tokens"


async def test_a_turn_with_another_prompt_has_used_both(journal: Path) -> None:
    def asking(word: str) -> Program[None, str, str]:
        g = Graph("asking", input=str, output=str)

        @g.llm(Note, max_tokens=30)
        def ask(ctx: Ctx, text: str) -> Message:
            return user(word * 30)

        @g.step
        async def close(ctx: Ctx, note: Note) -> str:
            return note.text

        g.edge(g.start, ask)
        g.edge(ask, close)
        g.edge(close, g.end)
        return g.compile()

    async with ScriptedRuntime(lambda request: '{"text": "ok"}') as lm:
        with stopping(2), pytest.raises(JournalError, match="stopped here"):
            await asking("a").run("go", lm=lm, journal=journal, run_id="run")
        assert [fact.kind for fact in facts(journal)][-1] == "generation"
        assert await asking("b").resume("run", lm=lm, journal=journal) == "ok"
    used, recorded = spent(journal)
    assert used == recorded
    assert len([fact for fact in facts(journal) if fact.kind == "generation"]) == 2


async def test_branches_that_failed_have_used_what_they_generated(journal: Path) -> None:
    g = Graph("branches", input=str, output=str)
    stop = once()

    @g.step
    async def spread(ctx: Ctx, text: str) -> list[int]:
        return [0, 1, 2]

    @g.step
    async def work(ctx: Ctx, n: int) -> str:
        made = await (ctx.transcript + user(f"{n}" * 50)).gen(str, max_tokens=8)
        if n == 1:
            raise ValueError("no good")
        return made.value

    @g.step
    async def close(ctx: Ctx, said: list[str]) -> str:
        stop()
        return " ".join(said)

    g.edge(g.start, spread)
    g.map(spread, work)
    g.edge(g.join(work, collect(str), on_error="collect"), close)
    g.edge(close, g.end)
    program = g.compile()
    async with ScriptedRuntime(lambda request: "ok") as lm:
        with pytest.raises(Stop):
            await program.run("go", lm=lm, journal=journal, run_id="run")
        used, recorded = spent(journal)
        assert used == recorded
        assert await program.resume("run", lm=lm, journal=journal) == "ok ok"
        assert spent(journal) == (used, recorded)
