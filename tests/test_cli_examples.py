"""The demo and the example agents: short, found by `agentree run`, and right on the embedded model."""

import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentree import events as ev
from agentree.cli import main
from agentree.cli.load import load_entry, load_file
from agentree.trace import Picture, read_trace

EXAMPLES = Path(__file__).parent.parent / "examples" / "agents"
FILES = sorted(EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_examples_are_short_and_are_found(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 60
    assert load_entry(str(path)) is not None


@given(st.lists(st.integers(1, 13), min_size=2, max_size=4))
def test_legal_moves_use_each_number_once(values: list[int]) -> None:
    game = load_file(EXAMPLES / "tree_of_thought.py")
    task = " ".join(map(str, values))
    exact = {
        "+": Fraction.__add__,
        "-": Fraction.__sub__,
        "*": Fraction.__mul__,
        "/": Fraction.__truediv__,
    }
    for move in game.legal_moves(task, []):
        sum_, _, rest = move.rstrip(")").partition(" (left: ")
        left, sign, right, _, result = sum_.split()
        assert exact[sign](Fraction(left), Fraction(right)) == int(result) > 0
        remaining = [int(number) for number in rest.split()]
        assert game.left(task, [move]) == remaining
        remaining.remove(int(result))
        assert sorted([*remaining, int(left), int(right)]) == sorted(values)


@pytest.mark.model
@pytest.mark.usefixtures("smollm2")
def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "t.jsonl"
    assert main(["demo", "--trace", str(trace)]) == 0
    assert "What is 17*23?  391  (through the calculator)" in capsys.readouterr().out
    picture = Picture()
    picture.feed(read_trace(trace))
    hit, asked = picture.hit_rate()
    assert hit / asked > 0.5
    assert picture.totals.forced > 0
    assert not picture.writing
    assert all(a.seq < b.seq for a, b in pairwise(read_trace(trace)))


@pytest.mark.model
@pytest.mark.usefixtures("smollm2")
def test_react_uses_the_calculator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "t.jsonl"
    question = ["--input", "What is (45+55)*3?", "--quiet", "--trace", str(trace)]
    assert main(["run", str(EXAMPLES / "react.py"), *question]) == 0
    assert capsys.readouterr().out == "300\n"
    ended = [event for event in read_trace(trace) if isinstance(event, ev.ToolEnded)]
    assert [(event.tool, event.content) for event in ended] == [("calculator", "300")]


@pytest.mark.model
@pytest.mark.usefixtures("smollm2")
def test_extract_computes_its_prefix_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "t.jsonl"
    assert main(["run", str(EXAMPLES / "extract.py"), "--input", "", "--quiet", "--trace", str(trace)]) == 0
    orders = json.loads(capsys.readouterr().out)
    assert len(orders) == 16
    assert {"quantity": 12, "item": "folding chairs", "city": "Lisbon"} in orders
    ended = [event for event in read_trace(trace) if isinstance(event, ev.GenerationEnded)]
    prompts = [event.prompt_tokens for event in ended]
    shortest = min(prompts)
    assert sum(event.computed_tokens for event in ended) < shortest + 16 * (max(prompts) - shortest + 20)


@pytest.mark.model
@pytest.mark.usefixtures("smollm2")
def test_tree_of_thought_finds_24(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(EXAMPLES / "tree_of_thought.py"), "--input", "1 2 3 4", "--quiet"]) == 0
    moves: list[str] = json.loads(capsys.readouterr().out)
    game = load_file(EXAMPLES / "tree_of_thought.py")
    for i, move in enumerate(moves):
        assert move in game.legal_moves("1 2 3 4", moves[:i])
    assert game.left("1 2 3 4", moves) == [24]
