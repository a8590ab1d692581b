"""`agentree run` on a tiny model of random weights: results, exit codes, traces, interruption."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from tiny_models import tiny_llama

from agentree import events as ev
from agentree.cli import main
from agentree.trace import read_trace

ECHO = """
from agentree import user

async def main(lm, text):
    generation = await lm.transcript(user(text[:20])).gen(str, max_tokens=8)
    return f"{text}|{generation.usage.output_tokens}"
"""

STEPS = """
from pydantic import BaseModel
from agentree import Ctx, Graph

class Report(BaseModel):
    words: list[str]
    total: int

g = Graph("count", input=list[str], output=Report)

@g.step
async def count(ctx: Ctx, words: list[str]) -> Report:
    return Report(words=words, total=len(words))

g.edge(g.start, count)
g.edge(count, g.end)
counter = g.compile()
"""

TOOLS = """
from agentree import Ctx, Graph, ToolCall, ToolCalls, ToolResult, tool

@tool
def broken(text: str) -> str:
    '''Breaks.

    Args:
        text: Anything.
    '''
    raise ValueError("[red]this tool is broken[/red] \\x1b[31m")

g = Graph("tools", input=str, output=str)

@g.step
async def call(ctx: Ctx, text: str) -> ToolCalls:
    return ToolCalls((ToolCall("1", "broken", {"text": text}),))

act = g.tools(broken)

@g.step
async def show(ctx: Ctx, results: list[ToolResult]) -> str:
    return f"{results[0].error} {results[0].content}"

g.edge(g.start, call)
g.edge(call, act)
g.edge(act, show)
g.edge(show, g.end)
program = g.compile()
"""

FAILS = """
async def main(lm, text):
    raise ValueError(f"[red]no {text}[/red]\\n\\x1b[31mreally")
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("model"))


def write(folder: Path, text: str, name: str = "agents.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_function(tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "t.jsonl"
    arguments = [
        "run",
        write(tmp_path, ECHO),
        "--input",
        "[red]hi",
        "--model",
        str(model),
        "--trace",
        str(trace),
    ]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert out.startswith("[red]hi|")
    assert "model tiny ready" in err
    assert "hit rate" in err
    kinds = [type(event) for event in read_trace(trace)]
    assert ev.ModelReady in kinds
    assert kinds.count(ev.GenerationEnded) == 1
    seqs = [event.seq for event in read_trace(trace)]
    assert seqs == sorted(seqs)


def test_quiet_says_nothing(tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", write(tmp_path, ECHO), "--input", "hi", "--model", str(model), "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert (out.startswith("hi|"), err) == (True, "")


def test_a_program_with_typed_input(tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["run", write(tmp_path, STEPS), "--model", str(model), "--quiet", "--input"]
    assert main([*base, '["a", "[red]"]']) == 0
    assert json.loads(capsys.readouterr().out) == {"words": ["a", "[red]"], "total": 2}
    assert main([*base, "a b"]) == 2
    assert "the program takes list[str], so the input must be such a value as JSON" in capsys.readouterr().err


def test_a_tool_that_raises(tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", write(tmp_path, TOOLS), "--input", "[red]x", "--model", str(model)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("True ")
    assert "[red]this tool is broken[/red]" in out
    assert '{"text": "[red]x"}' in err
    assert "error: " in err
    assert "Traceback" not in err
    assert "\x1b" not in err


def test_a_failing_function(tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", write(tmp_path, FAILS), "--input", "way", "--model", str(model), "--quiet"]
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "agentree: error: ValueError: [red]no way[/red] \\x1b[31mreally\n")
    assert main([*arguments, "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_corrupt_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny_llama(tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert main(["run", write(tmp_path, ECHO), "--input", "x", "--model", str(folder), "--quiet"]) == 1
    err = capsys.readouterr().err
    assert "model.safetensors" in err
    assert len(err.splitlines()) == 1


def test_an_unknown_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", write(tmp_path, ECHO), "--input", "x", "--model", "[red]no", "--quiet"]) == 1
    assert "there is no model '[red]no'" in capsys.readouterr().err


def test_a_trace_that_can_not_be_written(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["run", write(tmp_path, ECHO), "--input", "x", "--model", str(model), "--quiet", "--trace"]
    assert main([*base, str(tmp_path / "no" / "t.jsonl")]) == 2
    assert "can't write the trace: " in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_loses_no_result(tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = [
        "run",
        write(tmp_path, ECHO),
        "--input",
        "x",
        "--model",
        str(model),
        "--quiet",
        "--trace",
        "/dev/full",
    ]
    assert main(base) == 1
    out, err = capsys.readouterr()
    assert out.startswith("x|")
    assert err == "agentree: error: the trace file '/dev/full' is incomplete: No space left on device\n"


def start(*arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "agentree", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )


def test_a_megabyte_of_input(tmp_path: Path, model: Path) -> None:
    text = ECHO.replace("text[:20]", "text").replace("{text}|", "")
    process = start(
        "run", write(tmp_path, text), "--input", "-", "--model", str(model), stdin=subprocess.PIPE
    )
    out, err = process.communicate(b"[red] all work and no play\n" * 40_000)
    assert (process.returncode, out) == (1, b"")
    last = err.decode().splitlines()[-1]
    assert last.startswith("agentree: error: ")
    assert "2048" in last
    assert b"Traceback" not in err


def test_input_that_is_no_text(tmp_path: Path) -> None:
    process = start("run", write(tmp_path, ECHO), "--input", "-", stdin=subprocess.PIPE)
    _, err = process.communicate(b"ab\xff")
    assert process.returncode == 2
    assert err == b"agentree: error: the input is not UTF-8 text: see byte 2\n"


def test_interrupt_closes_everything(tmp_path: Path, model: Path) -> None:
    text = ECHO.replace("    return", "    import asyncio\n    await asyncio.sleep(600)\n    return")
    trace = tmp_path / "t.jsonl"
    target = write(tmp_path, text)
    process = start("run", target, "--input", "x", "--model", str(model), "--trace", str(trace))
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if trace.exists() and any(isinstance(event, ev.GenerationEnded) for event in read_trace(trace)):
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err.decode()
    assert (out, b"Traceback" in err) == (b"", False)
    assert err.endswith(b"agentree: interrupted\n")
    assert trace.read_bytes().endswith(b"\n")
    assert isinstance(next(iter(read_trace(trace))), ev.Event)


CALLS = """
import asyncio
from agentree import Ctx, Graph, ToolCall, ToolCalls, ToolResult, tool

@tool
async def wait(seconds: float) -> str:
    "Wait."
    await asyncio.sleep(seconds)
    return "waited"

g = Graph("calls", input=str, output=list[ToolResult])

@g.step
async def ask(ctx: Ctx, text: str) -> ToolCalls:
    return ToolCalls(tuple(ToolCall(f"c{s}", "wait", {"seconds": s}) for s in (0, 600, 1)))

act = g.tools(wait, parallel=1)
g.edge(g.start, ask)
g.edge(ask, act)
g.edge(act, g.end)
program = g.compile()
"""


def test_interrupt_tells_what_became_of_each_call(tmp_path: Path, model: Path) -> None:
    trace = tmp_path / "t.jsonl"
    target = write(tmp_path, CALLS)
    process = start("run", target, "--input", "x", "--model", str(model), "--trace", str(trace), "--quiet")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if trace.exists() and sum(isinstance(event, ev.ToolStarted) for event in read_trace(trace)) == 2:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err.decode()
    events = list(read_trace(trace))
    assert {event.call: event.content for event in events if isinstance(event, ev.ToolEnded)} == {
        "c0": "waited",
        "c600": "interrupted: its result is unknown",
        "c1": "not started: the run was cut off before",
    }
    assert [event.status for event in events if isinstance(event, ev.RunEnded)] == ["cancelled"]


def in_terminal(*arguments: str) -> tuple[int, str]:
    """Run the command in a terminal of 80 columns; returns its exit code and all that the terminal got."""
    main_end, terminal_end = pty.openpty()
    fcntl.ioctl(terminal_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "agentree", *arguments]
    process = subprocess.Popen(
        command, stdin=terminal_end, stdout=terminal_end, stderr=terminal_end, env=environment
    )
    os.close(terminal_end)
    got = bytearray()
    with contextlib.suppress(OSError):  # the way a terminal says that its other end is closed
        while piece := os.read(main_end, 65536):
            got += piece
    os.close(main_end)
    return process.wait(), got.decode()


def test_a_terminal_gets_the_live_view_and_its_cursor_back(tmp_path: Path, model: Path) -> None:
    text = ECHO.replace("    generation", "    print('[red]mine[/red]')\n    generation")
    text = text.replace("{text}|", "{text}|\\x1b]0;x\\x07|")
    code, got = in_terminal("run", write(tmp_path, text), "--input", "[red]hi", "--model", str(model))
    assert code == 0
    assert got.rstrip().splitlines()[-1].startswith(r"[red]hi|\x1b]0;x\x07|")
    assert "[red]mine[/red]" in got
    assert got.rindex("\x1b[?25h") > got.rindex("\x1b[?25l")
    assert "hit rate" in got


def test_a_closed_pipe_is_no_traceback(tmp_path: Path, model: Path) -> None:
    process = start("run", write(tmp_path, ECHO), "--input", "x", "--model", str(model))
    assert process.stdout is not None
    process.stdout.close()
    process.wait(timeout=120)
    assert process.stderr is not None
    err = process.stderr.read()
    process.stderr.close()
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err
