"""Limits in seconds hold over the life of a run, however its processes end, and cost few writes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest
from journal_harness import Stop, once

from agentree.errors import JournalError, LimitReached
from agentree.graph import Ctx, Graph, Limits, Program
from agentree.graph.journal.beat import PERIOD, worked_until
from agentree.graph.journal.facts import Fact
from agentree.graph.journal.file import JournalFile
from agentree.graph.journal.past import Past
from agentree.testing import ScriptedRuntime

pytestmark = pytest.mark.anyio


def sleeper(limits: Limits | None, *, blocking: bool = False, stop: Any = None) -> Program[None, str, str]:
    """A step that takes very long and says nothing meanwhile."""
    g = Graph("sleeper", input=str, output=str)

    @g.step
    async def wait(ctx: Ctx, text: str) -> str:
        if stop is not None:
            stop()
        elif blocking:
            time.sleep(300)
        else:
            await anyio.sleep(300)
        return text

    g.edge(g.start, wait)
    g.edge(wait, g.end)
    return g.compile(limits=limits)


CHILD = """
import sys, anyio
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from agentree.graph import Limits
from agentree.graph.journal import beat
from agentree.testing import ScriptedRuntime
from test_journal_time import sleeper
beat.PERIOD = 0.05
async def main():
    program = sleeper(Limits(seconds=300, on_limit="raise"), blocking=sys.argv[3] == "True")
    async with ScriptedRuntime({}) as lm:
        print("begins", flush=True)
        await program.run("x", lm=lm, journal=Path(sys.argv[1]), run_id="run")
anyio.run(main)
"""


@pytest.mark.parametrize("blocking", [False, True])
async def test_time_counts_up_to_a_kill(
    journal: Path, monkeypatch: pytest.MonkeyPatch, blocking: bool
) -> None:
    monkeypatch.setattr("agentree.graph.journal.beat.PERIOD", 0.05)
    kill_after_a_while(journal, blocking)
    known = worked(journal)
    async with ScriptedRuntime({}) as lm:
        # Nothing is left of the first limit, and far too much of the second one.
        with pytest.raises(LimitReached, match="seconds are over"):
            await sleeper(Limits(seconds=known, on_limit="raise")).resume("run", lm=lm, journal=journal)
        mine = sleeper(Limits(seconds=known + 300, on_limit="raise"), stop=lambda: None)
        assert await mine.resume("run", lm=lm, journal=journal) == "x"


def kill_after_a_while(journal: Path, blocking: bool) -> None:
    """Begin a run in another process, and kill it when it has told long enough that it works on it."""
    command = [sys.executable, "-c", CHILD, str(journal), str(Path(__file__).parent), str(blocking)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while worked(journal) < 0.4:
            assert process.poll() is None
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)


def worked(journal: Path) -> float:
    """How long the run was worked on, as far as its file tells."""
    try:
        file = JournalFile(journal)
    except JournalError:  # it is being made
        return 0.0
    try:
        if not file.runs():
            return 0.0
        facts, header = file.facts("run"), file.header("run")
        return Past(facts, until=header.beat).seconds()
    finally:
        file.close()


def test_what_a_killed_process_may_have_done_counts() -> None:
    facts = [
        Fact("accepted", "", {}, 10.0),
        Fact("opened", "", {}, 10.0),
        Fact("node started", "a", {}, 12.0),
    ]
    assert Past(facts, until=worked_until(12.0, 17.5, 1000.0)).seconds() == 7.5 + PERIOD
    assert Past(facts, until=worked_until(12.0, 0.0, 1000.0)).seconds() == 2.0 + PERIOD
    # Never more than there was until the next process began, nor less than facts tell.
    assert Past(facts, until=worked_until(12.0, 17.5, 17.6)).seconds() == pytest.approx(7.6)
    assert Past(facts, until=worked_until(12.0, 17.5, 3.0)).seconds() == 2.0
    # The next process writes down what it found.
    again = [*facts, Fact("opened", "", {"until": 18.5}, 500.0), Fact("ended", "", {}, 504.0)]
    assert Past(again, until=0.0).seconds() == 8.5 + 4.0
    # One that said that it stops has said when.
    waiting = [*facts, Fact("waiting", "", {}, 13.0)]
    assert Past(waiting, until=99.0).seconds() == 3.0


async def test_time_is_kept_only_while_somebody_limits_it(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentree.graph.journal.beat.PERIOD", 0.001)
    beats, real, enough = Counter[str](), JournalFile.beat, threading.Event()

    def beat(self: JournalFile, run: str) -> None:
        real(self, run)
        beats[run] += 1
        if beats[run] == 3:
            enough.set()

    monkeypatch.setattr(JournalFile, "beat", beat)
    before = set(threading.enumerate())
    async with ScriptedRuntime({}) as lm:
        limits = Limits(seconds=60, on_limit="raise")
        limited = sleeper(limits, stop=lambda: enough.wait(60))
        assert await limited.run("x", lm=lm, journal=journal, run_id="limited") == "x"
        free = sleeper(None, stop=lambda: time.sleep(0.02))
        assert await free.run("x", lm=lm, journal=journal, run_id="free") == "x"
        stopped = sleeper(limits, stop=once())
        with pytest.raises(Stop):
            await stopped.run("x", lm=lm, journal=journal, run_id="stopped")
        now = dict(beats)
        time.sleep(0.02)
    assert now == dict(beats)
    assert beats["limited"] >= 3
    assert "free" not in beats
    assert not [thread for thread in set(threading.enumerate()) - before if "beat" in thread.name]
