"""Compilers that hang, lie or are interrupted; libraries that are damaged or that others may have written."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentree.runtime.model.load import load_model
from agentree.runtime.native import compiler
from agentree.runtime.native.compiler import BuildFailed, find_compiler, library
from tests.tiny_models import tiny_llama

LAST = 'for last in "$@"; do :; done'
HANGS = "trap '' INT TERM\necho $$ >> $0.pids\nsh -c 'echo $$ >> '$0'.pids; exec sleep 60'\n"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes a shell script the compiler."""

    def write(text: str) -> Path:
        path = tmp_path / "cc"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        monkeypatch.setenv("AGENTREE_CXX", f"'{path}'")
        return path

    return write


def builds(path: Path) -> int:
    return len((path.parent / "cc.log").read_text().split())


def counted(script: Callable[[str], Path]) -> Path:
    """A compiler that writes the same library each time, and tells of it."""
    return script(f'{LAST}\nsleep 0.1\necho built >> "$0.log"\nprintf "%5000s" library > "$last"')


def none_left(pids: Path) -> bool:
    """Whether the script and its child are gone; gives them a moment."""
    for _ in range(100):
        if not any(alive(int(pid)) for pid in pids.read_text().split()):
            return True
        time.sleep(0.05)
    return False


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_command_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTREE_CXX", 'g++ "-O3')
    with pytest.raises(BuildFailed, match="AGENTREE_CXX='g\\+\\+ \"-O3' is no command"):
        library(tmp_path)
    assert load_model(tiny_llama(tmp_path), device="cpu", kv_tokens=50).kernels == "torch"
    monkeypatch.delenv("AGENTREE_CXX")
    monkeypatch.setenv("CXX", "")
    usual = find_compiler()
    monkeypatch.setenv("CXX", 'g++ "-O3')
    assert find_compiler() == usual


def test_a_compiler_that_makes_nothing(script: Callable[[str], Path], tmp_path: Path) -> None:
    script("exit 0")
    with pytest.raises(BuildFailed, match="made no library"):
        library(tmp_path / "made")
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["build.lock"]


def test_whatever_a_compiler_says(script: Callable[[str], Path], tmp_path: Path) -> None:
    script("head -c 300000 /dev/urandom\nhead -c 300000 /dev/urandom >&2\nexit 1")
    with pytest.raises(BuildFailed, match="failed"):
        library(tmp_path / "made")


def test_a_compiler_that_hangs(
    script: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script(HANGS)
    monkeypatch.setattr(compiler, "TIMEOUT", 0.5)
    with pytest.raises(BuildFailed, match=r"took more than 0\.5 seconds"):
        library(tmp_path / "made")
    assert none_left(path.with_name("cc.pids"))
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["build.lock"]


def test_who_cancels_ends_the_compiler(script: Callable[[str], Path], tmp_path: Path) -> None:
    path = script(HANGS)
    pids = path.with_name("cc.pids")

    def tick() -> None:
        if pids.exists() and len(pids.read_text().split()) == 2:
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        library(tmp_path / "made", tick)
    assert none_left(pids)
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["build.lock"]
    # The lock is free again.
    counted(script)
    assert library(tmp_path / "made").exists()


def test_who_waits_for_another_build_can_cancel(script: Callable[[str], Path], tmp_path: Path) -> None:
    counted(script)
    (tmp_path / "made").mkdir()

    def enough() -> None:
        raise InterruptedError("enough")

    with compiler.FileLock(tmp_path / "made" / "build.lock"), pytest.raises(InterruptedError):
        library(tmp_path / "made", enough)


def test_ctrl_c_while_a_model_loads(script: Callable[[str], Path], tmp_path: Path) -> None:
    path = script(HANGS)
    pids = path.with_name("cc.pids")
    folder = tiny_llama(tmp_path)
    code = f"""
import signal
from agentree.runtime.model.load import load_model
signal.signal(signal.SIGINT, signal.default_int_handler)
load_model({str(folder)!r}, device="cpu", kv_tokens=50)
"""
    home = tmp_path / "home"
    loading = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "AGENTREE_HOME": str(home), "AGENTREE_KERNELS": "auto"},
        cwd=Path(__file__).parent.parent,
        stderr=subprocess.PIPE,
        text=True,
    )
    while loading.poll() is None and not (pids.exists() and len(pids.read_text().split()) == 2):
        time.sleep(0.05)
    loading.send_signal(signal.SIGINT)
    _, said = loading.communicate(timeout=50)
    assert "KeyboardInterrupt" in said
    assert none_left(pids)
    assert [path.name for path in (home / "kernels").iterdir()] == ["build.lock"]


def test_two_at_once_build_once(script: Callable[[str], Path], tmp_path: Path) -> None:
    path = counted(script)
    found: list[Path] = []
    both = [threading.Thread(target=lambda: found.append(library(tmp_path / "mäde here"))) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert found[0] == found[1]
    assert builds(path) == 1


@pytest.mark.parametrize("size", [0, 100, 4096, 6000])
def test_a_damaged_library_is_built_again(script: Callable[[str], Path], tmp_path: Path, size: int) -> None:
    path = counted(script)
    made = library(tmp_path / "made")
    content = made.read_bytes()
    os.truncate(made, size)
    # What a process that was killed leaves.
    (tmp_path / "made" / f"{compiler.SCRATCH}left").mkdir()
    again = library(tmp_path / "made")
    assert again.read_bytes() == content
    assert builds(path) == 2
    assert {path.name for path in (tmp_path / "made").iterdir()} == {"build.lock", again.name}


def test_what_others_may_write_is_not_run(script: Callable[[str], Path], tmp_path: Path) -> None:
    path = counted(script)
    folder = tmp_path / "made"
    made = library(folder)
    made.chmod(0o777)
    assert not library(folder).stat().st_mode & 0o002
    assert builds(path) == 2
    folder.chmod(0o777)
    with pytest.raises(BuildFailed, match="chmod o-w"):
        library(folder)
    # As /tmp is: nobody may replace what is another's.
    folder.chmod(0o1777)
    assert library(folder) == made
