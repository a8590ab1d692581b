"""Kills a run at every write of its journal, resumes it, and checks what happened.

`python tests/journal_matrix.py FOLDER [MODE [STEP]]`: `kill` kills once, before and after each write; with
`twice` each resumed run is killed as well, at each of its writes; with `full` the disk is full from a write
on, with `readonly` it can't be written to any more. STEP leaves writes out. Every run is a process of
its own, forked from one that has imported everything.
"""

import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from pydantic import BaseModel

from agentree.errors import Interrupted, JournalError
from agentree.graph import Ctx, Graph, Limits, Program, collect, first
from agentree.graph.journal import beat
from agentree.graph.journal.facts import Fact
from agentree.graph.journal.file import JournalFile
from agentree.messages import Message, user
from agentree.testing import ScriptedRequest, ScriptedRuntime, final_answer
from agentree.tools import ToolCall, ToolCalls, ToolResult, tool, tool_result


class Verdict(BaseModel):
    good: bool


class Plan(BaseModel):
    items: list[str]


@dataclass
class Book:
    pages: list[str] = field(default_factory=list[str])


EFFECTS = Path("effects")
FIXED = {"approve": True, "review": {"good": True}, "review:2": 7}


def effect(what: str) -> None:
    """Something that is seen outside: appended and on disk at once."""
    with EFFECTS.open("a") as file:
        file.write(what + "\n")
        file.flush()
        os.fsync(file.fileno())


@tool
async def charge(x: int) -> str:
    """Take money: never twice.

    Args:
        x: How much.
    """
    effect(f"charge {x}")
    return f"charged {x}"


@tool(approve=True)
def send(text: str) -> str:
    """Send a letter: never twice, and only when allowed.

    Args:
        text: The letter.
    """
    effect(f"send {text}")
    return f"sent {text}"


@tool(pure=True)
async def look(x: int) -> str:
    """Look something up.

    Args:
        x: What.
    """
    effect(f"look {x}")
    return f"seen {x}"


def helper() -> Program[Book, str, str]:
    """A program that others call: it has a state of its own."""
    g = Graph("helper", state=Book, input=str, output=str)

    @g.step
    async def note(ctx: Ctx[Book], text: str) -> str:
        ctx.state.pages.append(text)
        effect(f"note {text}")
        return text

    @g.llm(str, max_tokens=20, temperature=0.7)
    def word(ctx: Ctx[Book], text: str) -> Message:
        return user(f"{text} {ctx.state.pages}")

    g.edge(g.start, note)
    g.edge(note, word)
    g.edge(word, g.end)
    return g.compile()


def program() -> Program[Book, str, str]:
    """Tool turns, a map, branches that ask, a race, a called program, generating steps."""
    g = Graph("matrix", state=Book, input=str, output=str)
    tools = (charge, look, send)

    @g.llm(Plan, tools=tools, parallel=True, max_tokens=200, temperature=0.5, system="Plan.")
    def plan(ctx: Ctx[Book], message: str | Message) -> Message:
        return message if isinstance(message, Message) else user(message)

    act = g.tools(*tools)

    @g.step
    async def observe(ctx: Ctx[Book], results: list[ToolResult]) -> Message:
        effect("observe")
        ctx.state.pages.append("observed")
        # Without what it says: of a call that was under way nobody knows.
        return tool_result([ToolResult(result.call, result.call.name) for result in results])

    @g.step
    async def spread(ctx: Ctx[Book], plan: Plan) -> list[str]:
        return plan.items

    @g.llm(str, max_tokens=20, temperature=0.9)
    def draft(ctx: Ctx[Book], item: str) -> Message:
        return user(item)

    call = g.call(helper())

    @g.step
    async def search(ctx: Ctx[Book], text: str) -> str:
        async with ctx.transcript.fork(2) as kids:
            found = await kids.gen(str, max_tokens=8)
            ctx.goto(kids.keep(found[:1])[0])
        effect(f"search {text}")
        return f"{text}/{found[0].value}/{found[1].value}"

    @g.step
    async def gather(ctx: Ctx[Book], texts: list[str]) -> list[str]:
        effect("gather")
        ctx.state.pages.append(f"{len(texts)} texts")
        return texts

    @g.step
    async def approve(ctx: Ctx[Book], texts: list[str]) -> str:
        said = await ctx.interrupt(f"May {texts} go out?", bool)
        effect("approve")
        return f"approved {said}"

    @g.step
    async def review(ctx: Ctx[Book], texts: list[str]) -> str:
        said = await ctx.interrupt("Are they good?", Verdict)
        number = await ctx.interrupt("How many?", int)
        effect("review")
        return f"reviewed {said.good} {number}"

    @g.step
    async def race(ctx: Ctx[Book], said: list[str]) -> list[str]:
        return said

    @g.step
    async def quick(ctx: Ctx[Book], said: list[str]) -> str:
        effect("quick")
        return " ".join(said)

    @g.step
    async def slow(ctx: Ctx[Book], said: list[str]) -> str:
        await anyio.sleep(5)
        return "slow"

    @g.step
    async def write(ctx: Ctx[Book], text: str) -> str:
        effect("write")
        return f"{text} {ctx.state.pages} {len(ctx.transcript)}"

    g.edge(g.start, plan)
    g.branch(plan).case(ToolCalls, act).case(Plan, spread)
    g.edge(act, observe)
    g.edge(observe, plan)
    g.map(spread, draft)
    g.edge(draft, call)
    g.edge(call, search)
    g.edge(g.join(search, collect(str)), gather)
    asked = g.join(g.fork(gather, approve, review), collect(str))
    g.edge(asked, race)
    g.edge(g.join(g.fork(race, quick, slow), first(str)), write)
    g.edge(write, g.end)
    return g.compile(limits=Limits(turns=8, tool_calls=5, tokens=100_000, seconds=600))


def answer(request: ScriptedRequest) -> Any:
    """What the model says, by the path of the visit alone."""
    match request.path:
        case "plan":
            calls = [("charge", {"x": 1}), ("look", {"x": 2}), ("charge", {"x": 3}), ("send", {"text": "hi"})]
            return ToolCalls(tuple(ToolCall("", name, args) for name, args in calls))
        case "plan#2":
            return final_answer(Plan(items=["a", "b", "c"]))
        case path:
            return f"<{path}>"


def killer(n: int, before: bool, act: Callable[[], None]) -> None:
    """From now on in this process: at the n-th write (from 0), before or after it, something happens."""
    count = [0]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def write(self: JournalFile, *args: Any) -> Any:
            mine = count[0]
            count[0] += 1
            if mine == n and before:
                act()
            made = real(self, *args)
            if mine == n and not before:
                act()
            return made

        return write

    JournalFile.append = counted(JournalFile.append)
    JournalFile.create = counted(JournalFile.create)
    JournalFile.answer = counted(JournalFile.answer)


# So that the thread which writes the time is busy all along.
beat.PERIOD = 0.01


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail_with(text: str) -> Callable[[], None]:
    """From now on nothing can be written."""

    def act() -> None:
        def refuse(self: JournalFile, db: sqlite3.Connection, run: str, facts: Sequence[Fact]) -> Any:
            raise sqlite3.OperationalError(text)

        JournalFile._insert = refuse

    return act


async def go(backend_run: str) -> dict[str, Any]:
    """One process's part of the run: begin or resume it, and answer what it asks, one question at a time."""
    compiled = program()
    journal = Path("runs.journal")
    async with ScriptedRuntime(answer) as lm:
        begun = journal.exists()
        if begun:
            file = JournalFile(journal)
            begun = bool(file.runs())
            file.close()
        answers: dict[str, object] = {}
        while True:
            try:
                if begun:
                    how: Any = {"lm": lm, "journal": journal, "uncertain": "tell"}
                    output = await compiled.resume("run", answers=answers, **how)
                else:
                    output = await compiled.run("go", lm=lm, journal=journal, run_id="run", seed=5)
                lm.check()
                return {"output": output}
            except Interrupted as interrupted:
                begun = True
                question = interrupted.questions[-1]
                answers = {
                    question.path: True if question.tool else FIXED[re.sub(r"\[\d+\]", "", question.path)]
                }
            except JournalError as e:
                reached = None if e.transcript is None else len(e.transcript.token_ids)
                return {"error": str(e), "reached": reached}


def child(folder: Path, kill: tuple[int, bool] | None, act: Callable[[], None]) -> int:
    """Run in a process of its own; returns its wait status. What it returned lies in `result`."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        os.chdir(folder)
        if kill is not None:
            killer(*kill, act)
        made = anyio.run(go, "", backend=os.environ.get("BACKEND", "asyncio"))
        Path("result").write_text(json.dumps(made))
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def happened(folder: Path) -> Counter[str]:
    path = folder / EFFECTS
    return Counter(path.read_text().split("\n")[:-1] if path.exists() else [])


def facts(folder: Path) -> list[Fact]:
    file = JournalFile(folder / "runs.journal")
    found = file.facts("run")
    file.close()
    return found


def check(folder: Path, plain: Path, deaths: int) -> None:
    """What a run that was stopped so often and resumed has to be like."""
    result = json.loads((folder / "result").read_text())
    expected = json.loads((plain / "result").read_text())
    assert result == expected, f"{result}\n{expected}"
    ours, theirs = happened(folder), happened(plain)
    for what, n in theirs.items():
        kind = what.split()[0]
        if kind in ("charge", "send"):
            assert ours[what] <= 1, f"{what} happened {ours[what]} times"
        else:
            assert 1 <= ours[what] <= n + deaths, f"{what} happened {ours[what]} times"
    assert set(ours) <= set(theirs)
    recorded = facts(folder)
    ends = Counter(fact.path for fact in recorded if fact.kind == "node ended")
    assert set(ends.values()) == {1}, f"ended twice: {[path for path, n in ends.items() if n > 1]}"
    assert set(ends) == {fact.path for fact in facts(plain) if fact.kind == "node ended"}
    made = Counter((fact.path, fact.body["key"]) for fact in recorded if fact.kind == "generation")
    whole = Counter((fact.path, fact.body["key"]) for fact in facts(plain) if fact.kind == "generation")
    told = any(fact.body.get("content", "").startswith("the outcome of this call") for fact in recorded)
    assert made == whole or (told and len(made) == len(whole)), "a generation was made twice"


def writes(folder: Path) -> int:
    """How many writes a run in this folder takes to its end."""
    counting = folder / "count"
    pid = os.fork()
    if pid:
        assert os.waitpid(pid, 0)[1] == 0
        return int(counting.read_text())
    try:
        os.chdir(folder)
        count = [0]
        for name in ("append", "create", "answer"):
            real = getattr(JournalFile, name)

            def counted(self: JournalFile, *args: Any, real: Any = real) -> Any:
                count[0] += 1
                return real(self, *args)

            setattr(JournalFile, name, counted)
        made = anyio.run(go, "", backend=os.environ.get("BACKEND", "asyncio"))
        Path("result").write_text(json.dumps(made))
        Path("count").write_text(str(count[0]))
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def stop_at(folder: Path, n: int, before: bool, act: Callable[[], None], mode: str) -> bool:
    """A part of a run that is stopped at a write; False if it came to its end instead."""
    status = child(folder, (n, before), act)
    if mode in ("kill", "twice"):
        return status == signal.SIGKILL
    assert status == 0, status
    result = json.loads((folder / "result").read_text())
    if "output" in result:
        return False
    assert "can't be written" in result["error"], result
    return True


def main(base: Path, mode: str, step: int) -> None:
    plain = base / "plain"
    plain.mkdir(parents=True)
    total = writes(plain)
    words = {"full": "database or disk is full", "readonly": "attempt to write a readonly database"}
    act = fail_with(words[mode]) if mode in words else die
    runs = 0
    for n in range(0, total, step):
        for before in (True, False):
            folder = base / f"{n}{'b' if before else 'a'}"
            folder.mkdir()
            if not stop_at(folder, n, before, act, mode):
                assert not before and n >= total - 1, f"{folder.name}: it was to be stopped"
            if mode == "twice":
                for m in range(0, total, step):
                    again = base / f"{folder.name}-{m}"
                    shutil.copytree(folder, again)
                    stopped = stop_at(again, m, True, act, mode)
                    assert child(again, None, act) == 0
                    check(again, plain, 2)
                    runs += 1
                    if not stopped:
                        break
            assert child(folder, None, act) == 0, f"{folder.name}: it could not be resumed"
            check(folder, plain, 1)
            runs += 1
    print(f"{mode}: {total} writes, {runs} runs stopped and resumed")


if __name__ == "__main__":
    folder, mode, step = [*sys.argv[1:], *("kill", "1")[len(sys.argv) - 2 :]]
    main(Path(folder), mode, int(step))
