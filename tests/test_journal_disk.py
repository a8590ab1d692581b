"""The file of a journal on the disk: damage, a full disk, a file that is gone, cut off or emptied."""

import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from journal_harness import MEMORY, echo

from agentree.errors import (
    JournalError,
)
from agentree.graph import Ctx, Graph
from agentree.graph.journal.database import Database
from agentree.graph.journal.facts import Fact, Header
from agentree.graph.journal.file import JournalFile
from agentree.graph.journal.reading import Runs
from agentree.messages import Message, user
from agentree.testing import ScriptedRuntime

pytestmark = pytest.mark.anyio


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
for line in sys.stdin:
    file = JournalFile(sys.argv[1])
    print(len(file.facts("a")), flush=True)
    file.close()
"""


def test_who_looks_at_a_file_takes_nothing_from_those_who_write(journal: Path) -> None:
    one, two = JournalFile(journal, create=True), JournalFile(journal)
    one.create(Header("a", "p", "", "m", 1.0, 1.0, "running"), [Fact("accepted", "", {}, 1.0)])
    command = [sys.executable, "-c", READER, str(journal)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        for n in range(2, 6):
            one.append("a", [Fact("opened", "", {}, 1.0)])
            if n == 3:
                two.close()
            reader.stdin.write("\n")
            reader.stdin.flush()
            assert reader.stdout.readline() == f"{n}\n"
        reader.stdin.close()
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


async def test_an_emptied_file_is_not_taken_for_a_new_one(journal: Path) -> None:
    def fail(ctx: Ctx[Any], text: str) -> str:
        raise ZeroDivisionError

    async with ScriptedRuntime({}) as lm:
        with pytest.raises(ZeroDivisionError):
            await echo(fn=fail).run("x", lm=lm, journal=journal, run_id="a")
        content = journal.read_bytes()
        journal.write_bytes(b"")
        locks, log = Path(f"{journal}.locks"), Path(f"{journal}-wal")
        for remains in (log, locks):
            if remains is log:
                log.write_text("what is left")
            why = f"is empty, and '{remains.name}' next to it tells .*: put the file back from a copy"
            with pytest.raises(JournalError, match=why):
                await echo().run("x", lm=lm, journal=journal, run_id="b")
            with pytest.raises(JournalError, match=why):
                await echo().resume("a", lm=lm, journal=journal)
            if remains is log:
                assert log.read_text() == "what is left"
                log.unlink()
        assert journal.read_bytes() == b""
        locks.rmdir()
        with pytest.raises(JournalError, match="is empty: it holds no run"):
            await echo().resume("a", lm=lm, journal=journal)
        journal.write_bytes(content)
        assert await echo().resume("a", lm=lm, journal=journal) == "x"
        locks.rmdir()
        journal.write_bytes(b"")
        assert await echo().run("x", lm=lm, journal=journal, run_id="a") == "x"
