"""The short form of the kill matrix: at some writes of the journal. All of them, and twice: `make soak`."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: what is tested is the order of writes, not the disk's patience."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    made = Path(mkdtemp(dir=shared))
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize(
    ("mode", "step", "backend"),
    [("kill", 9, "asyncio"), ("kill", 23, "trio"), ("full", 25, "asyncio"), ("readonly", 25, "trio")],
)
def test_a_run_survives(folder: Path, mode: str, step: int, backend: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", HERE / "journal_matrix.py", folder / "runs", mode, str(step)],
        capture_output=True,
        text=True,
        env={**os.environ, "BACKEND": backend},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "runs stopped and resumed" in done.stdout
