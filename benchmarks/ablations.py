"""What each part is worth: the workloads with one part left out at a time. `python -m benchmarks.ablations`.

Two rounds. In the first the pool never fills: no sharing at all, no sharing between branches and agents, no
jump-forward, no speculation. In the second it holds a part of what the workload touches: eviction by least
recent use, agents served by arrival or in random order instead of first begun, first served. Variants take
turns: A B C A B C. Prints markdown tables of medians and writes all runs to a file that `benchmarks.plots`
draws.
"""

import argparse
import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agentree import Runtime
from agentree.runtime.engine import Engine
from agentree.runtime.queue import Queue
from agentree.runtime.sampling import uniform
from agentree.runtime.sequence import Sequence as Live
from benchmarks.ledger import Ledger
from benchmarks.local import Local, Sharing
from benchmarks.tasks import SHARED, warm_up
from benchmarks.workloads import Figures, chosen, median, parser, run_here, say


class ByArrival(Queue):
    """First come, first served."""

    def _rank(self, sequence: Live) -> tuple[int, tuple[int, ...], int]:
        number = sequence.ticket.number
        return number, (), number


class Shuffled(Queue):
    """In an order that has nothing to do with anything, but is the same in every run."""

    def _rank(self, sequence: Live) -> tuple[int, tuple[int, ...], int]:
        number = sequence.ticket.number
        return int(uniform(number, 0) * 1e9), (), number


@dataclass(frozen=True)
class Variant:
    """One way to run the workloads."""

    name: str
    sharing: Sharing = "all"
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of the runtime."""
    queue: type[Queue] | None = None


WHOLE = "everything"
AMPLE = (
    Variant(WHOLE),
    Variant("no cache", "none"),
    Variant("no sharing between branches", "own"),
    Variant("no jump-forward", options={"jump_forward": False}),
    Variant("no speculation", options={"speculate": False}),
)
TIGHT = (
    Variant(WHOLE),
    Variant("lru", options={"eviction": "lru"}),
    Variant("by arrival", queue=ByArrival),
    Variant("in random order", queue=Shuffled),
)
AMPLE_POOL = 32_768
"""Slots of the first round: more than any workload touches when it shares."""
POOL = {"W1": 1200, "W2": 2048, "W6": 768}
"""Slots of the second round: about two fifths of what the workload touches."""

Runs = dict[str, dict[str, list[Figures]]]
"""By variant and workload."""


async def opened(stack: AsyncExitStack, variant: Variant, **options: Any) -> tuple[Local, Ledger]:
    """A runtime of a variant, warmed up, open as long as the stack is."""
    lm = await stack.enter_async_context(Runtime(**{**options, **variant.options}))
    engine = lm._home.session.engine()
    if variant.queue is not None and isinstance(engine, Engine):
        engine._scheduler.waiting = variant.queue()
    local, ledger = Local(lm, variant.sharing), Ledger(bool(variant.options.get("jump_forward", True)))
    stack.enter_context(ledger.observe(engine))
    await warm_up(local)
    return local, ledger


async def measure(variants: Sequence[Variant], names: Sequence[str], runs: int, **options: Any) -> Runs:
    """All variants open at once, in turn on each workload."""
    found: Runs = {variant.name: {name: [] for name in names} for variant in variants}
    async with AsyncExitStack() as stack:
        entrants = {variant.name: await opened(stack, variant, **options) for variant in variants}
        for name in names:
            for _ in range(runs):
                salt = secrets.token_hex(3)
                for variant, (local, ledger) in entrants.items():
                    one = await run_here(name, local, ledger, salt)
                    found[variant][name].append(one)
                    say(f"{name} {variant}: {one.wall:.2f} s, {one.cpu:.2f} CPU s, {one.computed} computed")
    return found


def table(found: Runs) -> str:
    """Markdown: times over those of the whole, prompt tokens computed and forward passes."""
    medians = {v: {name: median(runs) for name, runs in of.items()} for v, of in found.items()}
    names = list(medians[WHOLE])
    lines = [f"| | {' | '.join(names)} |", "| --- |" + " --- |" * len(names)]
    for variant, of in medians.items():
        cells: list[str] = []
        for name in names:
            one, whole = of[name], medians[WHOLE][name]
            times = f"{one.wall / whole.wall:.2f} / {one.cpu / whole.cpu:.2f}"
            cells.append(f"{times} / {one.computed:,} / {one.passes:,}")
        lines.append(f"| {variant} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plain(found: Runs) -> dict[str, Any]:
    """All runs as plain values."""
    return {v: {n: [asdict(one) for one in runs] for n, runs in of.items()} for v, of in found.items()}


def keep(file: Path | None, ample: Runs, tight: Runs) -> None:
    """Write down what was measured so far."""
    if file is not None:
        file.write_text(json.dumps({"ample": plain(ample), "tight": plain(tight)}, indent=1) + "\n")


def main() -> None:
    """Measure, print and keep."""
    made: argparse.ArgumentParser = parser(__doc__)
    arguments = made.parse_args()
    names = chosen(arguments, made) if arguments.names else [*SHARED]
    ample = asyncio.run(measure(AMPLE, names, arguments.runs, kv_tokens=AMPLE_POOL))
    print("Wall time and CPU time over those of the whole, prompt tokens computed, forward passes:\n")
    print(table(ample), flush=True)
    file: Path | None = arguments.json
    tight: Runs = {}
    keep(file, ample, tight)
    for name in names:
        if name in POOL:
            found = asyncio.run(measure(TIGHT, [name], arguments.runs, kv_tokens=POOL[name]))
            for variant, of in found.items():
                tight.setdefault(variant, {}).update(of)
            keep(file, ample, tight)
    if tight:
        print(f"\nThe same with a pool of {', '.join(f'{POOL[n]:,} tokens ({n})' for n in tight[WHOLE])}:\n")
        print(table(tight))


if __name__ == "__main__":
    main()
