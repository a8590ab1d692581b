"""`agentree plan`."""

import argparse

from agentree.cli.files import write_picture
from agentree.cli.load import load_program, on_path, split_target
from agentree.cli.report import DONE, put


def plan_command(arguments: argparse.Namespace) -> int:
    """Print a program's prefix plan, or its graph as a Mermaid diagram, or draw it."""
    path, _ = split_target(arguments.file)
    with on_path(path.parent):
        program = load_program(arguments.file)
        if arguments.svg not in (None, "-"):
            write_picture(arguments.svg, program.svg())
            return DONE
        text = (
            program.svg() if arguments.svg else program.mermaid() if arguments.mermaid else program.explain()
        )
    put(text.rstrip("\n"))
    return DONE
