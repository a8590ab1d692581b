"""The commands of docs/durable-runs.md print what the page says that they print."""

import re
import shlex
from pathlib import Path

import pytest

from agentree.cli import main

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


def sessions() -> list[tuple[str, str]]:
    """Commands with what they print, over all blocks of the page."""
    found: list[tuple[str, str]] = []
    for block in BLOCK.findall((ROOT / "docs" / "durable-runs.md").read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


@pytest.mark.model
@pytest.mark.usefixtures("smollm2")
def test_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shown = sessions()
    assert len(shown) >= 9
    for command, expected in shown:
        name, *arguments = shlex.split(command)
        assert name == "agentree"
        code = main(arguments)
        out, err = capsys.readouterr()
        said = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE", out + err)
        assert said.replace(str(ROOT), "FOLDER").replace(str(tmp_path), "FOLDER") == expected, command
        assert code == (1 if "error:" in expected else 3 if "waits for a person" in expected else 0)
