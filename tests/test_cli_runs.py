"""`agentree runs` and `agentree run --journal`, on a tiny model."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import tiny_llama

from agentree.cli import main
from agentree.cli.runs import journaled
from agentree.errors import AgentreeError, UncertainCall
from agentree.graph.journal.facts import Fact, Header
from agentree.graph.journal.file import JournalFile

PROGRAM = """
import os, signal
from pathlib import Path
from pydantic import BaseModel
from agentree import Ctx, Graph, Message, user

class Verdict(BaseModel):
    fine: bool
    title: str

g = Graph("publish", input=str, output=str)

@g.llm(str, max_tokens=4)
def draft(ctx: Ctx, text: str) -> Message:
    return user(text[:8])

@g.step
async def crash(ctx: Ctx, text: str) -> str:
    if Path("armed").exists():
        number = int(Path("armed").read_text())
        Path("armed").unlink()
        os.kill(os.getpid(), number)
    return text

@g.step
async def review(ctx: Ctx, text: str) -> str:
    verdict = await ctx.interrupt("Is it \\x1b[31mfine?", Verdict)
    return f"{verdict.title} {verdict.fine} {len(ctx.transcript)}"

g.edge(g.start, draft)
g.edge(draft, crash)
g.edge(crash, review)
g.edge(review, g.end)
publish = g.compile()

async def function(lm, text):
    return text
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("model"), layers=1))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agent.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTREE_JOURNAL", str(tmp_path / "runs.journal"))
    return tmp_path


def run(model: str, *more: str) -> list[str]:
    return ["run", "agent.py:publish", "--input", "x", "--model", model, "--quiet", "--journal", *more]


@pytest.mark.usefixtures("here")
def test_from_the_question_to_the_result(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(run(model, "--run-id", "a")) == 3
    err = capsys.readouterr().err
    assert "agentree: review asks: Is it \\x1b[31mfine?" in err
    assert "agentree runs answer a 'review' JSON" in err
    assert main(["runs", "list"]) == 0
    assert capsys.readouterr().out.startswith("a  waiting")
    assert main(["runs", "show", "a", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["status"], shown["questions"][0]["path"]) == ("waiting", "review")
    assert [f["kind"] for f in shown["facts"]][:3] == ["accepted", "opened", "node started"]
    assert main(["runs", "answer", "a", "review", '{"fine": true}']) == 1
    assert "'title' is missing" in capsys.readouterr().err
    for said, why in (
        ('{"fine": true, "title": "T", "titel": "U"}', "'titel' is not known (there are: fine, title)"),
        ('{"fine": true, "title": "T", "fine": false}', "it has 'fine' twice"),
    ):
        assert main(["runs", "answer", "a", "review", said]) == 1
        assert f"the answer to 'review' does not fit: {why}" in capsys.readouterr().err
    assert main(["runs", "resume", "a", "--quiet"]) == 3
    capsys.readouterr()
    assert main(["runs", "answer", "a", "review", '{"fine": true, "title": "T"}']) == 0
    capsys.readouterr()
    assert main(["runs", "list"]) == 0
    listed = capsys.readouterr().out
    assert listed.startswith("a  answered  ")
    assert listed.endswith("  publish  (go on:  agentree runs resume a)\n")
    assert main(["runs", "answer", "a", "review", '{"fine": true, "title": "T"}']) == 1
    assert "answered already" in capsys.readouterr().err
    assert main(["runs", "resume", "a", "--quiet"]) == 0
    assert capsys.readouterr().out.startswith("T True ")
    assert main(["runs", "show", "a"]) == 0
    out = capsys.readouterr().out
    assert "review  step    done      T True" in out
    assert main(["runs", "cancel", "a"]) == 1
    assert main(["runs", "gc"]) == 0
    assert main(["runs", "gc", "--days", "0"]) == 0
    assert capsys.readouterr().out.splitlines() == ["0 runs removed", "1 run removed"]


def test_a_killed_process_leaves_a_run_that_goes_on(
    here: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "armed").write_text(str(int(signal.SIGKILL)))
    command = [sys.executable, "-m", "agentree", *run(model, "--run-id", "b")]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    assert main(["runs", "list"]) == 0
    assert capsys.readouterr().out.startswith("b  interrupted")
    assert main(["runs", "show", "b"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[2:4]] == [
        ["draft", "llm", "done"],
        ["crash", "step", "cut"],
    ]
    assert lines[-1] == "go on:  agentree runs resume b"
    assert main(["runs", "show", "b", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["updated"] == shown["facts"][-1]["time"] > shown["created"]
    # The program is elsewhere by now.
    (here / "agent.py").rename(here / "moved.py")
    assert main(["runs", "resume", "b", "--quiet"]) == 2
    assert "there is no file" in capsys.readouterr().err
    assert main(["runs", "resume", "b", "moved.py:publish", "--quiet"]) == 3
    assert main(["runs", "cancel", "b"]) == 0
    assert main(["runs", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["status"] == "cancelled"


def test_a_run_that_is_interrupted_says_how_it_goes_on(
    here: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "armed").write_text(str(int(signal.SIGINT)))
    command = [sys.executable, "-m", "agentree", *run(model, "--run-id", "c")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr.splitlines()[-2:] == [
        "agentree: go on:  agentree runs resume c",
        "agentree: interrupted",
    ]
    assert main(["runs", "list"]) == 0
    assert capsys.readouterr().out.startswith("c  stopped")
    assert main(["runs", "gc", "--days", "0"]) == 0
    assert capsys.readouterr().out == "0 runs removed\n"
    assert main(["runs", "cancel", "c"]) == 0
    capsys.readouterr()
    assert main(["runs", "show", "c"]) == 0
    assert "go on" not in capsys.readouterr().out
    assert main(["runs", "resume", "c"]) == 1
    assert "run 'c' was cancelled" in capsys.readouterr().err


LIMITED = """
from agentree import Ctx, Graph, Limits

g = Graph("limited", input=str, output=str)

@g.step
async def look(ctx: Ctx, text: str) -> str:
    return text + "!"

@g.step
async def again(ctx: Ctx, text: str) -> str:
    if text == "wait!!":
        import anyio
        await anyio.sleep(30)
    return text

g.edge(g.start, look)
g.edge(look, again)
g.branch(again).case(str, g.end, where=lambda text: len(text) > 6).otherwise(look)
counted = g.compile(limits=Limits(turns=1, seconds=0.3))

h = Graph("outer", input=str, output=str)
inner = h.call(counted)
h.edge(h.start, inner)
h.edge(inner, h.end)
outer = h.compile()
"""


def test_a_limit_is_told_as_one(here: Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "limited.py").write_text(LIMITED)
    command = ["--input", "wait", "--model", model, "--journal", "--trace", "out.jsonl"]
    for run, name in (("a", "counted"), ("b", "outer")):
        assert main(["run", f"limited.py:{name}", *command, "--run-id", run]) == 1
        err = capsys.readouterr().err
        assert "failed" not in err
        assert "again#2: stopped by a limit: 0.3 seconds are over" in err
        assert (
            f"run {name if name == 'outer' else 'limited'} stopped by a limit: program 'limited': 0.3" in err
        )
        assert main(["runs", "list"]) == 0
        assert capsys.readouterr().out.splitlines()[0].startswith(f"{run}  limit  ")
        assert main(["runs", "show", run]) == 0
        shown = capsys.readouterr().out
        assert "stopped by a limit, begun" in shown
        assert "failed" not in shown
        way_out = f"raise the limit in the program, then go on:  agentree runs resume {run}"
        assert shown.splitlines()[-1] == way_out
        assert f"agentree: {way_out}\n" in err
        assert main(["trace", "--speed", "max", "out.jsonl"]) == 0
        replayed = capsys.readouterr()
        assert "failed" not in replayed.out + replayed.err
        assert "stopped by a limit: 0.3 seconds are over" in replayed.out + replayed.err
    assert "call    stopped   by a limit: program 'limited': 0.3 seconds are over" in shown
    assert "limited/again#2  step    stopped" in shown


def test_a_call_that_is_uncertain_is_told_with_the_options_of_the_command() -> None:
    def work() -> None:
        raise UncertainCall("uncertain='tell'", run="a", path="tools", tool="pay", arguments={"x": 1})

    with pytest.raises(AgentreeError, match=r'tools: pay\("x": 1\) was under way .* a --uncertain tell'):
        journaled("a", None, work)


@pytest.mark.parametrize("pure", [False, True])
def test_a_call_whose_end_is_unknown_is_shown_with_the_ways_on(
    pure: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "j"
    file = JournalFile(path, create=True)
    call = {"call": "c1", "tool": "pay", "arguments": {"x": 1, "note": "n" * 300}, "pure": pure}
    facts = [Fact("node started", "tools", {"node": "tools", "node_kind": "tools"}, 1.0)]
    facts.append(Fact("call started", "tools", call, 2.0))
    file.create(Header("u", "p", "", "m", 1.0, 1.0, "running"), facts)
    resume = "agentree runs resume u"
    ways = [
        "find out, then go on by one of:",
        f"    {resume} --uncertain tell --journal {path}   (the model is told that nobody knows)",
        f"    {resume} --uncertain rerun --journal {path}  (it is called again)",
    ]
    error = "UncertainCall: run 'u', tools: pay" + "y" * 300
    failed = [Fact("node failed", "tools", {"error": error}, 3.0)]
    failed.append(Fact("ended", "", {"status": "failed", "error": error}, 3.0))
    for append in (None, failed):
        if append:
            file.append("u", append, "failed")
        assert main(["runs", "show", "u", "--journal", str(path)]) == 0
        lines = capsys.readouterr().out.splitlines()
        if pure:
            first = "mend the cause, then " if append else ""
            assert lines[-1] == f"{first}go on:  {resume} --journal {path}"
        else:
            assert lines[-3:] == ways
            assert (
                not append
                or lines[2] == "  tools  tools   failed    UncertainCall: the end of a call is unknown"
            )
            assert lines[-4].startswith('tools: pay({"x": 1, "note": "nnn')
            assert lines[-4].endswith("…) was under way, and nobody knows whether it had its effect")
    file.append("u", [Fact("call ended", "tools", {"call": "c1", "tool": "pay", "content": "ok"}, 4.0)])
    assert main(["runs", "show", "u", "--journal", str(path)]) == 0
    assert "--uncertain" not in capsys.readouterr().out
    file.close()


def test_half_a_character_is_shown_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "j"
    file = JournalFile(path, create=True)
    body = {"input": "a\udc80ü", "seconds": 0.5}
    file.create(Header("a", "p", "", "m", 1.0, 1.0, "running"), [Fact("accepted", "", body, 1.0)])
    file.close()
    assert main(["runs", "show", "a", "--json", "--journal", str(path)]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["facts"][0]["body"] == body
    assert "ü" in out


@pytest.mark.usefixtures("here")
def test_what_makes_no_sense(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "list"]) == 0
    assert "there is no journal" in capsys.readouterr().err
    for command in (["show", "a"], ["answer", "a", "b", "1"], ["resume", "a"], ["cancel", "a"], ["gc"]):
        assert main(["runs", *command]) == 1
        assert "there is no journal" in capsys.readouterr().err
    function = ["run", "agent.py:function", "--input", "x", "--model", model, "--journal"]
    assert main(function) == 2
    assert "only those can be journaled" in capsys.readouterr().err
    assert main(run(model, "--run-id", "a/b")) == 1
    assert "run_id='a/b'" in capsys.readouterr().err
    assert main(run(model, "--run-id", "a")) == 3
    assert "run a is kept in" in capsys.readouterr().err
    assert main(run(model, "--run-id", "a")) == 1
    err = capsys.readouterr().err
    assert "holds a run 'a' already" in err
    assert "is kept in" not in err
    assert main(["runs", "show", "z"]) == 1
    assert "holds no run 'z'" in capsys.readouterr().err


def test_a_run_that_failed_says_how_it_goes_on(
    here: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "fails.py").write_text(
        "from agentree import Ctx, Graph\n"
        "g = Graph('fails', input=str, output=str)\n"
        "@g.step\n"
        "async def post(ctx: Ctx, text: str) -> str:\n"
        "    raise ConnectionError('no route')\n"
        "g.edge(g.start, post)\n"
        "g.edge(post, g.end)\n"
        "program = g.compile()\n"
    )
    quiet = ["--model", model, "--quiet"]
    begun = ["run", "fails.py", "--input", "x", "--journal", "--run-id", "f", *quiet]
    said = ["agentree: mend the cause, then go on:  agentree runs resume f"]
    said += ["agentree: error: ConnectionError: no route"]
    assert main(begun) == 1
    assert capsys.readouterr().err.splitlines()[1:] == said
    assert main(["runs", "resume", "f", *quiet]) == 1
    assert capsys.readouterr().err.splitlines() == said
    assert main(begun) == 1
    assert "go on" not in capsys.readouterr().err, "another run of that name was refused"
