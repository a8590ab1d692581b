"""Steps that are tried again: what a person said already is not asked again."""

from pathlib import Path

import anyio
import pytest

from agentree.errors import Interrupted
from agentree.graph import Ctx, Graph, Program
from agentree.graph.journal.reading import Runs
from agentree.testing import ScriptedRuntime

pytestmark = pytest.mark.anyio


def asking(fails: list[str], heard: list[object], *, drift: bool = False) -> Program[None, str, str]:
    """A step that asks the same twice and something else, and fails where `fails` says so; three tries."""
    g = Graph("asking", input=str, output=str)

    @g.step(retries=2)
    async def ask(ctx: Ctx, text: str) -> str:
        first = await ctx.interrupt("Number?", int)
        heard.append(first)
        if fails and fails[0] == "first":
            raise OSError(fails.pop(0))
        second = await ctx.interrupt("Number?", int)
        name = await ctx.interrupt(f"Name{f' at try {ctx.attempt}' if drift else ''}?", str)
        heard.append(name)
        if fails and fails[0] == "last":
            raise OSError(fails.pop(0))
        return f"{first} {second} {name}"

    g.edge(g.start, ask)
    g.edge(ask, g.end)
    return g.compile()


async def test_a_retry_is_given_the_answers_that_are_known(journal: Path) -> None:
    heard: list[object] = []
    program = asking(["first", "last", "last"], heard)
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(Interrupted):
            await program.run("go", lm=lm, journal=journal, run_id="a")
        for path, value, following in (("ask", 1, "ask:2"), ("ask:2", 2, "ask:3")):
            with pytest.raises(Interrupted) as asked:
                await program.resume("a", lm=lm, journal=journal, answers={path: value})
            assert [q.path for q in asked.value.questions] == [following]
        # The last answer is given once, and reaches both of the tries that fail after it, and a third.
        output = await program.resume("a", lm=lm, journal=journal, answers={"ask:3": "Ada"})
    assert output == "1 2 Ada"
    assert heard[-3 * 2 :] == [1, "Ada"] * 3
    with Runs(journal) as runs:
        facts = runs.show("a").facts
    assert [fact.body["id"] for fact in facts if fact.kind == "question"] == ["ask", "ask:2", "ask:3"]


async def test_a_retry_that_asks_something_else_asks_it_anew(journal: Path) -> None:
    heard: list[object] = []
    program = asking(["last"], heard, drift=True)
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(Interrupted):
            await program.run("go", lm=lm, journal=journal, run_id="a")
        for answers in ({"ask": 1}, {"ask:2": 2}, {"ask:3": "Ada"}):
            with pytest.raises(Interrupted) as asked:
                await program.resume("a", lm=lm, journal=journal, answers=answers)
        assert [(q.path, q.text) for q in asked.value.questions] == [("ask:4", "Name at try 2?")]
        # The first try does not fail any more: it needs no answer to what the second one asked.
        assert await program.resume("a", lm=lm, journal=journal) == "1 2 Ada"
    with Runs(journal) as runs:
        assert runs.show("a").questions == []


async def test_a_branch_of_a_step_that_waits_does_not_hide_one_that_fails(journal: Path) -> None:
    g = Graph("both", input=str, output=str)
    tries: list[int] = []

    @g.step(retries=1)
    async def ask(ctx: Ctx, text: str) -> str:
        tries.append(ctx.attempt)
        found: list[str] = []

        async def question() -> None:
            found.append(await ctx.interrupt("Name?", str))

        async def failure() -> None:
            if ctx.attempt == 1:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.02)
                raise OSError("no route")

        async with anyio.create_task_group() as group:
            group.start_soon(question)
            group.start_soon(failure)
        return found[0]

    g.edge(g.start, ask)
    g.edge(ask, g.end)
    program = g.compile()
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(Interrupted) as asked:
            await program.run("go", lm=lm, journal=journal, run_id="a")
        assert [q.path for q in asked.value.questions] == ["ask"]
        assert tries == [1, 2]
        assert await program.resume("a", lm=lm, journal=journal, answers={"ask": "Ada"}) == "Ada"
