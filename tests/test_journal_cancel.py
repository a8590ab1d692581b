"""Runs that somebody cancels from another process: they stop soon, whatever they wait for."""

import subprocess
import sys
import threading
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from agentree.cli import main
from agentree.errors import AgentreeError, JournalError
from agentree.graph import Ctx, Graph, Program
from agentree.graph.journal.facts import Header
from agentree.graph.journal.file import JournalFile
from agentree.graph.journal.lock import RunLock
from agentree.graph.journal.reading import Runs
from agentree.testing import Reply, ScriptedRuntime
from agentree.tools import ToolCall, ToolCalls, ToolResult, tool


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "runs.journal"


def waiting(begun: threading.Event, left: list[str]) -> Program[None, ToolCalls, list[ToolResult]]:
    """Two tools side by side that write no fact for a long time."""

    @tool
    async def wait(how: str) -> str:
        """Wait in some way."""
        begun.set()
        try:
            if how == "thread":
                await anyio.to_thread.run_sync(threading.Event().wait, 60, abandon_on_cancel=True)
            await anyio.sleep(60)
        finally:
            left.append(how)
        return how

    g = Graph("waiting", input=ToolCalls, output=list[ToolResult])
    act = g.tools(wait)
    g.edge(g.start, act)
    g.edge(act, g.end)
    return g.compile()


CALLS = ToolCalls(tuple(ToolCall(how, "wait", {"how": how}) for how in ("thread", "sleep")))


def cancel(journal: Path, begun: threading.Event) -> tuple[bool, bool]:
    """What another process would do; whether the run was over at once, and then soon."""
    begun.wait()
    with Runs(journal) as runs:
        return runs.cancel("a"), runs.wait("a", 30)


@pytest.mark.anyio
async def test_a_run_that_only_waits_hears_of_it(journal: Path) -> None:
    begun, left = threading.Event(), list[str]()
    said: list[tuple[bool, bool]] = []

    async def other() -> None:
        said.append(await anyio.to_thread.run_sync(cancel, journal, begun))

    async with ScriptedRuntime([]) as lm, anyio.create_task_group() as group:
        group.start_soon(other)
        with pytest.raises(AgentreeError, match="was cancelled"), anyio.fail_after(30):
            await waiting(begun, left).run(CALLS, lm=lm, journal=journal, run_id="a")
        assert sorted(left) == ["sleep", "thread"]
    assert said == [(False, True)]
    with Runs(journal) as runs:
        assert runs.show("a").status == "cancelled"


@pytest.mark.anyio
async def test_a_generation_that_takes_long_is_cut_off(journal: Path) -> None:
    g = Graph("long", input=str, output=str)
    begun = threading.Event()

    @g.step
    async def say(ctx: Ctx, text: str) -> str:
        begun.set()
        return (await ctx.transcript.gen(str)).value

    g.edge(g.start, say)
    g.edge(say, g.end)

    async with ScriptedRuntime([Reply("x", seconds=60)]) as lm, anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, cancel, journal, begun)
        with pytest.raises(AgentreeError, match="was cancelled"), anyio.fail_after(30):
            await g.compile().run("go", lm=lm, journal=journal, run_id="a")
        assert lm.stats().private == 0


@pytest.mark.anyio
async def test_a_bell_without_a_readable_file_stops_nothing(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on: where the file is broken for good, its next fact tells."""
    looked = anyio.Event()

    def unreadable(self: JournalFile, run: str) -> Header:
        anyio.from_thread.run_sync(looked.set)
        raise JournalError("can't be read just now")

    g = Graph("one", input=str, output=str)

    @g.step
    async def one(ctx: Ctx, text: str) -> str:
        monkeypatch.setattr(JournalFile, "header", unreadable)
        RunLock(journal, "a").ring()
        with anyio.fail_after(30):
            await looked.wait()
        return text

    g.edge(g.start, one)
    g.edge(one, g.end)
    async with ScriptedRuntime([]) as lm:
        assert await g.compile().run("x", lm=lm, journal=journal, run_id="a") == "x"


def test_what_was_asked_of_a_process_that_died_is_not_asked_of_the_next(journal: Path) -> None:
    """The bell of a run rings for its holder only, not for who holds the lock after it."""
    first, second = RunLock(journal, "a"), RunLock(journal, "a")
    first.acquire()
    assert not first.rung()
    second.ring()
    assert first.rung()
    first._forked()  # as if its process had died: the file stays
    second.acquire()
    assert not second.rung()
    second.release()
    second.ring()
    assert not first.rung()


PROGRAM = """
import anyio
from agentree import Ctx, Graph

g = Graph("sleeper", input=str, output=str)

@g.step
async def sleep(ctx: Ctx, text: str) -> str:
    print("here", flush=True)
    await anyio.sleep(float(text))
    return text

g.edge(g.start, sleep)
g.edge(sleep, g.end)
program = g.compile()

if __name__ == "__main__":
    from agentree.testing import ScriptedRuntime

    with ScriptedRuntime([]) as lm:
        program.run_sync("60", lm=lm, journal="runs.journal", run_id="a")
"""


def test_the_command_waits_for_the_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sleeper.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "sleeper.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"here\n"
        assert main(["runs", "cancel", "a", "--journal", "runs.journal"]) == 0
        assert capsys.readouterr().out == "run a is cancelled\n"
        _, err = holder.communicate()
        assert b"run 'a' was cancelled" in err
