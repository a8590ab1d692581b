"""`agentree run`."""

import argparse
from functools import partial
from typing import TYPE_CHECKING, cast

from agentree.cli.load import as_program, load_entry, on_path, split_target
from agentree.cli.output import as_input, read_input, render
from agentree.cli.report import WrongUse, put, say
from agentree.cli.runs import journal_path, journaled
from agentree.cli.session import run_over
from agentree.graph.journal.opened import Place, new_run_id
from agentree.lm import Runtime

if TYPE_CHECKING:
    from agentree.cli.load import AnyProgram, Function


async def _run_program(program: "AnyProgram", value: object, lm: Runtime) -> object:
    return await program.run(value, lm=lm)


async def _run_journaled(
    program: "AnyProgram", value: object, place: Place, run_id: str, lm: Runtime
) -> object:
    return await program._run(value, lm, place=place, run_id=run_id)


async def _run_function(function: "Function", text: str, lm: Runtime) -> object:
    return await function(lm, text)


def run_command(arguments: argparse.Namespace) -> int:
    """Run a file's program on the input and print its result."""
    path, name = split_target(arguments.file)
    with on_path(path.parent):
        entry = load_entry(arguments.file)
        text = read_input(arguments.input)
        program = as_program(entry)
        if arguments.journal is not None or arguments.run_id is not None:
            if program is None:
                raise WrongUse(f"{arguments.file!r} is no compiled program: only those can be journaled")
            run_id, journal = new_run_id(arguments.run_id), arguments.journal or None
            value = as_input(program._definition.input, text)
            source, kept = f"{path.resolve()}{':' * bool(name)}{name}", journal_path(journal)
            place = Place(kept, source, partial(say, f"run {run_id} is kept in {kept}"))
            keep = partial(_run_journaled, program, value, place, run_id)
            return journaled(
                run_id,
                journal,
                lambda: run_over(arguments.model, keep, trace=arguments.trace, quiet=arguments.quiet),
            )
        if program is not None:
            work = partial(_run_program, program, as_input(program._definition.input, text))
        else:
            work = partial(_run_function, cast("Function", entry), text)
        outcome = run_over(arguments.model, work, trace=arguments.trace, quiet=arguments.quiet)
    put(render(outcome.value))
    return outcome.code
