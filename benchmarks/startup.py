"""From the start of a process to its first token: `python -m benchmarks.startup`. Prints a markdown table.

Each run is a process of its own. The first does not count: after it, files are in the page cache. CPU seconds
are those of all threads, and tell the same on a busy machine; wall seconds need cores that nobody else uses.
`--against DIR` runs another checkout in turns with this one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent.parent

Times = Mapping[str, tuple[float, float]]
"""By what was reached, wall and CPU seconds since the process was started."""

CHILD = """
import asyncio, json, sys, time
began, model, marks = float(sys.argv[1]), sys.argv[2], {}

def reached(what):
    marks[what] = time.monotonic() - began, time.process_time()

reached("Python runs")
from agentree import Runtime, user
reached("`Runtime` imported")
import torch
reached("torch imported")

async def main():
    async with Runtime(model) as lm:
        reached("model ready")
        await lm.transcript(user("Hello")).gen(str, max_tokens=1)
        reached("first token")

asyncio.run(main())
print(json.dumps(marks))
"""


def to_first_token(checkout: Path, model: str) -> Times:
    """The stages of one process that generates one token."""
    out = _run(checkout, "-c", CHILD, f"{time.monotonic()!r}", model)
    return {what: (wall, cpu) for what, (wall, cpu) in json.loads(out).items()}


def help_of_cli(checkout: Path) -> Times:
    """One `agentree --help`, from start to exit."""
    before, began = os.times(), time.monotonic()
    _run(checkout, "-m", "agentree", "--help")
    wall, after = time.monotonic() - began, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"`agentree --help`": (wall, cpu)}


def _run(checkout: Path, *arguments: str) -> str:
    # From an empty folder: Python looks for packages where it is started before it looks at the path.
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(
            [sys.executable, *arguments],
            env=os.environ | {"PYTHONPATH": str(checkout)},
            cwd=folder,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout


def table(found: Mapping[Path, Sequence[Times]]) -> str:
    """Medians, a line for each stage, two columns for each checkout."""
    names = [str(checkout) for checkout in found] if len(found) > 1 else [""]
    heads = [f"{kind} s {name}".strip() for name in names for kind in ("wall", "CPU")]
    lines = [f"| reached | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
    for what in next(iter(found.values()))[0]:
        cells = [
            f"{statistics.median(times[what][kind] for times in runs):.2f}"
            for runs in found.values()
            for kind in (0, 1)
        ]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--runs", type=int, default=5, help="processes of each kind (5)")
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout")
    options = parser.parse_args()
    found: dict[Path, list[Times]] = {HERE: []}
    if options.against is not None:
        found[options.against.resolve()] = []
    for turn in range(options.runs + 1):
        for checkout, runs in found.items():
            times = {**help_of_cli(checkout), **to_first_token(checkout, options.model)}
            if turn:
                runs.append(times)
    print(table(found))


if __name__ == "__main__":
    main()
