"""Doors to a run that was begun before: at once where it is done, and the same ones without an event loop."""

from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest
from tiny_models import tiny_llama

from agentree.cli import main
from agentree.errors import AgentreeError, Interrupted, InvalidArgument, JournalError, RuntimeClosed
from agentree.events import RunEnded, RunStarted
from agentree.graph import Ctx, Graph, Program
from agentree.lm import Generation, Runtime
from agentree.messages import Message, user
from agentree.testing import ScriptedRequest, ScriptedRuntime, forbid_models


def greeting(name: str = "greeting", *, system: str | None = None) -> Program[None, str, str]:
    g = Graph(name, input=str, output=str)

    @g.llm(str, max_tokens=8, system=system)
    def greet(ctx: Ctx, text: str) -> Message:
        return user(text)

    @g.step
    async def check(ctx: Ctx, text: str) -> str:
        return f"{text} {await ctx.interrupt('Fine?', bool)}"

    g.edge(g.start, greet)
    g.edge(greet, check)
    g.edge(check, g.end)
    return g.compile()


def answers() -> Program[None, str, list[Generation[str]]]:
    """A program whose output holds transcripts: only a runtime can give those back."""
    g = Graph("answers", input=str, output=list[Generation[str]])

    @g.sample(2, str, max_tokens=8)
    def say(ctx: Ctx, text: str) -> Message:
        return user(text)

    g.edge(g.start, say)
    g.edge(say, g.end)
    return g.compile()


def begin(program: Program[None, str, str], journal: Path) -> None:
    """A run that waits for a person."""
    with ScriptedRuntime(["hello"]) as lm, pytest.raises(Interrupted):
        program.run_sync("go", lm=lm, journal=journal, run_id="a")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_run_that_is_done_needs_no_open_runtime(journal: Path) -> None:
    program, closed = greeting(), Runtime("no such model")
    async with ScriptedRuntime(["hello"]) as lm:
        with pytest.raises(Interrupted):
            await program.run("go", lm=lm, journal=journal, run_id="a")
        with pytest.raises(RuntimeClosed):
            await program.resume("a", lm=closed, journal=journal)
        assert await program.resume("a", lm=lm, journal=journal, answers={"check": True}) == "hello True"
    with forbid_models():
        assert await program.resume("a", lm=closed, journal=journal) == "hello True"
        with pytest.raises(JournalError, match="answered already"):
            await program.resume("a", lm=closed, journal=journal, answers={"check": True})
        with pytest.raises(JournalError, match="has changed"):
            await greeting(system="Be kind.").resume("a", lm=closed, journal=journal)
        with pytest.raises(JournalError, match="not of 'other'"):
            await greeting("other").resume("a", lm=closed, journal=journal, changed="accept")
        with pytest.raises(JournalError, match="holds no run 'b'"):
            await program.resume("b", lm=closed, journal=journal)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_transcripts_in_an_output_need_the_runtime(journal: Path) -> None:
    async with ScriptedRuntime(["one", "two"]) as lm:
        made = await answers().run("go", lm=lm, journal=journal, run_id="a")
        again = await answers().resume("a", lm=lm, journal=journal)
        assert [g.transcript.text for g in again] == [g.transcript.text for g in made]
    with pytest.raises(RuntimeClosed):
        await answers().resume("a", lm=lm, journal=journal)


def test_the_doors_of_scripts_take_what_the_others_take(journal: Path) -> None:
    program = greeting()
    begin(program, journal)
    with ScriptedRuntime([]) as lm:
        with pytest.raises(Interrupted):
            program.resume_sync("a", lm=lm, journal=journal)
        assert program.resume_sync("a", lm=lm, journal=journal, answers={"check": True}) == "hello True"
    assert program.resume_sync("a", journal=journal) == "hello True"
    with ScriptedRuntime(["hello"]) as lm, pytest.raises(Interrupted):
        program.run_sync("go", lm=lm, transcript=lm.transcript(user("before")), journal=journal, run_id="b")
    refused = pytest.raises(InvalidArgument, match="belongs to another runtime")
    with ScriptedRuntime([]) as one, ScriptedRuntime([]) as other, refused:
        program.run_sync("go", lm=one, transcript=other.transcript(user("before")))


def test_without_a_runtime_the_runs_own_model_is_opened(journal: Path, tmp_path: Path) -> None:
    program, folder = greeting(), tiny_llama(tmp_path, layers=1)
    with Runtime(folder) as lm, pytest.raises(Interrupted):
        program.run_sync("go", lm=lm, journal=journal, run_id="a")
    made = program.resume_sync("a", journal=journal, answers={"check": False})
    assert made.endswith(" False")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_where_a_loop_runs_the_way_out_is_named(journal: Path) -> None:
    with pytest.raises(AgentreeError, match=r"use 'await program.resume\(\.\.\.\)' there"):
        greeting().resume_sync("a", journal=journal)


def test_the_command_loads_no_model_for_a_run_that_is_done(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plain.py").write_text(
        "from agentree import Ctx, Graph\n"
        "g = Graph('plain', input=str, output=str)\n"
        "@g.step\n"
        "async def shout(ctx: Ctx, text: str) -> str:\n"
        "    return text.upper()\n"
        "g.edge(g.start, shout)\n"
        "g.edge(shout, g.end)\n"
        "program = g.compile()\n"
    )
    monkeypatch.chdir(tmp_path)
    model = ["--model", str(tiny_llama(tmp_path, layers=1)), "--quiet"]
    kept = ["--journal", str(journal)]
    assert main(["run", "plain.py", "--input", "x", "--run-id", "a", *kept, *model]) == 0
    with forbid_models():
        assert main(["runs", "resume", "a", *kept, *model]) == 0
    assert capsys.readouterr().out == "X\nX\n"


def thinking(stops: list[str]) -> Program[None, str, str]:
    """Two llm nodes and a step that generates by itself; an entry of `stops` names where it stops."""
    g = Graph("thinking", input=str, output=str)

    def stop(where: str) -> None:
        if stops and stops[0] == where:
            raise OSError(stops.pop(0))

    @g.llm(str, max_tokens=8, system="You think.")
    def one(ctx: Ctx, text: str) -> Message:
        return user(text)

    @g.step
    async def search(ctx: Ctx, text: str) -> str:
        first = await ctx.transcript.gen(Literal["left", "right"], temperature=1.0)
        stop("between")
        second = await first.transcript.gen(str, max_tokens=8)
        stop("after")
        return first.value + second.value

    @g.llm(bool)
    def two(ctx: Ctx, text: str) -> Message:
        stop("before two")
        return user(text)

    @g.step
    async def last(ctx: Ctx, good: bool) -> str:
        stop("end")
        return str(good)

    g.edge(g.start, one)
    g.edge(one, search)
    g.edge(search, two)
    g.edge(two, last)
    g.edge(last, g.end)
    return g.compile()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("stops", [["between"], ["after"], ["between", "after", "before two", "end"]])
async def test_usage_is_that_of_the_whole_run(journal: Path, stops: list[str]) -> None:
    """Stopped and resumed on runtimes with empty caches: no generation counts twice, and none is missing."""

    def answer(request: ScriptedRequest) -> object:
        return True if request.path == "two" else "left"

    program = thinking(left := list(stops))
    plain = thinking([])
    async with ScriptedRuntime(answer) as lm, plain.stream("go", lm=lm, seed=1) as run:
        _ = [event async for event in run]
    expected = run.usage
    assert expected.prompt_tokens == (expected.cached_tokens or 0) + (expected.computed_tokens or 0)
    computed, output, used = 0, "", expected
    for attempt in range(len(stops) + 1):
        async with ScriptedRuntime(answer) as lm:
            with suppress(OSError):
                async with (
                    program.stream("go", lm=lm, seed=1, journal=journal, run_id="a")
                    if attempt == 0
                    else program.resume_stream("a", lm=lm, journal=journal)
                ) as again:
                    _ = [event async for event in again]
                output, used = again.output, again.usage
            computed += lm.stats().computed_tokens
    assert (output, left) == ("True", [])
    assert (used.prompt_tokens, used.output_tokens) == (expected.prompt_tokens, expected.output_tokens)
    assert used.forced_tokens == expected.forced_tokens
    assert used.computed_tokens == computed
    assert used.prompt_tokens == (used.cached_tokens or 0) + computed
    async with ScriptedRuntime([]) as lm, program.resume_stream("a", lm=lm, journal=journal) as done:
        events = [event async for event in done]
    assert (done.output, done.usage) == ("True", used)
    assert [type(event) for event in events] == [RunStarted, RunEnded]
