"""The seven workloads on agentree's public API: `python -m benchmarks.workloads [W1 ...]`.

Every run begins with a cold cache, as its number stands at the beginning of each prompt. Fails if a prompt
token of W1 to W4 or W6 was computed that could have been shared. Prints a markdown table of medians.
"""

import argparse
import asyncio
import json
import secrets
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from agentree import Runtime
from benchmarks.ledger import Ledger
from benchmarks.local import Local
from benchmarks.meter import Meter
from benchmarks.talk import C, Engine
from benchmarks.tasks import SHARED, WORKLOADS, mistakes, warm_up


@dataclass(frozen=True)
class Figures:
    """One workload on one engine. None: the engine does not tell."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds, of all threads and processes of the engine."""
    output: int
    """Tokens."""
    prompt: int
    first: float | None
    """Seconds until the first text was there, where the workload looks for it."""
    cached: int | None
    peak: int
    """Bytes that were resident at most."""
    computed: int | None = None
    """Prompt tokens that went through the model."""
    needed: int | None = None
    """Those that nobody had computed before, and one for each prompt that was cached whole. Less is computed
    where the last tokens of a forced value were guessed, and so computed while it was generated."""
    forced: int | None = None
    passes: int | None = None
    """Forward passes."""


async def run(name: str, engine: Engine[C], salt: str, pid: int | None = None) -> Figures:
    """Run one workload once on an engine that is up; `pid` is the process that does the work, or this one.

    Raises:
        ValueError: The engine answered something else than what was asked for.
    """
    engine.replies.clear()
    with Meter(pid) as meter:
        await WORKLOADS[name](engine, salt)
    replies, used = tuple(engine.replies), meter.used
    wrong = mistakes(name, replies)
    if wrong:
        raise ValueError(f"{name}: {'; '.join(wrong)}")
    firsts = [reply.first - reply.began for reply in replies if reply.first is not None]
    cached = [reply.cached for reply in replies]
    return Figures(
        wall=used.wall,
        cpu=used.cpu,
        output=sum(reply.output for reply in replies),
        prompt=sum(reply.prompt for reply in replies),
        first=firsts[0] if firsts else None,
        cached=None if None in cached else sum(c for c in cached if c is not None),
        peak=used.peak,
    )


async def run_here(name: str, local: Local, ledger: Ledger, salt: str) -> Figures:
    """The same on our own runtime, with what it counts and what a ledger that saw all of it counts."""
    before, computed, needed = local.lm.stats(), ledger.computed, ledger.needed
    figures = await run(name, local, salt)
    after = local.lm.stats()
    return replace(
        figures,
        computed=ledger.computed - computed,
        needed=ledger.needed - needed,
        forced=after.forced_tokens - before.forced_tokens,
        passes=after.forward_passes - before.forward_passes,
    )


def median(runs: Sequence[Figures]) -> Figures:
    """Each figure's median over the runs; None where a run lacks it."""

    def middle(name: str) -> float | None:
        values = [getattr(one, name) for one in runs]
        if None in values:
            return None
        found = statistics.median(values)
        return found if name in ("wall", "cpu", "first") else round(found)

    return Figures(**{f.name: middle(f.name) for f in fields(Figures)})  # pyright: ignore[reportArgumentType]


COLUMNS = (
    "workload",
    "wall s",
    "CPU s",
    "output",
    "tokens/s",
    "first token s",
    "prompt",
    "hit rate",
    "computed",
    "needed",
    "forced",
    "passes",
    "peak MB",
)


def table(found: Mapping[str, Figures]) -> str:
    """A markdown table, a line for each workload."""
    lines = [f"| {' | '.join(COLUMNS)} |", "| --- |" + " ---: |" * (len(COLUMNS) - 1)]
    for name, f in found.items():
        lines.append(
            f"| {name} | {f.wall:.2f} | {f.cpu:.2f} | {f.output:,} | {f.output / f.wall:.1f} | "
            f"{'' if f.first is None else f'{f.first:.3f}'} | {f.prompt:,} | "
            f"{'' if f.cached is None else f'{f.cached / f.prompt:.1%}'} | {_count(f.computed)} | "
            f"{_count(f.needed)} | {'' if f.forced is None else f'{f.forced / f.output:.0%}'} | "
            f"{_count(f.passes)} | {f.peak / 2**20:,.0f} |"
        )
    return "\n".join(lines)


def _count(n: int | None) -> str:
    return "" if n is None else f"{n:,}"


async def measure(names: Sequence[str], lm: Runtime, runs: int) -> dict[str, list[Figures]]:
    """Run workloads on an open runtime, all of them once before any of them twice."""
    local, found, ledger = Local(lm), {name: list[Figures]() for name in names}, Ledger()
    with ledger.observe(lm._home.session.engine()):
        await warm_up(local)
        for i in range(runs):
            for name in names:
                one = await run_here(name, local, ledger, secrets.token_hex(3))
                if name in SHARED and (one.computed or 0) > (one.needed or 0):
                    raise ValueError(f"{name}: {one.computed} tokens computed, {one.needed} needed")
                found[name].append(one)
                say(f"{name} run {i + 1}: {one.wall:.2f} s, {one.cpu:.2f} CPU s")
    return found


def say(text: str) -> None:
    """Progress, beside the results."""
    print(text, file=sys.stderr, flush=True)


def parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments that all commands with workloads have."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "names", nargs="*", metavar="W", help=f"which of {', '.join(WORKLOADS)}; all if none is named"
    )
    made.add_argument("--runs", type=int, default=3, help="how often each is run; medians are printed (3)")
    made.add_argument("--json", type=Path, metavar="FILE", help="write all runs there as well")
    return made


def chosen(arguments: argparse.Namespace, made: argparse.ArgumentParser) -> list[str]:
    """The workloads that were named, or all of them."""
    unknown = sorted(set(arguments.names) - set(WORKLOADS))
    if unknown:
        made.error(f"no workload {unknown[0]!r}: there are {', '.join(WORKLOADS)}")
    return list(arguments.names) or list(WORKLOADS)


def main() -> None:
    """Measure and print."""
    made = parser(__doc__)
    made.add_argument(
        "--model", default="smollm2-135m-instruct", help="a catalogue name, a folder or a .gguf file"
    )
    made.add_argument("--weights", default="auto", choices=("auto", "fp32", "fp16", "bf16", "int8"))
    arguments = made.parse_args()
    names = chosen(arguments, made)

    async def work() -> dict[str, list[Figures]]:
        async with Runtime(arguments.model, weights=arguments.weights) as lm:
            return await measure(names, lm, arguments.runs)

    found = asyncio.run(work())
    print(table({name: median(runs) for name, runs in found.items()}))
    if arguments.json:
        plain = {name: [asdict(one) for one in runs] for name, runs in found.items()}
        arguments.json.write_text(json.dumps(plain, indent=1) + "\n")


if __name__ == "__main__":
    main()
