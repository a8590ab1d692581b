"""`agentree runs`: what journals keep, and how people answer."""

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import platformdirs

from agentree.cli.load import as_program, load_entry, on_path, split_target
from agentree.cli.output import render
from agentree.cli.report import DONE, WAITING, WrongUse, put, say
from agentree.cli.session import run_over
from agentree.errors import AgentreeError, Interrupted, JournalError, Question, UncertainCall
from agentree.events import STOPPED
from agentree.graph.journal.finished import look_now
from agentree.graph.journal.opened import cancelled
from agentree.graph.journal.reading import Runs, Shown
from agentree.graph.journal.telling import told
from agentree.tools import canonical_json
from agentree.trace.text import escape, in_words, one_line

if TYPE_CHECKING:
    from agentree.cli.load import AnyProgram
    from agentree.graph.journal.facts import Fact
    from agentree.lm import Runtime

_DAY = 86400.0
_FIRST = {"limit": "raise the limit in the program, then ", "failed": "mend the cause, then "}
"""By the status of a run, what is to be done before it goes on."""
_PATIENCE = 5.0
"""Seconds that a process is given to stop a run."""
_CUT_OFF = {"running": "running", "interrupted": "cut off", "cancelled": "cancelled", "failed": "cancelled"}
"""By the status of a run, that of its visits that have begun and not ended; "stopped" in the others."""
_RESUMABLE = ("interrupted", "waiting", "stopped", "limit", "failed")


def journal_path(given: str | None) -> Path:
    """The journal that is meant: as given, else AGENTREE_JOURNAL, else one in the user's data folder."""
    path = given or os.environ.get("AGENTREE_JOURNAL") or ""
    return Path(path) if path else Path(platformdirs.user_data_dir("agentree")) / "runs.journal"


def flag(given: str | None) -> str:
    """The option that names the same journal in a further command."""
    return f" --journal {given}" if given else ""


def list_command(arguments: argparse.Namespace) -> int:
    """Print all runs, the newest first."""
    path = journal_path(arguments.journal)
    if not path.exists():
        say(f"there is no journal {str(path)!r} yet: agentree run FILE --journal makes one")
        return DONE
    with Runs(path) as runs:
        found = runs.all()
    if arguments.json:
        for header, status in found:
            put(_json({**vars(header), "status": status}))
        return DONE
    width = max([len(header.run) for header, _ in found], default=0)
    for header, status in found:
        program = one_line(header.program)
        put(f"{header.run:<{width}}  {status:<11}  {_when(header.created)}  {program}")
    return DONE


def show_command(arguments: argparse.Namespace) -> int:
    """Print what a run has done, and what it asks."""
    with Runs(journal_path(arguments.journal)) as runs:
        shown = runs.show(arguments.run)
    if arguments.json:
        facts = [vars(fact) for fact in shown.facts]
        questions = [vars(question) for question in shown.questions]
        put(_json({**vars(shown.header), "status": shown.status, "questions": questions, "facts": facts}))
        return DONE
    header = shown.header
    source = f"  ({one_line(header.source)})" if header.source else ""
    put(f"run {header.run}  {one_line(header.program)}{source}")
    put(f"{in_words(shown.status)}, begun {_when(header.created)}, last written {_when(header.updated)}")
    for line in _visits(shown):
        put(line)
    for line in _asked(header.run, shown.questions, flag(arguments.journal)):
        put(line)
    if not shown.questions and shown.status in _RESUMABLE:
        put(_go_on(header.run, arguments.journal, shown.status))
    return DONE


def answer_command(arguments: argparse.Namespace) -> int:
    """Answer a question of a run."""
    with Runs(journal_path(arguments.journal)) as runs:
        runs.answer(arguments.run, arguments.path, arguments.json)
        left = len(runs.show(arguments.run).questions)
    put(f"answered {arguments.path}; " + (f"{left} more to answer" if left else "nothing more is asked"))
    if not left:
        put(_go_on(arguments.run, arguments.journal))
    return DONE


def cancel_command(arguments: argparse.Namespace) -> int:
    """End a run that nobody goes on with, or ask the process that does to stop."""
    with Runs(journal_path(arguments.journal)) as runs:
        over = runs.cancel(arguments.run) or runs.wait(arguments.run, _PATIENCE)
    put(
        f"run {arguments.run} is cancelled"
        if over
        else f"run {arguments.run} is asked to stop, and its process has not done so yet: it does once a "
        "function of its program that holds it up has returned"
    )
    return DONE


def gc_command(arguments: argparse.Namespace) -> int:
    """Forget runs that have been over for some days."""
    with Runs(journal_path(arguments.journal)) as runs:
        old = runs.old(time.time() - arguments.days * _DAY)
        if old:
            runs.remove(old)
    put(f"{len(old)} runs removed" if len(old) != 1 else "1 run removed")
    return DONE


async def _resume(
    program: "AnyProgram", run: str, journal: Path, uncertain: Any, changed: Any, lm: "Runtime"
) -> object:
    return await program.resume(run, lm=lm, journal=journal, uncertain=uncertain, changed=changed)


def resume_command(arguments: argparse.Namespace) -> int:
    """Go on with a run, and print its result."""
    journal = journal_path(arguments.journal)
    with Runs(journal) as runs:
        shown = runs.show(arguments.run)
    if shown.status == "cancelled":
        raise cancelled(arguments.run)
    header = shown.header
    target = arguments.file or header.source
    if not target:
        raise WrongUse(
            f"run {arguments.run!r} was not begun by a command: say which file has its program, as in "
            f"agentree runs resume {arguments.run} agent.py:program"
        )
    path, _ = split_target(target)
    with on_path(path.parent):
        program = as_program(load_entry(target))
        if program is None:
            raise WrongUse(f"{target!r} is no compiled program: only those can be resumed")
        accept = "accept" if arguments.changed else "refuse"
        known = look_now(program._definition, journal, arguments.run, {}, accept)
        if known.output is not None:
            put(render(known.output.value))
            return DONE
        work = partial(_resume, program, arguments.run, journal, arguments.uncertain, accept)
        return journaled(
            arguments.run,
            arguments.journal,
            lambda: run_over(
                arguments.model or header.model, work, trace=arguments.trace, quiet=arguments.quiet
            ),
        )


def journaled(run: str, journal: str | None, work: "Callable[[], Any]") -> int:
    """Do the work and print its result; where it waits for a person, print what is asked.

    Raises KeyboardInterrupt and what the run raises, after saying how it goes on if it can.
    """
    try:
        outcome = work()
    except Interrupted as interrupted:
        say(f"run {run} waits for a person")
        for line in _asked(run, interrupted.questions, flag(journal)):
            say(line)
        return WAITING
    except UncertainCall as call:
        arguments = canonical_json(dict(call.arguments))[1:-1]
        raise AgentreeError(
            f"run {run!r}, {call.path}: {call.tool}({arguments}) was under way when the process stopped, and "
            "nobody knows whether it had its effect: find out, then resume with --uncertain tell (the model "
            "is told) or --uncertain rerun (it is called again)"
        ) from call
    except JournalError:
        raise
    except (KeyboardInterrupt, Exception):
        with suppress(AgentreeError), Runs(journal_path(journal)) as runs:
            if (status := runs.show(run).status) in _RESUMABLE:
                say(_go_on(run, journal, status))
        raise
    put(render(outcome.value))
    return cast("int", outcome.code)


# ---------------------------------------------------------------------------------------------- text


def _go_on(run: str, journal: str | None, status: str = "") -> str:
    first = _FIRST.get(status, "")
    return f"{first}go on:  agentree runs resume {run}{flag(journal)}"


def _asked(run: str, questions: Sequence[Question], journal: str) -> list[str]:
    lines: list[str] = []
    for question in questions:
        lines.append(f"{question.path} asks: {one_line(question.text)}")
        if question.tool:
            arguments = canonical_json(dict(question.arguments))
            lines.append(f"    {one_line(question.tool)}({escape(arguments)})")
        sample = "true" if question.tool else "JSON"
        lines.append(f"    answer:  agentree runs answer {run} '{question.path}' {sample}{journal}")
        lines.append(f"    JSON is {_form(question)}")
    return lines


def _form(question: Question) -> str:
    if question.tool:
        return 'true, false, or {"approved": false, "reason": "for the model"}'
    schema = {key: value for key, value in question.schema.items() if key not in ("title", "description")}
    return f"a value of {escape(canonical_json(schema))}"


def _visits(shown: Shown) -> list[str]:
    """One line for each visit, in the order in which they began."""
    ends: dict[str, tuple[str, str]] = {}
    order: dict[str, str] = {}
    for fact in shown.facts:
        match fact.kind:
            case "node started":
                order.setdefault(fact.path, str(fact.body["node_kind"]))
            case "node ended":
                order.setdefault(fact.path, "join")
                ends[fact.path] = ("done", one_line(plain(fact.body["output"])))
            case "node failed":
                ends[fact.path] = _without_output(one_line(fact.body["error"]))
            case _:
                pass
    asked = {_visit(question.path) for question in shown.questions}
    answered = {_visit(path) for path in shown.answered}
    lines: list[str] = []
    width = max(map(len, order), default=0)
    cut_off = _CUT_OFF.get(shown.status, "stopped")
    for path, kind in order.items():
        open_ = "waits" if path in asked else "answered" if path in answered else cut_off
        status, text = ends.get(path, (open_, ""))
        lines.append(f"  {path:<{width}}  {kind:<6}  {status:<8}  {text}".rstrip())
        lines += [f"  {'':<{width}}  {line}" for line in _calls(shown.facts, path)]
    return lines


def _without_output(error: str) -> tuple[str, str]:
    """The status of a visit that ended without an output, and why."""
    if error.startswith(STOPPED):
        return "stopped", error.removeprefix("stopped ")
    return "failed", error


def _visit(question: str) -> str:
    """The visit that asks a question."""
    return question.partition(":")[0]


def _calls(facts: "Sequence[Fact]", path: str) -> list[str]:
    calls: dict[str, str] = {}
    for fact in facts:
        if fact.path == path and fact.kind == "call started":
            arguments = canonical_json(fact.body["arguments"])
            calls[fact.body["call"]] = f"{fact.body['tool']}({escape(arguments)}) -> its end is unknown"
        elif fact.path == path and fact.kind == "call withdrawn":
            calls.pop(fact.body["call"], None)
        elif fact.path == path and fact.kind == "call ended":
            begun = calls.get(fact.body["call"], str(fact.body["tool"])).partition(" -> ")[0]
            calls[fact.body["call"]] = f"{begun} -> {one_line(fact.body['content'])}"
    return list(calls.values())


def plain(written: Any) -> str:
    """A value of the journal as text for people."""
    value = told(written)
    return value if isinstance(value, str) else canonical_json(value)


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    # Half a character is written as JSON escapes it.
    return text.encode(errors="backslashreplace").decode()
