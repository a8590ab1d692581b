"""Tool calls of the embedded model over the Berkeley leaderboard's tools: are all valid, what do they cost.

    python -m benchmarks.toolcalls --n 1000 --record on.jsonl
    python -m benchmarks.toolcalls --n 200 --no-jump-forward --record off.jsonl
    python -m benchmarks.toolcalls --compare on.jsonl off.jsonl

Every prompt is answered by a call (several, where the task expects them), greedily. The record gets a line
for each prompt as it is answered; a second run goes on from there. Calls are checked by jsonschema, which
knows nothing of the automata. `--compare` says for each prompt where forcing changed the text, and why.
"""

import argparse
import functools
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import anyio
from jsonschema import Draft202012Validator

from agentree import Runtime, user
from agentree.lm.generate import Options, value_request
from agentree.lm.target import Target
from agentree.runtime.constraint import TokenConstraint, parse_turn, tool_calls
from benchmarks.bfcl import Task, tasks

Listen = Callable[["Record"], None]


@dataclass(frozen=True)
class Record:
    """What came of one prompt. Counts in tokens."""

    name: str
    text: str
    ids: list[int]
    fault: str
    """What is wrong with the calls; "" if they are valid."""
    calls: int
    right_tool: bool
    """Whether the calls name a tool of the right answer, and no other."""
    prompt: int
    sampled: int
    forced: int
    passes: int
    """Forward passes that the request took part in."""
    prefills: int
    """Of these, those of the prompt: all but one for each sampled token after the first."""
    near_ties: int


def fault_of(task: Task, text: str) -> tuple[str, int, bool]:
    """What is wrong with a turn, how many calls it has, and whether they name the right tools."""
    try:
        calls = parse_turn(text)
    except ValueError as error:
        return f"does not parse: {error}", 0, False
    if not isinstance(calls, list):
        return "is a final answer", 0, False
    schemas = dict(task.schemas)
    for name, arguments in calls:
        if name not in schemas:
            return f"calls {name!r}, which is no tool", len(calls), False
        schema = schemas[name]
        fault = next(iter(cast("Any", Draft202012Validator(schema)).iter_errors(arguments)), None)
        if fault is not None:
            return f"{name}: {fault.message}", len(calls), False
        strange = set(arguments) - set(cast("Mapping[str, Any]", schema.get("properties", {})))
        if strange:
            return f"{name}: no parameters {sorted(strange)}", len(calls), False
    return "", len(calls), {name for name, _ in calls} <= task.expected


def constraint_of(task: Task, lm: Runtime) -> TokenConstraint:
    """The constraint of a turn that calls some of the task's tools."""
    vocabulary = lm._home.session.tokenizer.vocabulary()
    return tool_calls(task.schemas, None, task.parallel).bind(vocabulary)


async def answer(task: Task, lm: Runtime, max_tokens: int) -> Record:
    """One prompt."""
    target = Target("a call", constraint_of(task, lm), lambda text, _: text)
    options = Options(max_tokens=max_tokens)
    options.check(target)
    opened = lm.transcript(user(task.question), tools=task.tools)._opened()
    (result,) = await opened._session.run([value_request(opened, target, options, 0)])
    fault, calls, right = fault_of(task, result.text)
    counts = result.counts
    return Record(
        name=task.name,
        text=result.text,
        ids=list(result.output),
        fault=fault,
        calls=calls,
        right_tool=right,
        prompt=counts.prompt,
        sampled=counts.sampled,
        forced=counts.forced,
        passes=counts.forward_passes,
        prefills=counts.forward_passes - max(counts.sampled - 1, 0),
        near_ties=result.near_ties,
    )


async def measure(todo: Sequence[Task], options: argparse.Namespace, listen: Listen) -> None:
    """Answer all, some at a time."""
    waiting = iter(todo)

    async def work(lm: Runtime) -> None:
        for task in waiting:
            listen(await answer(task, lm, options.max_tokens))

    async with Runtime(jump_forward=options.jump_forward) as lm, anyio.create_task_group() as group:
        for _ in range(options.at_once):
            group.start_soon(work, lm)


def read(path: Path | None) -> dict[str, Record]:
    """A record, by the names of the prompts; what a killed run left of a line is dropped."""
    found: dict[str, Record] = {}
    if path is not None and path.exists():
        for line in path.read_text().splitlines():
            with suppress(json.JSONDecodeError):
                record = Record(**json.loads(line))
                found[record.name] = record
    return found


def summary(records: Iterable[Record]) -> dict[str, object]:
    """Totals."""
    done = list(records)
    calls = sum(r.calls for r in done)
    forced, sampled = sum(r.forced for r in done), sum(r.sampled for r in done)
    decodes = [r.passes - r.prefills for r in done]
    return {
        "prompts": len(done),
        "calls": calls,
        "invalid": sum(bool(r.fault) for r in done),
        "prompt tokens, mean": round(statistics.mean(r.prompt for r in done), 1),
        "output tokens per call": round((forced + sampled) / calls, 2),
        "forced share": round(forced / (forced + sampled), 4),
        "forward passes per call": round(sum(r.passes for r in done) / calls, 2),
        "of them decode": round(sum(decodes) / calls, 2),
        "right tool": round(sum(r.right_tool for r in done) / len(done), 3),
    }


def forced_at(constraint: TokenConstraint, ids: Sequence[int], max_tokens: int) -> set[int]:
    """The places of a text that jump-forward fills."""
    matcher = constraint.matcher(max_tokens)
    found: set[int] = set()
    at = 0
    while at < len(ids):
        run = matcher.forced(ids[at - 1] if at else None)
        step = list(ids[at : at + len(run)]) if run else [ids[at]]
        if run and run == step:
            found.update(range(at, at + len(run)))
        for token in step:
            matcher.advance(token)
        at += len(step)
    return found


def split_by(record: Record, own: list[int], constraint: TokenConstraint, max_tokens: int) -> str:
    """Who chose the first token that is not the tokenizer's own for the finished text."""
    if record.ids == own:
        return "nobody"
    at = next((i for i, (a, b) in enumerate(zip(record.ids, own, strict=False)) if a != b), len(own))
    return "a forced run" if at in forced_at(constraint, record.ids, max_tokens) else "the model"


def difference(forcing: Record, plain: Record, constraint: TokenConstraint, max_tokens: int) -> str:
    """How a text with forced runs differs from the one whose every token was sampled, and why."""
    if forcing.ids == plain.ids:
        return "same tokens"
    split = next(
        (i for i, (a, b) in enumerate(zip(forcing.ids, plain.ids, strict=False)) if a != b),
        min(len(forcing.ids), len(plain.ids)),
    )
    cause = (
        "the model splits a forced run in its own way"
        if split in forced_at(constraint, forcing.ids, max_tokens)
        else "two tokens were nearly equal"
        if forcing.near_ties or plain.near_ties
        else "unexplained"
    )
    return f"{'same text' if forcing.text == plain.text else 'other text'}: {cause}"


async def compare(forcing: Mapping[str, Record], plain: Mapping[str, Record], max_tokens: int) -> int:
    """Print what forcing changes, and an example of each kind; 1 if a difference has no explanation."""
    known = {task.name: task for task in tasks(max(len(forcing), len(plain)))}
    both = [name for name in known if name in forcing and name in plain]
    kinds: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    example: dict[str, str] = {}
    own: Counter[str] = Counter()
    splits: Counter[str] = Counter()
    async with Runtime() as lm:
        encode = lm._home.session.tokenizer.encode
        for name in both:
            kind = difference(forcing[name], plain[name], constraint_of(known[name], lm), max_tokens)
            kinds[known[name].parallel][kind] += 1
            example.setdefault(kind, f"{name}\n  forced  {forcing[name].text}\n  sampled {plain[name].text}")
            for how, record in (("forced", forcing[name]), ("sampled", plain[name])):
                own[how] += encode(record.text) == record.ids
        for name, record in forcing.items():
            splits[split_by(record, encode(record.text), constraint_of(known[name], lm), max_tokens)] += 1
    print("| greedy, forced and not | one call | 1 to 8 calls |\n| --- | ---: | ---: |")
    for kind in example:
        print(f"| {kind} | {kinds[False][kind]} | {kinds[True][kind]} |")
    for how, records in (("forced", forcing), ("sampled", plain)):
        print(f"\n{how}: {own[how]} of {len(both)} in the tokenizer's own ids")
        for title, parallel in (("one call", False), ("1 to 8 calls", True)):
            chosen = [records[name] for name in both if known[name].parallel == parallel]
            print(f"  {title}: {json.dumps(summary(chosen))}")
    print("\nwith forcing, who split the text first in another way than the tokenizer:", dict(splits))
    for kind, text in example.items():
        print(f"\n{kind}: {text}")
    return int(any("unexplained" in kind for kind in example) or splits["a forced run"] > 0)


def main() -> int:
    """Answer, or compare; 1 if a call is not valid or a difference is not explained."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=24)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--no-jump-forward", dest="jump_forward", action="store_false")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("ON", "OFF"))
    options = parser.parse_args()
    if options.compare:
        on, off = (read(path) for path in options.compare)
        return anyio.run(compare, on, off, options.max_tokens)
    known = {task.name: task for task in tasks(options.n)}
    done = {name: r for name, r in read(options.record).items() if name in known}
    todo = [task for name, task in known.items() if name not in done]
    began = time.monotonic()

    def listen(record: Record) -> None:
        done[record.name] = record
        if options.record is not None:
            with options.record.open("a") as file:
                file.write(json.dumps(asdict(record)) + "\n")
        if record.fault:
            print(f"INVALID {record.name}: {record.fault}\n  {record.text}")
        seconds = time.monotonic() - began
        print(f"\r{len(done)}/{len(known)}, {seconds:.0f} s", end="", file=sys.stderr, flush=True)

    anyio.run(functools.partial(measure, todo, options, listen))
    print(file=sys.stderr)
    for kind, parallel in (("one call", False), ("1 to 8 calls", True)):
        records = [r for name, r in done.items() if known[name].parallel == parallel]
        if records:
            print(f"{kind}: {json.dumps(summary(records))}")
    print(f"all: {json.dumps(summary(done.values()))}")
    return int(any(r.fault for r in done.values()))


if __name__ == "__main__":
    sys.exit(main())
