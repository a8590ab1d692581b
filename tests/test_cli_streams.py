"""Closed streams, full disks, signals, results that are no JSON, and files that must not be overwritten."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from test_cli_run import ECHO, in_terminal, start, write
from tiny_models import tiny_llama

from agentree import events as ev
from agentree.cli import main
from agentree.cli.load import load_file
from agentree.cli.output import render
from agentree.trace import read_trace

EXAMPLES = Path(__file__).parent.parent / "examples" / "agents"
SLEEPS = ECHO.replace("    return", "    import asyncio\n    await asyncio.sleep(600)\n    return")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("model"))


def shell(line: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash in which "$@" is the command."""
    command = ["bash", "-c", line, "bash", sys.executable, "-m", "agentree", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, check=False, timeout=120, env=environment)


def quiet(text: bytes) -> bool:
    return b"Traceback" not in text and b"Exception ignored" not in text


# ------------------------------------------------------------------------------------ closed streams


def test_a_closed_stdout_is_said() -> None:
    done = shell('"$@" >&-', "plan", str(EXAMPLES / "research.py"))
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "agentree: error: standard output is closed: there is nowhere to print the result"
    ]


def test_a_closed_stderr_keeps_the_result(tmp_path: Path, model: Path) -> None:
    done = shell('"$@" 2>&-', "run", write(tmp_path, ECHO), "--input", "x", "--model", str(model))
    assert (done.returncode, done.stdout[:2]) == (0, b"x|")
    done = shell('"$@" 2>&-', "plan", str(tmp_path / "nothing.py"))
    assert done.returncode == 2


def test_all_streams_closed_and_a_trace(tmp_path: Path, model: Path) -> None:
    """The trace's file gets none of the numbers 0 to 2, where what others print would land in it."""
    text = ECHO.replace("    generation", "    import os\n    os.write(1, b'lost')\n    generation")
    trace = tmp_path / "t.jsonl"
    arguments = ["run", write(tmp_path, text), "--input", "x", "--model", str(model), "--trace", str(trace)]
    assert shell('"$@" <&- >&- 2>&-', *arguments).returncode == 1
    kinds = [type(event) for event in read_trace(trace)]
    assert ev.GenerationEnded in kinds


def test_a_closed_stdin_is_said(tmp_path: Path) -> None:
    done = shell('"$@" <&-', "run", write(tmp_path, ECHO), "--input", "-")
    assert done.returncode == 2
    assert b"standard input, which is closed: give --input a text" in done.stderr


@pytest.mark.parametrize("line", ['"$@" | head -c1', '"$@" 2>&1 | head -1'])
def test_readers_that_are_gone_are_no_traceback(line: str, tmp_path: Path, model: Path) -> None:
    text = ECHO.replace("{text}|", "{text * 100_000}|")
    done = shell(line, "run", write(tmp_path, text), "--input", "x", "--model", str(model))
    assert quiet(done.stderr)
    assert quiet(done.stdout)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_said() -> None:
    done = shell('"$@" > /dev/full', "plan", str(EXAMPLES / "research.py"))
    assert done.returncode == 1
    assert done.stderr == b"agentree: error: No space left on device\n"


# ------------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize("background", [False, True])
def test_sigterm_closes_everything(background: bool, tmp_path: Path, model: Path) -> None:
    """Also where Ctrl-C is ignored, as for what a shell starts in the background."""
    trace = tmp_path / "t.jsonl"
    target = write(tmp_path, SLEEPS)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if background else None
    try:
        process = start("run", target, "--input", "x", "--model", str(model), "--trace", str(trace))
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if trace.exists() and any(isinstance(event, ev.GenerationEnded) for event in read_trace(trace)):
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143, err.decode()
    assert (out, quiet(err)) == (b"", True)
    assert err.endswith(b"agentree: terminated\n")
    assert trace.read_bytes().endswith(b"\n")


def test_sigterm_gives_the_terminal_its_cursor_back(tmp_path: Path, model: Path) -> None:
    ends = "import asyncio, os, signal\n    os.kill(os.getpid(), signal.SIGTERM)"
    text = SLEEPS.replace("import asyncio", ends)
    code, got = in_terminal("run", write(tmp_path, text), "--input", "x", "--model", str(model))
    assert code == 143
    assert got.rindex("\x1b[?25h") > got.rindex("\x1b[?25l")


def test_sigterm_while_a_file_is_loaded(tmp_path: Path) -> None:
    path = write(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n" + ECHO)
    done = shell('"$@"', "plan", path)
    assert (done.returncode, done.stderr) == (143, b"agentree: terminated\n")


def test_the_handler_of_whoever_calls_is_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert main(["plan", "nothing.py"]) == 2
    assert signal.getsignal(signal.SIGTERM) is before


# ------------------------------------------------------------------------------- results and inputs


class Unwritable:
    def __str__(self) -> str:
        raise ValueError("no text")

    def __repr__(self) -> str:
        raise ValueError("none at all")


def ring() -> list[Any]:
    found: list[Any] = [1]
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (ring(), "[1, [...]]"),
        ({"a": b"\xff"}, r"{'a': b'\xff'}"),
        (["\ud800"], r"['\ud800']"),
        (Unwritable(), "<Unwritable that can't be written: ValueError: none at all>"),
    ],
    ids=["ring", "bytes", "surrogate", "unwritable"],
)
def test_what_is_no_json_is_printed_all_the_same(
    value: object, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert render(value) == shown
    err = capsys.readouterr().err
    assert err.startswith("agentree: the result is no JSON value, so it is printed as Python writes it: ")
    assert len(err.splitlines()) == 1


def test_a_file_that_is_no_text_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bin.py"
    path.write_bytes(b"x = 1\n\0\xff\xfe")
    assert main(["plan", str(path)]) == 2
    err = capsys.readouterr().err
    assert "None" not in err
    assert err.startswith(f"agentree: error: {path}: SyntaxError: ") or f"{path}:" in err


RUNS = """
import asyncio
from agentree import Ctx, Graph, Runtime

g = Graph("g", input=str, output=str)

@g.step
async def shout(ctx: Ctx, x: str) -> str:
    return x.upper()

g.edge(g.start, shout)
g.edge(shout, g.end)
agent = g.compile()

async def main():
    print("ran")

"""


@pytest.mark.parametrize(
    "line",
    [
        "asyncio.run(main())",
        "print(agent.run_sync('x'))",
        "result = agent.run_sync('x')",
        "with Runtime() as lm:\n    asyncio.run(main())",
    ],
)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_script_that_runs_when_it_is_loaded(
    line: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--input", "x"] if command == "run" else []
    path = write(tmp_path, RUNS + line + "\n")
    assert main([command, path, *more]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    number = RUNS.count("\n") + 1 + line.count("\n")
    assert f"{path}:{number} runs " in err
    assert "if __name__ ==" in err


@pytest.mark.parametrize(
    "line", ["if __name__ == '__main__':\n    asyncio.run(main())", "go = lambda: asyncio.run(main())"]
)
def test_a_script_with_a_guard_is_loaded(line: str, tmp_path: Path) -> None:
    assert hasattr(load_file(Path(write(tmp_path, RUNS + line))), "agent")


# ---------------------------------------------------------------------------------- files to be written


@pytest.mark.parametrize("kind", ["source", "text", "binary", "json"])
def test_a_trace_replaces_nothing_else(
    kind: str, tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Path(write(tmp_path, ECHO))
    path = source if kind == "source" else tmp_path / "notes"
    if kind != "source":
        path.write_bytes({"text": b"my notes\n", "binary": b"\0\xff" * 10, "json": b'{"a": 1}\n'}[kind])
    before = path.read_bytes()
    arguments = ["run", str(source), "--input", "x", "--model", str(model), "--quiet", "--trace", str(path)]
    assert main(arguments) == 2
    assert path.read_bytes() == before
    assert f"{str(path)!r} is there already and is no trace" in capsys.readouterr().err


def test_an_old_trace_is_replaced_once_the_model_is_found(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, source = tmp_path / "t.jsonl", write(tmp_path, ECHO)
    base = ["run", source, "--input", "x", "--quiet", "--trace", str(path), "--model"]
    assert main([*base, str(model)]) == 0
    before = path.read_bytes()
    assert main([*base, "no-such-model"]) == 1
    assert path.read_bytes() == before
    assert main([*base, str(model)]) == 0
    assert path.read_bytes() != before
    assert [type(e) for e in read_trace(path)].count(ev.ModelReady) == 1
    path.write_bytes(b"")  # an empty file is nobody's work
    assert main([*base, str(model)]) == 0
    path.write_bytes(before[:100])  # what a killed process leaves
    assert main([*base, str(model)]) == 0
    assert len(path.read_bytes()) > 100


def test_places_where_no_trace_can_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["run", write(tmp_path, ECHO), "--input", "x", "--quiet", "--trace"]
    for place, why in ((tmp_path, "Is a directory"), (tmp_path / "no" / "t", "No such file or directory")):
        assert main([*base, str(place)]) == 2
        assert why in capsys.readouterr().err


def test_a_plan_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, out = str(EXAMPLES / "research.py"), tmp_path / "plan.svg"
    assert main(["plan", target, "--svg"]) == 0
    drawn = capsys.readouterr().out
    assert drawn.startswith("<svg ")
    assert drawn.endswith("</svg>\n")
    for _ in range(2):  # a picture that is there is replaced
        assert main(["plan", target, "--svg", str(out)]) == 0
        assert out.read_text() == drawn
    assert capsys.readouterr().out == ""
    notes = tmp_path / "notes.md"
    notes.write_text("mine")
    assert main(["plan", target, "--svg", str(notes)]) == 2
    assert notes.read_text() == "mine"
    assert "is no picture" in capsys.readouterr().err


def test_a_plan_is_that_of_the_program_and_not_of_main(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, RUNS.replace("async def main():", "async def main(lm, text):"))
    assert main(["plan", path]) == 0
    assert capsys.readouterr().out.startswith("g: str -> str\n")
    assert main(["plan", f"{path}:main"]) == 2
    assert "is a function: only compiled graphs have a plan" in capsys.readouterr().err
    assert main(["plan", str(EXAMPLES / "extract.py")]) == 2
    assert "has only functions (main): only compiled graphs have a plan" in capsys.readouterr().err


def test_help_names_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert re.search(r"130 interrupted, 143 terminated", capsys.readouterr().out)
