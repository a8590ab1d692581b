"""Finding the program in a user's file, and saying what keeps it from being found."""

import re
import sys
from pathlib import Path

import pytest

from agentree.cli.load import as_program, load_entry, on_path, split_target
from agentree.cli.report import WrongUse

GRAPH = """
from agentree import Ctx, Graph

def build(name):
    g = Graph(name, input=str, output=str)

    @g.step
    async def shout(ctx: Ctx, text: str) -> str:
        return text.upper()

    g.edge(g.start, shout)
    g.edge(shout, g.end)
    return g.compile()
"""


def write(folder: Path, text: str, name: str = "agents.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def name_of(entry: object) -> str:
    return getattr(entry, "__name__", "")


def test_split_target(tmp_path: Path) -> None:
    assert split_target("a/b.py") == (Path("a/b.py"), "")
    assert split_target("a/b.py:main") == (Path("a/b.py"), "main")
    assert split_target("C:/b.py") == (Path("C:/b.py"), "")
    odd = write(tmp_path, "", "a.py:main")
    assert split_target(str(odd)) == (odd, "")


def test_the_only_program(tmp_path: Path) -> None:
    path = write(tmp_path, GRAPH + "research = build('r')\nsame = research\n")
    program = as_program(load_entry(str(path)))
    assert program is not None
    assert as_program(load_entry(f"{path}:same")) is not None


def test_the_only_function(tmp_path: Path) -> None:
    path = write(tmp_path, "async def solve(lm, text): return text\nasync def _hidden(lm, text): ...\n")
    assert name_of(load_entry(str(path))) == "solve"


def test_usual_names_come_first(tmp_path: Path) -> None:
    path = write(
        tmp_path, GRAPH + "agent = build('a')\nother = build('o')\nasync def helper(lm, text): ...\n"
    )
    assert as_program(load_entry(str(path))) is not None
    with_main = write(tmp_path, path.read_text() + "async def main(lm, text): ...\n", "b.py")
    assert name_of(load_entry(str(with_main))) == "main"


def test_one_program_among_functions(tmp_path: Path) -> None:
    path = write(tmp_path, GRAPH + "research = build('r')\nasync def helper(lm, text): ...\n")
    assert as_program(load_entry(str(path))) is not None


def test_imported_functions_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, "async def far(lm, text): ...\n", "helper_module.py")
    path = write(tmp_path, "from helper_module import far\nasync def near(lm, text): ...\n")
    with on_path(tmp_path):
        assert name_of(load_entry(str(path))) == "near"
        assert name_of(load_entry(f"{path}:far")) == "far"
    assert str(tmp_path) not in sys.path
    del sys.modules["helper_module"]


def test_dataclasses_and_models_of_a_file_work(tmp_path: Path) -> None:
    text = """
from __future__ import annotations
from dataclasses import dataclass
from pydantic import BaseModel, TypeAdapter

@dataclass
class A:
    b: B

class B(BaseModel):
    x: int

value = TypeAdapter(A).validate_python({"b": {"x": 1}})
async def main(lm, text): ...
"""
    load_entry(str(write(tmp_path, text)))


@pytest.mark.parametrize(
    ("text", "target", "why"),
    [
        (None, "", "there is no file '.*agents.py'"),
        (None, ":main", "there is no file '.*agents.py'"),
        ("x = 1\n", "", "'.*agents.py' has no program: compile a graph in it, or write an async def main"),
        ("x = 1\n", ":main", "has no 'main': it has no program"),
        (
            "x = 1\nasync def go(lm, text): ...\n",
            ":x",
            "'x' of '.*agents.py' is neither a program nor an async",
        ),
        ("async def go(lm, text): ...\n", ":stop", "has no 'stop': it has go"),
        (
            "async def a(lm, t): ...\nasync def b(lm, t): ...\n",
            "",
            r"several programs \(a, b\): .* agents.py:a",
        ),
        ("async def go(lm): ...\n", "", "has no program"),
        ("async def go(lm): ...\n", ":go", "neither a program nor"),
        ("def main(lm, text): ...\n", "", "has no program"),
        ("def f():\n    return (\n", "", r"agents.py:2: SyntaxError: '\(' was never closed"),
        ("x = 1\nif x:\ny = 2\n", "", "agents.py:3: IndentationError"),
        ("x = 1\n\nx.nothing()\n", "", "agents.py:3: AttributeError: 'int' object has no attribute"),
        (
            "import not_there_at_all\n",
            "",
            "agents.py:1: ModuleNotFoundError: No module named 'not_there_at_all'",
        ),
        ("def f():\n    raise ValueError('[red]no')\nf()\n", "", r"agents.py:2: ValueError: \[red\]no"),
        ("import sys\nsys.exit(3)\n", "", "agents.py:2: SystemExit: 3"),
        ("x = '\0'\n", "", "agents.py.*null bytes"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str | None, target: str, why: str) -> None:
    path = tmp_path / "agents.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(WrongUse) as caught:
        load_entry(f"{path}{target}")
    assert re.search(why.replace(" agents.py", " .*agents.py"), str(caught.value)), str(caught.value)


def test_an_error_in_an_imported_file_names_that_file(tmp_path: Path) -> None:
    write(tmp_path, "def broken(:\n", "helper_broken.py")
    path = write(tmp_path, "\nimport helper_broken\n")
    with on_path(tmp_path), pytest.raises(WrongUse, match=r"helper_broken.py:1: SyntaxError"):
        load_entry(str(path))


def test_folders_and_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="is a folder"):
        load_entry(str(tmp_path))
    with pytest.raises(WrongUse, match=r"must end in \.py"):
        load_entry(str(write(tmp_path, "x", "notes.txt")))


def test_a_graph_that_was_not_compiled(tmp_path: Path) -> None:
    path = write(tmp_path, "from agentree import Graph\ntitles = Graph('t', input=str, output=str)\n")
    with pytest.raises(WrongUse, match=re.escape("write program = titles.compile()")):
        load_entry(str(path))
