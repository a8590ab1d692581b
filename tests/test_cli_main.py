"""The command line as a whole: exit codes, one-line reasons, and no heavy imports before they are needed."""

import subprocess
import sys
from pathlib import Path

import pytest

from agentree import __version__
from agentree.cli import main
from agentree.cli.output import render
from agentree.cli.report import reason

HEAVY = ("torch", "transformers", "networkx", "rich", "pydantic", "numpy", "asyncio")


def run_cli(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "agentree", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=120)


def test_help_is_light_and_has_examples() -> None:
    code = (
        "import sys\nfrom agentree.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert 'agentree run agent.py --input "What is 17*23?"' in done.stdout


def test_version() -> None:
    done = run_cli("--version")
    assert (done.returncode, done.stdout.decode()) == (0, f"agentree {__version__}\n")


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "examples:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["run"], ["run", "x.py"], ["runn", "x.py"], ["models"], ["plan"], ["demo", "--nope"]]
)
def test_wrong_use_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: agentree" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_missing_file(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--input", "x"] if command == "run" else []
    assert main([command, "not_[red]_there.py", *more]) == 2
    assert capsys.readouterr().err == "agentree: error: there is no file 'not_[red]_there.py'\n"


@pytest.mark.parametrize("name", ["../..", "..", ".", "", "/", "/etc", "a/../..", "nothing", "half.partial"])
def test_where_names_models_only(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENTREE_HOME", str(tmp_path))
    monkeypatch.setenv("AGENTREE_KERNELS", "torch")
    (tmp_path / "models" / "half.partial").mkdir(parents=True)
    if name:
        assert main(["models", "where", name]) == 1
        told = capsys.readouterr()
        assert told.out == "" and f"{name!r} is not here: 'agentree models list' shows what is" in told.err
    else:
        assert main(["models", "where"]) == 0
        assert capsys.readouterr().out == f"{tmp_path / 'models'}\n"


def test_a_damaged_manifest_is_listed_as_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENTREE_HOME", str(tmp_path))
    monkeypatch.setenv("AGENTREE_KERNELS", "torch")
    folder = tmp_path / "models" / "mine-0123"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{")
    assert main(["models", "list"]) == 0
    assert "mine-0123" in (out := capsys.readouterr().out) and "damaged, converted from a file" in out
    assert main(["models", "where", "mine-0123"]) == 0
    assert capsys.readouterr().out == f"{folder}\n"


def test_debug_adds_the_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.py"
    path.write_text("1/0\n")
    assert main(["plan", str(path)]) == 2
    assert capsys.readouterr().err == f"agentree: error: {path}:1: ZeroDivisionError: division by zero\n"
    assert main(["plan", str(path), "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_reason_is_one_line() -> None:
    assert reason(ValueError("a\n  b\x1b[31m")) == r"ValueError: a b\x1b[31m"
    assert reason(KeyError()) == "KeyError"
    group = ExceptionGroup("g", [ExceptionGroup("h", [ValueError("in")]), TypeError("t")])
    assert reason(group) == "ValueError: in (and 1 more)"
    assert reason(FileNotFoundError(2, "No such file or directory", "x")) == "x: No such file or directory"
    assert len(reason(ValueError("x" * 5000))) == 1000


def test_render() -> None:
    assert render("[red]as it is\x1b") == "[red]as it is\x1b"
    assert render(391) == "391"
    assert render(None) == "null"
    assert render({"a": [1, float("inf")]}) == '{\n  "a": [\n    1,\n    Infinity\n  ]\n}'
    assert "object" in render(object())
