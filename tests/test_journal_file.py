"""Journals in use: locks, two processes, what is refused, what is stored."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from journal_harness import echo, stopping
from pydantic import BaseModel

from agentree.errors import (
    AgentreeError,
    InvalidArgument,
    JournalError,
    LimitReached,
    UncertainCall,
)
from agentree.graph import Ctx, Graph, Limits
from agentree.graph.journal.facts import Fact, Header
from agentree.graph.journal.file import JournalFile
from agentree.graph.journal.lock import RunLock
from agentree.graph.journal.reading import Runs
from agentree.messages import Message, user
from agentree.testing import ScriptedRuntime, final_answer
from agentree.tools import ToolCall, ToolCalls, ToolResult, tool, tool_result

pytestmark = pytest.mark.anyio


# ------------------------------------------------------------------------------------ two processes

HOLDER = """
import anyio, sys
from agentree.graph import Ctx, Graph
from agentree.testing import ScriptedRuntime
g = Graph("echo", input=str, output=str)
@g.step
async def say(ctx: Ctx, text: str) -> str:
    print("here", flush=True)
    await anyio.sleep(float(sys.argv[2]))
    return text
g.edge(g.start, say)
g.edge(say, g.end)
async def main():
    async with ScriptedRuntime({}) as lm:
        await g.compile().run("x", lm=lm, journal=sys.argv[1], run_id="a")
anyio.run(main)
"""


def start_holder(journal: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", HOLDER, str(journal), "60"], stdout=subprocess.PIPE)


async def test_one_process_goes_on_with_a_run(journal: Path) -> None:
    with start_holder(journal) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"here\n"
        with Runs(journal) as runs:
            assert [status for _, status in runs.all()] == ["running"]
        async with ScriptedRuntime({}) as lm:
            with pytest.raises(JournalError, match="is going on in another place"):
                await echo().resume("a", lm=lm, journal=journal)
            holder.send_signal(signal.SIGKILL)
            holder.wait()
            with Runs(journal) as runs:
                assert [status for _, status in runs.all()] == ["interrupted"]
            assert await echo().resume("a", lm=lm, journal=journal) == "x"


async def test_of_two_at_once_one_wins(journal: Path) -> None:
    async def slow(ctx: Ctx, text: str) -> str:
        first.cancel()
        await lost.wait()
        return text

    g = Graph("echo", input=str, output=str)
    node = g.step(slow)
    g.edge(g.start, node)
    g.edge(node, g.end)
    program = g.compile()
    came: list[object] = []
    lost = anyio.Event()

    async def resume() -> None:
        try:
            came.append(await program.resume("a", lm=lm, journal=journal))
        except JournalError as e:
            came.append(type(e))
            lost.set()

    async with ScriptedRuntime({}) as lm:
        with anyio.CancelScope() as first:
            await program.run("x", lm=lm, journal=journal, run_id="a")
        async with anyio.create_task_group() as group:
            group.start_soon(resume)
            group.start_soon(resume)
    assert sorted(map(str, came)) == [str(JournalError), "x"]


async def test_a_run_is_cancelled_from_outside(journal: Path) -> None:
    g = Graph("steps", input=str, output=str)

    @g.step
    async def one(ctx: Ctx, text: str) -> str:
        with Runs(journal) as runs:
            assert runs.cancel("a") is False
        return text

    @g.step
    async def two(ctx: Ctx, text: str) -> str:
        done.append("two")
        return text

    done: list[str] = []
    g.edge(g.start, one)
    g.edge(one, two)
    g.edge(two, g.end)
    program = g.compile()
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(AgentreeError, match="was cancelled"):
            await program.run("x", lm=lm, journal=journal, run_id="a")
        assert done == []
        with Runs(journal) as runs:
            assert [status for _, status in runs.all()] == ["cancelled"]
            with pytest.raises(JournalError, match="is over"):
                runs.cancel("a")
        with pytest.raises(JournalError, match="run 'a' was cancelled: it is over"):
            await program.resume("a", lm=lm, journal=journal)
    assert done == []
    with Runs(journal) as runs:
        assert [header.run for header in runs.old(time.time() + 1)] == ["a"]
        runs.remove(runs.old(time.time() + 1))
        assert runs.all() == []


async def test_a_cancel_outlives_the_process_that_was_asked(journal: Path) -> None:
    with start_holder(journal) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"here\n"
        with Runs(journal) as runs:
            assert runs.cancel("a") is False
            assert [status for _, status in runs.all()] == ["running"]
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with Runs(journal) as runs:
        assert runs.show("a").status == "cancelled"
        assert [header.run for header in runs.old(time.time() + 1)] == ["a"]
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(JournalError, match="run 'a' was cancelled"):
            await echo().resume("a", lm=lm, journal=journal)


async def test_what_was_cut_off_or_failed_can_be_resumed_and_is_not_forgotten(journal: Path) -> None:
    g = Graph("echo", input=str, output=str)
    how = ["raise", "sleep", "return"]

    @g.step
    async def say(ctx: Ctx, text: str) -> str:
        match how.pop(0):
            case "raise":
                raise ConnectionError
            case "sleep":
                scope.cancel()
                await anyio.sleep(60)
            case _:
                pass
        return text

    g.edge(g.start, say)
    g.edge(say, g.end)
    program = g.compile()
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(ConnectionError):
            await program.run("x", lm=lm, journal=journal, run_id="a")
        with Runs(journal) as runs:
            assert (runs.show("a").status, runs.old(time.time() + 1)) == ("failed", [])
        with anyio.CancelScope() as scope:
            await program.resume("a", lm=lm, journal=journal)
        with Runs(journal) as runs:
            assert (runs.show("a").status, runs.old(time.time() + 1)) == ("stopped", [])
        assert await program.resume("a", lm=lm, journal=journal) == "x"


async def test_another_name_of_the_file_finds_the_same_lock(journal: Path) -> None:
    link = journal.with_name("link")
    refused: list[JournalError] = []
    g = Graph("echo", input=str, output=str)

    @g.step
    async def say(ctx: Ctx, text: str) -> str:
        link.symlink_to(journal)
        with pytest.raises(JournalError, match="is going on in another place") as found:
            await program.resume("a", lm=lm, journal=link)
        refused.append(found.value)
        return text

    g.edge(g.start, say)
    g.edge(say, g.end)
    program = g.compile()
    async with ScriptedRuntime({}) as lm:
        assert await program.run("x", lm=lm, journal=journal, run_id="a") == "x"
    assert len(refused) == 1


FORKER = """
import os, signal, sys, time
from pathlib import Path
from agentree.graph.journal.lock import RunLock
lock = RunLock(Path(sys.argv[1]), "a")
lock.acquire()
child = os.fork()
if child:
    print(child, flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)
os.close(1)
time.sleep(60)
"""


def test_a_child_of_a_killed_process_holds_nothing_up(journal: Path) -> None:
    command = [sys.executable, "-c", FORKER, str(journal)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        child = int(holder.stdout.readline())
        try:
            lock = RunLock(journal, "a")
            assert lock.taken()
            holder.stdin.write(b"\n")
            holder.stdin.flush()
            assert holder.wait() == -signal.SIGKILL
            lock.acquire()
            lock.release()
        finally:
            os.kill(child, signal.SIGKILL)


# --------------------------------------------------------------------------------------- refusals


class Engine:
    """Something that no journal can hold."""


@dataclass
class Holder:
    engine: Engine = field(default_factory=Engine)


class Loose(BaseModel):
    value: Any


async def test_a_type_that_can_not_be_stored_is_refused_at_once(journal: Path) -> None:
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(JournalError, match="node 'say' has the type Engine, and a journal can't store"):
            await echo(out=Engine).run("x", lm=lm, journal=journal)
        with pytest.raises(JournalError, match="the state of program 'echo' has the type Holder"):
            await echo(state=Holder).run("x", lm=lm, journal=journal)
        assert not journal.exists()


async def test_a_value_that_would_come_back_changed_is_refused(journal: Path) -> None:
    async with ScriptedRuntime({}) as lm:
        for made, why in (
            (Loose(value=Engine()), r"type Engine, at Loose\.value: use a dataclass"),
            (Engine(), "a value of type Engine: use a dataclass"),
        ):

            def give(ctx: Ctx[Any], text: str, made: Any = made) -> Any:
                return made

            program = echo(out=type(made) if isinstance(made, Loose) else Any, fn=give)
            with pytest.raises(JournalError, match=f"node 'say' gave what a journal can't store: .*{why}"):
                await program.run("x", lm=lm, journal=journal)


async def test_ids_inputs_programs_and_models_that_do_not_fit(journal: Path) -> None:
    async with ScriptedRuntime({}) as lm:
        await echo().run("x", lm=lm, journal=journal, run_id="a")
        with pytest.raises(JournalError, match="holds a run 'a' already"):
            await echo().run("x", lm=lm, journal=journal, run_id="a")
        with pytest.raises(JournalError, match="holds no run 'b'"):
            await echo().resume("b", lm=lm, journal=journal)
        with pytest.raises(InvalidArgument, match="run_id='a/b'"):
            await echo().run("x", lm=lm, journal=journal, run_id="a/b")
        with pytest.raises(JournalError, match="is one of the program 'echo', not of 'other'"):
            await echo("other").resume("a", lm=lm, journal=journal)
        with pytest.raises(JournalError, match="has changed since run 'a' began"):
            await echo(out=Loose).resume("a", lm=lm, journal=journal)
        changed = echo(out=Any)
        assert await changed.resume("a", lm=lm, journal=journal, changed="accept") == "x"
        with stopping(1), pytest.raises(JournalError, match="stopped here"):
            await echo().run("x", lm=lm, journal=journal, run_id="b")
    other = ScriptedRuntime({})
    async with other as lm:
        lm._home.session.name = "another model"
        with pytest.raises(JournalError, match="was begun with the model 'scripted scripted'"):
            await echo().resume("b", lm=lm, journal=journal)
        assert await echo().resume("a", lm=lm, journal=journal) == "x", "what is done needs no model"


# ------------------------------------------------------------------------------------------ tools


async def test_what_is_known_of_a_call_that_was_under_way(journal: Path) -> None:
    ends: list[str] = []

    @tool
    async def charge(x: int) -> str:
        """Charge.

        Args:
            x: How much.
        """
        ends.append(f"charge {x}")
        if len(ends) == 1:
            raise JournalError("the process stops here")
        return "charged"

    g = Graph("pay", input=str, output=str)

    @g.llm(str, tools=[charge], max_tokens=100)
    def think(ctx: Ctx, message: str | Message) -> Message:
        return message if isinstance(message, Message) else user(message)

    act = g.tools(charge)

    @g.step
    async def observe(ctx: Ctx, results: list[ToolResult]) -> Message:
        told.append(results[0])
        return tool_result(results)

    told: list[ToolResult] = []
    g.edge(g.start, think)
    g.branch(think).case(ToolCalls, act).case(str, g.end)
    g.edge(act, observe)
    g.edge(observe, think)
    program = g.compile(limits=Limits(turns=3))
    script = {"think": ToolCall("", "charge", {"x": 5}), "think#2": final_answer("over")}
    for policy, made in (("tell", 1), ("rerun", 2)):
        ends.clear()
        async with ScriptedRuntime(script) as lm:
            with pytest.raises(JournalError):
                await program.run("go", lm=lm, journal=journal, run_id=policy)
            said = r'tools: charge\(\{"x": 5\}\) was under way'
            with pytest.raises(UncertainCall, match=said) as uncertain:
                await program.resume(policy, lm=lm, journal=journal)
            assert (uncertain.value.tool, dict(uncertain.value.arguments)) == ("charge", {"x": 5})
            with Runs(journal) as runs:
                begun = [(fact.path, fact.body["tool"]) for fact in runs.show(policy).uncertain]
            assert begun == [("tools", "charge")]
            assert await program.resume(policy, lm=lm, journal=journal, uncertain=policy) == "over"  # pyright: ignore[reportArgumentType]
        assert len(ends) == made
    assert [(r.error, r.content.partition(":")[0]) for r in told] == [
        (True, "the outcome of this call is unknown"),
        (False, "charged"),
    ]


async def test_a_long_result_is_kept_whole_in_the_journal(journal: Path) -> None:
    @tool(pure=True)
    async def dump() -> str:
        """Dump."""
        return "x" * 1_000_000

    g = Graph("dump", input=str, output=str)

    @g.llm(str, tools=[dump], max_tokens=100)
    def think(ctx: Ctx, message: str) -> Message:
        return user(message)

    act = g.tools(dump)

    @g.step
    async def size(ctx: Ctx, results: list[ToolResult]) -> str:
        return str(len(results[0].content) < 100_000)

    g.edge(g.start, think)
    g.branch(think).case(ToolCalls, act).case(str, g.end)
    g.edge(act, size)
    g.edge(size, g.end)
    async with ScriptedRuntime({"think": ToolCall("", "dump", {})}) as lm:
        assert await g.compile().run("go", lm=lm, journal=journal, run_id="a") == "True"
    with Runs(journal) as runs:
        (end,) = [fact for fact in runs.show("a").facts if fact.kind == "call ended"]
    assert end.body["text"] == "x" * 1_000_000


async def test_limits_hold_over_the_whole_life_of_a_run(journal: Path) -> None:
    g = Graph("loop", input=str, output=str)
    stops = [True, True]

    @g.llm(str, max_tokens=20)
    def say(ctx: Ctx, text: str) -> Message:
        return user(text)

    @g.step
    async def pause(ctx: Ctx, text: str) -> str:
        if stops and len(text) > 1 and stops.pop():
            raise ConnectionError
        return text + "."

    g.edge(g.start, say)
    g.edge(say, pause)
    g.branch(pause).case(str, g.end, where=lambda text: text == "never").otherwise(say)
    program = g.compile(limits=Limits(turns=4))
    async with ScriptedRuntime(lambda request: "ab") as lm:
        with pytest.raises(ConnectionError):
            await program.run("go", lm=lm, journal=journal, run_id="a")
        with pytest.raises(ConnectionError):
            await program.resume("a", lm=lm, journal=journal)
        with pytest.raises(LimitReached, match="4 turns"):
            await program.resume("a", lm=lm, journal=journal)
    with Runs(journal) as runs:
        assert len([f for f in runs.show("a").facts if f.kind == "generation"]) == 4


async def test_time_is_what_processes_worked_not_what_passed(journal: Path) -> None:
    now = time.time()
    file = JournalFile(journal, create=True)
    file.create(Header("a", "p", "", "m", now, now, "running"), [Fact("accepted", "", {}, now)])
    file.close()
    from agentree.graph.journal.past import Past

    facts = [
        Fact("accepted", "", {}, 100.0),
        Fact("opened", "", {}, 100.0),
        Fact("node started", "call", {"node": "call"}, 103.0),
        Fact("node started", "call/x", {"node": "x"}, 105.0),
        Fact("opened", "", {}, 9000.0),
        Fact("node ended", "call/x", {}, 9004.0),
    ]
    past = Past(facts)
    assert past.seconds() == 9.0
    assert past.seconds(past.started["call"]["time"]) == 6.0


LOOKER = """
import os, sys
from agentree.errors import JournalError
from agentree.graph.journal.file import JournalFile
from agentree.graph.journal.reading import Runs
import agentree.graph.journal.opened
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
path = sys.argv[1]
with Runs(path) as runs:
    print(runs.show("a").status)
for make in (lambda: JournalFile(path, create=True), lambda: JournalFile(path + "/x", create=True)):
    try:
        make()
    except JournalError as error:
        print(str(error).replace(path, "PATH"))
"""


def test_a_read_only_folder_can_be_looked_at() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        journal = folder / "runs.journal"

        async def main() -> None:
            async with ScriptedRuntime({}) as lm:
                await echo().run("x", lm=lm, journal=journal, run_id="a")

        anyio.run(main)
        journal.chmod(0o444)
        folder.chmod(0o555)
        done = subprocess.run([sys.executable, "-c", LOOKER, journal], capture_output=True, text=True)
        folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert first == "done"
    assert second.startswith("the journal 'PATH' can't be written, it is read-only: make file and folder")
    assert "can't be opened" in third
