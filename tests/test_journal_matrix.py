"""The short form of the kill matrix: at some writes of the journal. All of them, and twice: `make soak`."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from journal_harness import MEMORY

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("mode", "step", "backend"),
    [("kill", 9, "asyncio"), ("kill", 23, "trio"), ("full", 25, "asyncio"), ("readonly", 25, "trio")],
)
def test_a_run_survives(mode: str, step: int, backend: str) -> None:
    with TemporaryDirectory(dir=MEMORY) as folder:
        done = subprocess.run(
            [sys.executable, "-W", "error", HERE / "journal_matrix.py", f"{folder}/runs", mode, str(step)],
            capture_output=True,
            text=True,
            env={**os.environ, "BACKEND": backend},
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "runs stopped and resumed" in done.stdout
