"""The `agentree` command. Nothing heavy is imported before a command is chosen."""

import argparse
import sys
from collections.abc import Sequence
from typing import TextIO, cast

from agentree.cli.parser import build_parser
from agentree.cli.report import (
    DONE,
    FAILED,
    INTERRUPTED,
    TERMINATED,
    WRONG_USE,
    OutputClosed,
    WrongUse,
    fail,
    say,
)
from agentree.cli.streams import let_go_of_stdout, never_refuse, occupy_closed, terminable

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: the process's own); returns the exit code.

    0 done, 1 it failed, 2 wrong use, 3 it waits for an answer, 130 interrupted, 143 terminated. A reason is
    one line on stderr; `--debug` adds the traceback.
    """
    occupy_closed()
    for stream in (sys.stdout, sys.stderr):
        never_refuse(stream)
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return DONE
    return _flushed(_run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    with terminable() as terminated:
        try:
            return arguments.command(arguments)
        except OutputClosed:
            return FAILED
        except KeyboardInterrupt:
            say("terminated" if terminated.is_set() else "interrupted")
            return TERMINATED if terminated.is_set() else INTERRUPTED
        except WrongUse as error:
            return fail(error, code=WRONG_USE, debug=arguments.debug)
        except Exception as error:
            return fail(error, code=FAILED, debug=arguments.debug)


def _flushed(code: int) -> int:
    try:
        if cast("TextIO | None", sys.stdout) is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        let_go_of_stdout()
        return code or FAILED
    except OSError as error:
        let_go_of_stdout()
        return code or fail(error, code=FAILED, debug=False)
    return code
