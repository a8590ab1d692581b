"""The file of a journal: damage, locks, two processes, what is refused, what is stored."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from journal_harness import MEMORY, stopping
from pydantic import BaseModel

from agentree.errors import (
    AgentreeError,
    InvalidArgument,
    JournalError,
    LimitReached,
    UncertainCall,
)
from agentree.graph import Ctx, Graph, Limits, Program
from agentree.graph.journal.database import Database
from agentree.graph.journal.facts import Fact, Header
from agentree.graph.journal.file import JournalFile
from agentree.graph.journal.lock import RunLock
from agentree.graph.journal.reading import Runs
from agentree.messages import Message, user
from agentree.testing import ScriptedRuntime, final_answer
from agentree.tools import ToolCall, ToolCalls, ToolResult, tool, tool_result

pytestmark = pytest.mark.anyio


def echo(name: str = "echo", *, out: Any = str, state: Any = None, fn: Any = None) -> Program[Any, str, Any]:
    """One step."""
    g: Any = Graph(name, state=state, input=str, output=out)

    async def say(ctx: Ctx[Any], text: str) -> Any:
        return fn(ctx, text) if fn else text

    say.__annotations__["return"] = out
    node = g.step(say)
    g.edge(g.start, node)
    g.edge(node, g.end)
    return g.compile()


# ------------------------------------------------------------------------------------------ damage


async def test_a_damaged_run_leaves_the_others_readable(journal: Path) -> None:
    program = echo()
    async with ScriptedRuntime({}) as lm:
        for run in ("a", "b", "c"):
            await program.run("hello", lm=lm, journal=journal, run_id=run)
        with sqlite3.connect(journal) as db:
            db.execute("UPDATE facts SET body = replace(body, 'hello', 'hullo') WHERE run = 'a' AND seq = 1")
            db.execute("DELETE FROM facts WHERE run = 'c' AND seq = 2")
        db.close()
        for run in ("a", "c"):
            with pytest.raises(JournalError, match=f"run '{run}' is damaged at its fact"):
                await program.resume(run, lm=lm, journal=journal)
        assert await program.resume("b", lm=lm, journal=journal) == "hello"
    with Runs(journal) as runs:
        assert len(runs.all()) == 3
        assert runs.show("b").status == "done"


async def test_a_page_of_the_file_is_damaged(journal: Path) -> None:
    program = echo()
    async with ScriptedRuntime({}) as lm:
        for i in range(40):
            await program.run("hello " * 200, lm=lm, journal=journal, run_id=f"r{i:02}")
        data = bytearray(journal.read_bytes())
        size = int.from_bytes(data[16:18], "big")
        at = (len(data) // size // 2) * size
        data[at : at + size] = os.urandom(size)
        journal.write_bytes(data)
        good, bad = 0, 0
        for i in range(40):
            try:
                await program.resume(f"r{i:02}", lm=lm, journal=journal)
                good += 1
            except JournalError:
                bad += 1
    assert bad
    assert good > 20


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be one " * 50, b""])
async def test_another_file_is_refused_or_an_empty_one_taken(journal: Path, content: bytes) -> None:
    journal.write_bytes(content)
    async with ScriptedRuntime({}) as lm:
        if not content:
            assert await echo().run("x", lm=lm, journal=journal) == "x"
            return
        with pytest.raises(JournalError, match="is no journal of agentree"):
            await echo().run("x", lm=lm, journal=journal)
    assert journal.read_bytes() == content


async def test_another_programs_database_is_left_alone(journal: Path) -> None:
    with sqlite3.connect(journal) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    theirs = journal.read_bytes()
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(JournalError, match="is no journal of agentree"):
            await echo().run("x", lm=lm, journal=journal)
        with pytest.raises(JournalError, match="there is no journal"):
            await echo().resume("a", lm=lm, journal=journal.with_name("other"))
    assert journal.read_bytes() == theirs
    assert list(journal.parent.iterdir()) == [journal]


async def test_a_locked_file_says_so(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentree.graph.journal.database.PATIENCE", 0.05)
    async with ScriptedRuntime({}) as lm:
        await echo().run("x", lm=lm, journal=journal, run_id="a")
        other = sqlite3.connect(journal, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(JournalError, match="is locked by another program"):
            await echo().run("x", lm=lm, journal=journal, run_id="b")
        other.execute("ROLLBACK")
        other.close()
        assert await echo().run("x", lm=lm, journal=journal, run_id="b") == "x"


async def test_a_full_disk_keeps_what_the_run_knew(journal: Path) -> None:
    g = Graph("long", input=str, output=str)

    @g.llm(str, max_tokens=30)
    def ask(ctx: Ctx, text: str) -> Message:
        return user(text)

    @g.step
    async def grow(ctx: Ctx, text: str) -> str:
        return text * (200_000 if full else 1)

    full = True
    g.edge(g.start, ask)
    g.edge(ask, grow)
    g.edge(grow, g.end)
    program = g.compile()
    real = Database._connect

    def small(self: Database, **options: Any) -> sqlite3.Connection:
        db = real(self, **options)
        db.execute("PRAGMA max_page_count = 40")
        return db

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "_connect", small)
        async with ScriptedRuntime({"ask": "hi"}) as lm:
            with pytest.raises(JournalError, match="the disk is full: make room, then resume") as stopped:
                await program.run("go", lm=lm, journal=journal, run_id="a")
    assert stopped.value.transcript is not None
    assert stopped.value.transcript.text.endswith("hi")
    assert str(stopped.value.partial).startswith("hihi")
    full = False
    async with ScriptedRuntime({}) as lm:
        assert await program.resume("a", lm=lm, journal=journal) == "hi"


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


def test_writers_of_one_process_take_turns(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentree.graph.journal.database.PATIENCE", 0.02)
    one, two = JournalFile(journal, create=True), JournalFile(journal)
    now = time.time()
    one.create(Header("a", "p", "", "m", now, now, "running"), [Fact("accepted", "", {}, now)])
    inside, go = threading.Event(), threading.Event()

    def write_long() -> None:
        with one._database.writing():
            inside.set()
            go.wait(60)

    writer = threading.Thread(target=write_long)
    writer.start()
    inside.wait(60)
    threading.Timer(0.3, go.set).start()
    two.append("a", [Fact("opened", "", {}, now)])
    writer.join()
    assert [fact.kind for fact in one.facts("a")] == ["accepted", "opened"]
    one.close()
    two.close()


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_is_gone_stops_the_run(journal: Path, replaced: bool) -> None:
    other = journal.with_name("other")

    def lose(ctx: Ctx[Any], text: str) -> str:
        if replaced:
            other.replace(journal)
        else:
            journal.unlink()
        return text

    async with ScriptedRuntime({}) as lm:
        await echo().run("x", lm=lm, journal=other)
        with pytest.raises(JournalError, match="was deleted or replaced while it was in use"):
            await echo(fn=lose).run("x", lm=lm, journal=journal)


@pytest.mark.parametrize("keep", [0.0, 0.5])
async def test_a_file_that_is_cut_off_stops_the_run(journal: Path, keep: float) -> None:
    def cut(ctx: Ctx[Any], text: str) -> str:
        os.truncate(journal, int(journal.stat().st_size * keep))
        return text

    async with ScriptedRuntime({}) as lm:
        for run in range(3):
            await echo().run("x" * 5000, lm=lm, journal=journal, run_id=f"r{run}")
        with pytest.raises(JournalError, match="was emptied or cut short while it was in use"):
            await echo(fn=cut).run("x", lm=lm, journal=journal, run_id="a")


async def test_a_file_that_shrinks_by_itself_is_in_order(journal: Path) -> None:
    def collect(ctx: Ctx[Any], text: str) -> str:
        with Runs(journal) as runs:
            runs.remove(runs.old(time.time() + 60))
        with sqlite3.connect(journal) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        assert journal.stat().st_size < size
        return text

    async with ScriptedRuntime({}) as lm:
        for run in range(9):
            await echo().run("x" * 50_000, lm=lm, journal=journal, run_id=f"r{run}")
        size = journal.stat().st_size
        assert await echo(fn=collect).run("x", lm=lm, journal=journal, run_id="a") == "x"
        assert await echo().resume("a", lm=lm, journal=journal) == "x"


READER = """
import sys
from agentree.graph.journal.file import JournalFile
file = JournalFile(sys.argv[1])
print(len(file.facts("a")))
file.close()
"""


def test_who_looks_at_a_file_takes_nothing_from_those_who_write(journal: Path) -> None:
    one, two = JournalFile(journal, create=True), JournalFile(journal)
    one.create(Header("a", "p", "", "m", 1.0, 1.0, "running"), [Fact("accepted", "", {}, 1.0)])
    for n in range(2, 5):
        one.append("a", [Fact("opened", "", {}, 1.0)])
        if n == 3:
            two.close()
        read = subprocess.run([sys.executable, "-c", READER, journal], capture_output=True, text=True)
        assert read.stdout == f"{n}\n", read.stderr
    one.close()


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.text(st.characters()), st.text(st.characters(exclude_categories=()))))
@example({"text": "\ud83d\ude00", "\ud800": "\0"})
def test_facts_come_back_to_the_letter(body: dict[str, str]) -> None:
    with TemporaryDirectory(dir=MEMORY) as folder:
        file = JournalFile(Path(folder) / "runs.journal", create=True)
        file.create(Header("a", "p", "", "m", 1.0, 1.0, "running"), [Fact("accepted", "", body, 1.0)])
        assert file.facts("a")[0].body == body
        file.close()


async def test_facts_that_somebody_removed_stop_the_run(journal: Path) -> None:
    def remove(ctx: Ctx[Any], text: str) -> str:
        with sqlite3.connect(journal) as db:
            db.execute("DELETE FROM facts")
        db.close()
        return text

    async with ScriptedRuntime({}) as lm:
        with pytest.raises(JournalError, match=r"run 'a' is not in the journal .* as it was left"):
            await echo(fn=remove).run("x", lm=lm, journal=journal, run_id="a")


@pytest.mark.parametrize("left", [".locks/a.lock", "-wal"])
async def test_an_emptied_file_is_not_taken_for_a_new_one(journal: Path, left: str) -> None:
    def fail(ctx: Ctx[Any], text: str) -> str:
        raise ZeroDivisionError

    async with ScriptedRuntime({}) as lm:
        with pytest.raises(ZeroDivisionError):
            await echo(fn=fail).run("x", lm=lm, journal=journal, run_id="a")
        content = journal.read_bytes()
        journal.write_bytes(b"")
        with pytest.raises(JournalError, match="is empty: it holds no run, and if there were some, it was"):
            await echo().resume("a", lm=lm, journal=journal)
        remains = Path(f"{journal}{left}")
        remains.write_text("what is left")
        with pytest.raises(JournalError, match=f"{remains.name}.* is left of them.* put it back from a copy"):
            await echo().run("x", lm=lm, journal=journal, run_id="b")
        assert remains.read_text() == "what is left"
        assert journal.read_bytes() == b""
        remains.unlink()
        journal.write_bytes(content)
        assert await echo().resume("a", lm=lm, journal=journal) == "x"


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
            (Loose(value=Engine()), r"type Engine, which no node declares, at Loose\.value"),
            (Engine(), "a value of type Engine, which no node declares"),
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
