"""The `agentree` command. Nothing heavy is imported before a command is chosen."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TextIO

from agentree.cli.parser import build_parser
from agentree.cli.report import DONE, FAILED, INTERRUPTED, WRONG_USE, OutputClosed, WrongUse, fail, say

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: the process's own); returns the exit code.

    0 done, 1 it failed, 2 wrong use, 130 interrupted. A reason is one line on stderr; `--debug` adds the
    traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        _never_refuse(stream)
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return DONE
    code = _run(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or it is flushed again at the end
        return code or FAILED
    return code


def _run(arguments: argparse.Namespace) -> int:
    try:
        return arguments.command(arguments)
    except OutputClosed:
        return FAILED
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except WrongUse as error:
        return fail(error, code=WRONG_USE, debug=arguments.debug)
    except Exception as error:
        return fail(error, code=FAILED, debug=arguments.debug)


def _never_refuse(stream: TextIO) -> None:
    """Characters that the stream's encoding lacks are written as escapes, not raised as errors."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
