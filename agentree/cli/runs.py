"""`agentree runs`: what journals keep, and how people answer."""

import argparse
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import platformdirs

from agentree.cli.load import as_program, load_entry, on_path, split_target
from agentree.cli.output import render
from agentree.cli.report import DONE, WAITING, WrongUse, put, say
from agentree.cli.runs_text import as_json, asked, flag, visits, ways_on, when
from agentree.cli.session import run_over
from agentree.errors import AgentreeError, Interrupted, JournalError, UncertainCall
from agentree.graph.journal.finished import look_now
from agentree.graph.journal.opened import cancelled
from agentree.graph.journal.reading import Runs
from agentree.tools import canonical_json
from agentree.trace.text import in_words, one_line

if TYPE_CHECKING:
    from agentree.cli.load import AnyProgram
    from agentree.lm import Runtime

_DAY = 86400.0
_PATIENCE = 5.0
"""Seconds that a process is given to stop a run."""


def journal_path(given: str | None) -> Path:
    """The journal that is meant: as given, else AGENTREE_JOURNAL, else one in the user's data folder."""
    path = given or os.environ.get("AGENTREE_JOURNAL") or ""
    return Path(path) if path else Path(platformdirs.user_data_dir("agentree")) / "runs.journal"


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
            put(as_json({**vars(header), "status": status}))
        return DONE
    width = max([len(header.run) for header, _ in found], default=0)
    for header, status in found:
        program = one_line(header.program)
        on = ""
        if status == "answered":
            on = f"  (go on:  agentree runs resume {header.run}{flag(arguments.journal)})"
        put(f"{header.run:<{width}}  {status:<11}  {when(header.created)}  {program}{on}")
    return DONE


def show_command(arguments: argparse.Namespace) -> int:
    """Print what a run has done, and what it asks."""
    with Runs(journal_path(arguments.journal)) as runs:
        shown = runs.show(arguments.run)
    if arguments.json:
        facts = [vars(fact) for fact in shown.facts]
        questions = [vars(question) for question in shown.questions]
        put(as_json({**vars(shown.header), "status": shown.status, "questions": questions, "facts": facts}))
        return DONE
    header = shown.header
    source = f"  ({one_line(header.source)})" if header.source else ""
    put(f"run {header.run}  {one_line(header.program)}{source}")
    put(f"{in_words(shown.status)}, begun {when(header.created)}, last written {when(header.updated)}")
    for line in visits(shown):
        put(line)
    for line in asked(header.run, shown.questions, flag(arguments.journal)):
        put(line)
    for line in ways_on(shown, arguments.journal):
        put(line)
    return DONE


def answer_command(arguments: argparse.Namespace) -> int:
    """Answer a question of a run."""
    with Runs(journal_path(arguments.journal)) as runs:
        runs.answer(arguments.run, arguments.path, arguments.json)
        shown = runs.show(arguments.run)
    left = len(shown.questions)
    put(f"answered {arguments.path}; " + (f"{left} more to answer" if left else "nothing more is asked"))
    for line in [] if left else ways_on(shown, arguments.journal):
        put(line)
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
        for line in asked(run, interrupted.questions, flag(journal)):
            say(line)
        return WAITING
    except UncertainCall as call:
        resume = f"agentree runs resume {run}"
        arguments = one_line(canonical_json(dict(call.arguments))[1:-1])
        raise AgentreeError(
            f"run {run!r}, {call.path}: {call.tool}({arguments}) was under way when the process stopped, and "
            "nobody knows whether it had its effect: find out, then write "
            f"'{resume} --uncertain tell{flag(journal)}' (the model is told) or "
            f"'{resume} --uncertain rerun{flag(journal)}' (it is called again)"
        ) from call
    except JournalError:
        raise
    except (KeyboardInterrupt, Exception):
        with suppress(AgentreeError), Runs(journal_path(journal)) as runs:
            for line in ways_on(runs.show(run), journal):
                say(line)
        raise
    put(render(outcome.value))
    return cast("int", outcome.code)
