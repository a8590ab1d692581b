"""The command line's grammar. Commands are imported only when one is called."""

import argparse
from collections.abc import Callable
from importlib import import_module

from agentree import __version__
from agentree.cli.runs_parser import add_runs
from agentree.cli.values import between, seconds, speed

_EXAMPLES = """\
examples:
  agentree demo                                    an agent answers a question, with the live trace
  agentree run agent.py --input "What is 17*23?"   run the program of a file
  agentree run agents.py:research --input -        run one by name; the input comes from stdin
  agentree run agent.py --input hi --trace t.jsonl --quiet
                                                   the result on stdout, every event in a file
  agentree run agent.py --input hi --journal       a run that outlives whatever stops it
  agentree runs list                               runs that can be shown, answered and resumed
  agentree plan agent.py                           what will be shared, forked and joined
  agentree trace t.jsonl --speed 4                 replay that file, then the plan with what really happened
  agentree top                                     look into a running engine from another terminal
  agentree models list                             models that are known by name

exit codes: 0 done, 1 it failed, 2 wrong use, 3 it waits for an answer, 130 interrupted, 143 terminated
"""
_RUN = """\
Run a program of a Python file and print its result on stdout: text as it is, everything else as JSON.
The live trace goes to stderr. FILE holds a compiled graph, or an async function that takes (lm, text)."""


_TRACE = """\
Replays a trace file in the console, then prints each run's plan with the tokens that its visits took and
the reason of each cache miss. Where stdout is no terminal, it prints plain lines. Keys: space pauses, Enter
goes to the next event, b one back, + and - change the speed, f goes to the end, q quits."""


def _later(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    def call(arguments: argparse.Namespace) -> int:
        return getattr(import_module(f"agentree.cli.{module}"), function)(arguments)

    return call


def _with_debug(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--debug", action="store_true", help="show the traceback when it fails")
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="M", help="catalogue name, folder, .gguf file or hub id")


def _add_trace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trace", metavar="FILE", help="write every event to FILE, one JSON object a line")


def _add_trace_command(trace: argparse.ArgumentParser) -> None:
    trace.add_argument("file", metavar="FILE", help="what --trace wrote")
    trace.add_argument(
        "--speed", type=speed, default=1.0, metavar="X", help="times as fast as it was, or max"
    )
    trace.add_argument("--step", action="store_true", help="wait for a key before each event")
    trace.add_argument("--explain", action="store_true", help="print only the plan with tokens and misses")
    trace.add_argument("--svg", metavar="OUT", help="write a picture of it instead")
    trace.add_argument(
        "--at", type=seconds, metavar="S", help="of the picture: S seconds after the beginning"
    )
    trace.add_argument(
        "--width", type=between(40, 400), metavar="N", help="of the picture: N cells wide (default 100)"
    )
    trace.add_argument(
        "--rows",
        type=between(3, 1000),
        metavar="N",
        help="of the picture: most rows of the tree (default 60)",
    )
    _with_debug(trace).set_defaults(command=_later("trace", "trace_command"))


def _add_running(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    _add_trace(parser)
    parser.add_argument("--quiet", action="store_true", help="no trace on stderr")


def build_parser() -> argparse.ArgumentParser:
    """The parser of `agentree`; a chosen command stands in `command`."""
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="agentree",
        description="Agents as workflow graphs over an inference runtime of their own.",
        epilog=_EXAMPLES,
        formatter_class=shape,
    )
    parser.add_argument("--version", action="version", version=f"agentree {__version__}")
    parser.set_defaults(command=None, debug=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    run = commands.add_parser("run", help="run a program of a file", description=_RUN, formatter_class=shape)
    run.add_argument("file", metavar="FILE[:program]", help="a Python file, and which of its programs")
    run.add_argument("--input", required=True, metavar="TEXT", help="what the program gets; - reads stdin")
    _add_running(run)
    run.add_argument(
        "--journal",
        nargs="?",
        const="",
        metavar="FILE",
        help="keep the run in a journal, so that it can be resumed (default file: see agentree runs --help)",
    )
    run.add_argument("--run-id", metavar="NAME", help="names the run in its journal")
    _with_debug(run).set_defaults(command=_later("run", "run_command"))

    add_runs(commands, _later, _with_debug, _add_running)

    plan = commands.add_parser("plan", help="show the prefix plan of a program")
    plan.add_argument("file", metavar="FILE[:program]", help="a Python file, and which of its programs")
    drawn = plan.add_mutually_exclusive_group()
    drawn.add_argument("--mermaid", action="store_true", help="the graph as a Mermaid diagram instead")
    drawn.add_argument(
        "--svg",
        metavar="OUT",
        nargs="?",
        const="-",
        help="a drawing instead, on stdout or in the file OUT",
    )
    _with_debug(plan).set_defaults(command=_later("plan", "plan_command"))

    models = commands.add_parser("models", help="list and fetch models")
    actions = models.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="models known by name, and which of them are here")
    _with_debug(listing).set_defaults(command=_later("models", "list_command"))
    fetch = actions.add_parser("fetch", help="download and convert a model")
    fetch.add_argument(
        "model", nargs="?", metavar="MODEL", help="default: the smallest one, used by the demo"
    )
    _with_debug(fetch).set_defaults(command=_later("models", "fetch_command"))
    where = actions.add_parser("where", help="print the folder of a model, or of all of them")
    where.add_argument("model", nargs="?", metavar="MODEL")
    _with_debug(where).set_defaults(command=_later("models", "where_command"))

    top = commands.add_parser("top", help="show pool, queue and tree of the runtimes that are open")
    top.add_argument("pid", nargs="?", type=int, metavar="PID", help="only those of this process")
    top.add_argument("--once", action="store_true", help="print one look and end")
    top.add_argument("--json", action="store_true", help="one look as JSON, one object a runtime")
    _with_debug(top).set_defaults(command=_later("top", "top_command"))

    _add_trace_command(commands.add_parser("trace", help="show a trace file again", description=_TRACE))

    demo = commands.add_parser("demo", help="an agent answers a question on the embedded model")
    _add_model(demo)
    _add_trace(demo)
    demo.add_argument("--quiet", action="store_true", help="no trace on stderr")
    _with_debug(demo).set_defaults(command=_later("demo", "demo_command"))
    return parser
