"""Every Python block of the README and the docs runs as a script, and every link leads somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentree.cli.guards import refuse_running

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


def blocks() -> list[tuple[str, str]]:
    """(where, code) of each block: `docs/tools.md:12`."""
    found: list[tuple[str, str]] = []
    for page in PAGES:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            line = text[: match.start()].count("\n") + 1
            found.append((f"{page.relative_to(ROOT)}:{line}", match.group(1)))
    return found


@pytest.mark.model
@pytest.mark.usefixtures("smollm2")
@pytest.mark.parametrize(("where", "code"), blocks(), ids=[where for where, _ in blocks()])
def test_block_runs(where: str, code: str, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, f"{where}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize(("where", "code"), blocks(), ids=[where for where, _ in blocks()])
def test_block_can_be_copied_for_the_command_line(where: str, code: str, tmp_path: Path) -> None:
    """`agentree run FILE` loads a file first: what it runs stands below `if __name__ == "__main__":`."""
    script = tmp_path / "block.py"
    script.write_text(code)
    refuse_running(script)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"
