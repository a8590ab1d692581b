"""`agentree plan`."""

import argparse

from agentree.cli.load import as_program, load_entry, on_path, split_target
from agentree.cli.report import DONE, WrongUse, put


def plan_command(arguments: argparse.Namespace) -> int:
    """Print a program's prefix plan, or its graph as a Mermaid diagram."""
    path, _ = split_target(arguments.file)
    with on_path(path.parent):
        program = as_program(load_entry(arguments.file))
        if program is None:
            raise WrongUse(f"{arguments.file!r} is a function: only compiled graphs have a plan")
        text = program.mermaid() if arguments.mermaid else program.explain()
    put(text.rstrip("\n"))
    return DONE
