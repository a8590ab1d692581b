"""Looking into a running engine from outside: the socket, what it tells, and how it is drawn."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from tiny_models import tiny_llama

from agentree.cli import main
from agentree.errors import RuntimeClosed
from agentree.lm import Runtime
from agentree.lm.monitor import Monitor, look, open_monitor, running
from agentree.messages import user
from agentree.trace.render import ASCII
from agentree.trace.top import all_lines, pool_parts

ABOUT = {"model": "tiny", "device": "cpu", "weights": "fp32"}


class Engine:
    """Tells what a test wrote, the last of it again and again; None: it is busy."""

    def __init__(self, *told: dict[str, Any] | None) -> None:
        self.told = list(told)
        self.closed = False

    def snapshot(self, reply: Callable[[dict[str, Any]], None]) -> None:
        if self.closed:
            raise RuntimeClosed("closed")
        told = self.told.pop(0) if len(self.told) > 1 else self.told[0]
        if told is not None:
            reply(told)


STATS = {
    "pool": 1000, "free": 300, "private": 50, "tree": 650, "leased": 400, "running": 2, "waiting": 9,
    "lookup_tokens": 2000, "hit_tokens": 1500, "computed_tokens": 500, "sampled_tokens": 100,
    "forced_tokens": 20, "forward_passes": 60, "evicted_tokens": 70, "revoked_leases": 1,
    "preempted_requests": 0, "near_ties": 0,
    "evictable": 450, "locked": 200, "idle": 250, "nodes": 12,
}  # fmt: skip


def snapshot(**changes: Any) -> dict[str, Any]:
    request = {
        "request": 7, "run": "abc", "path": "[red]answer[/red][3]\x1b[31m", "prompt": 120, "cached": 100,
        "generated": 5, "slots": 125, "private": 5, "seconds": 1.5,
    }  # fmt: skip
    agent = {"agent": "abc/[3]", "held": 125, "leased": 60, "evictable": 0}
    tree = ["namespace ('m',)", *(f"  {i}+10 tokens, idle 3" for i in range(30))]
    shot = {
        "stats": STATS,
        "running": [request] * 2,
        "waiting": [request] * 9,
        "agents": [agent],
        "tree": tree,
    }
    return ABOUT | {"pid": 1234, "since": 100.0, "taken": 200.0} | shot | changes


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTREE_HOME", str(tmp_path))
    monkeypatch.delenv("AGENTREE_NO_TOP", raising=False)
    return tmp_path


def test_a_monitor_answers_each_reader_once_and_leaves_nothing_behind(home: Path) -> None:
    monitor = Monitor(Engine({"stats": {"pool": 5}}), ABOUT)
    assert stat.S_IMODE((home / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE(monitor.path.stat().st_mode) == 0o600
    for _ in range(3):
        (told,) = running()
        assert told["stats"] == {"pool": 5} and told["model"] == "tiny" and told["pid"] == os.getpid()
    assert len(list(running(os.getpid()))) == 1
    assert list(running(1)) == []
    monitor.close()
    monitor.close()
    assert list((home / "run").iterdir()) == []
    assert not monitor._thread.is_alive()


def test_readers_that_stall_or_leave_hold_up_nobody() -> None:
    more_than_a_socket_holds = {"filler": "x" * 5_000_000}
    told = (more_than_a_socket_holds, more_than_a_socket_holds, {"stats": {"pool": 5}})
    monitor = Monitor(Engine(*told), ABOUT, patience=0.01)
    stalled = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stalled.connect(str(monitor.path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.connect(str(monitor.path))
    assert look(monitor.path, patience=60)["stats"] == {"pool": 5}, "those before it were given up"
    stalled.close()
    monitor.close()


def test_an_engine_that_is_busy_or_closed() -> None:
    engine = Engine(None)
    monitor = Monitor(engine, ABOUT, patience=0.01)
    assert look(monitor.path, patience=60)["busy"] is True
    engine.closed = True
    assert list(running()) == []
    monitor.close()


def test_stale_sockets_are_passed_over_and_swept_when_they_are_old(home: Path) -> None:
    folder = home / "run"
    folder.mkdir()
    for name in ("1-1.sock", "2-1.sock"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
            left.bind(str(folder / name))
    os.utime(folder / "1-1.sock", (0, 0))
    assert list(running()) == []
    monitor = Monitor(Engine({}), ABOUT)
    assert sorted(p.name for p in folder.iterdir()) == sorted(["2-1.sock", monitor.path.name])
    monitor.close()


def test_no_monitor_where_it_is_turned_off_or_cannot_be(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "run").write_text("a file in the way")
    assert open_monitor(Engine(), ABOUT) is None
    (home / "run").unlink()
    monkeypatch.setenv("AGENTREE_HOME", str(home / ("deep" * 40)))
    assert open_monitor(Engine(), ABOUT) is None
    monkeypatch.setenv("AGENTREE_HOME", str(home))
    monkeypatch.setenv("AGENTREE_NO_TOP", "1")
    assert open_monitor(Engine(), ABOUT) is None


def test_parts_of_the_pool_add_up() -> None:
    assert pool_parts(STATS) == {"locked": 250, "leased": 250, "cached": 200, "free": 300}


@pytest.mark.parametrize(("width", "height"), [(40, 8), (80, 24), (200, 50)])
def test_drawing_fits_and_shows_what_others_said_as_it_is(width: int, height: int) -> None:
    shots = [snapshot(), snapshot(pid=99)]
    before = [snapshot(taken=198.0, stats=STATS | {"sampled_tokens": 60, "forward_passes": 40})]
    for now in ([], shots[:1], shots):
        drawn = all_lines(now, before, clock=250.0, width=width, height=height, glyphs=ASCII)
        assert all(isinstance(line, Text) for line in drawn)
        assert len(drawn) <= max(height, 8 * len(now) + 1)
        assert not any("\x1b" in line.plain or "\n" in line.plain for line in drawn)
    text = "\n".join(
        line.plain for line in all_lines(shots[:1], before, clock=250.0, width=200, height=50, glyphs=ASCII)
    )
    assert "[red]answer[/red][3]\\x1b[31m" in text
    assert "hit rate 75 %" in text and "20.0 tokens/s in 10.0 passes/s" in text
    assert "pool of 1,000 tokens" in text and "waiting (9)" in text and "abc/[3]: held 125, leased 60" in text
    busy = all_lines(
        [ABOUT | {"pid": 1, "since": 0.0, "taken": 1.0}], [], clock=9.0, width=80, height=9, glyphs=ASCII
    )
    assert "takes long" in busy[1].plain


def test_command_on_a_real_runtime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top"]) == 0
    assert "no runtime is open" in capsys.readouterr().out
    assert main(["top", "999999"]) == 1
    capsys.readouterr()
    folder = tiny_llama(tmp_path / "tiny")
    with Runtime(folder, kv_tokens=512) as lm:

        async def work() -> None:
            await (lm.transcript(user("Hello."))).gen(str, max_tokens=4)

        import anyio

        anyio.run(work)
        assert main(["top", str(os.getpid()), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["stats"]["pool"] == 512 and told["stats"]["tree"] > 0 and told["model"] == "tiny"
        assert main(["top", "--once"]) == 0
        assert "pool of 512 tokens" in capsys.readouterr().out
    assert list(running()) == []


def test_a_killed_process_is_not_shown(tmp_path: Path, home: Path) -> None:
    folder = tiny_llama(tmp_path / "tiny")
    code = (
        "import time\nfrom agentree import Runtime\n"
        f"with Runtime({str(folder)!r}, kv_tokens=64):\n    print('open', flush=True)\n    time.sleep(60)\n"
    )
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=env, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        assert [told["pid"] for told in running()] == [process.pid]
        process.send_signal(signal.SIGKILL)
        process.wait(20)
    assert list(running()) == []
    assert threading.active_count() >= 1
