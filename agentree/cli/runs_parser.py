"""The grammar of `agentree runs`."""

import argparse
from collections.abc import Callable
from typing import Any

_RUNS = """\
What journals keep of runs. `agentree run FILE --journal` begins one that can be resumed after whatever stops
it. The journal is --journal FILE, else AGENTREE_JOURNAL, else a file in your data folder."""
_ANSWER = """\
Answers a question of a run. PATH names the question, as `agentree runs show` prints it; JSON is the answer:
a text in double quotes, a number, true, false, null, an object or a list. It is checked against what the
program asks for, and given once. A tool call is approved by true, and rejected by false or by
{"approved": false, "reason": "what the model is told"}."""


def add_journal(parser: argparse.ArgumentParser) -> None:
    """The option that names the journal."""
    parser.add_argument("--journal", metavar="FILE", help="the journal (default: see agentree runs --help)")


def add_runs(
    commands: Any,
    later: Callable[[str, str], Callable[[argparse.Namespace], int]],
    common: Callable[[argparse.ArgumentParser], argparse.ArgumentParser],
    running: Callable[[argparse.ArgumentParser], None],
) -> None:
    """Add the command. `common` adds what all commands have, `running` what those have that run a program."""
    shape = argparse.RawDescriptionHelpFormatter
    runs = commands.add_parser(
        "runs", help="list, show, answer and resume runs", description=_RUNS, formatter_class=shape
    )
    actions = runs.add_subparsers(title="actions", metavar="ACTION", required=True)

    def add(name: str, summary: str, description: str = "") -> argparse.ArgumentParser:
        action = actions.add_parser(
            name, help=summary, description=description or summary, formatter_class=shape
        )
        add_journal(action)
        common(action).set_defaults(command=later("runs", f"{name}_command"))
        return action

    add("list", "all runs, the newest first").add_argument(
        "--json", action="store_true", help="one JSON object a run"
    )
    show = add("show", "what a run has done, and what it asks")
    show.add_argument("run", metavar="RUN")
    show.add_argument("--json", action="store_true", help="everything, as one JSON object")
    answer = add("answer", "answer a question of a run", _ANSWER)
    answer.add_argument("run", metavar="RUN")
    answer.add_argument("path", metavar="PATH", help="which question")
    answer.add_argument("json", metavar="JSON", help="the answer")
    resume = add("resume", "go on with a run where it stopped, and print its result")
    resume.add_argument("run", metavar="RUN")
    resume.add_argument(
        "file", nargs="?", metavar="FILE[:program]", help="its program, if it is elsewhere by now"
    )
    resume.add_argument(
        "--uncertain",
        choices=("raise", "rerun", "tell"),
        default="raise",
        help="a tool call that was under way: stop, call it again, or tell the model that nobody knows",
    )
    resume.add_argument(
        "--changed", action="store_true", help="go on although the program is not what it was"
    )
    running(resume)
    cancel = add("cancel", "end a run for good; one that is going on stops within a second")
    cancel.add_argument("run", metavar="RUN")
    add("gc", "forget runs that are done or cancelled; the others can be resumed").add_argument(
        "--days", type=float, default=30.0, metavar="N", help="only those over for N days (default 30)"
    )
