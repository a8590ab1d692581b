"""Constraint engines on real schemas: what they get right, and what compiling and masks cost.

    python -m benchmarks.constraints [--limit N] [--tokenizer tokenizer.json]

All engines that are installed (llguidance, xgrammar) walk the same instances by the tokens of the embedded
model's tokenizer, spaced as json.dumps does. A schema is right if every valid instance is accepted and every
invalid one is not. Times are processor time of the process, so that a busy machine counts less.
"""

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from jsonschema import Draft202012Validator
from tokenizers import Tokenizer

from agentree.runtime.constraint import Vocabulary
from agentree.runtime.constraint.constraint import Automaton
from agentree.runtime.model.catalog import DEFAULT
from agentree.runtime.model.folder import resolve
from benchmarks.bfcl import KINDS, SHARED, json_schema, lines
from benchmarks.engines import ROOM, Compiled, RefusedError, engines, ours


@dataclass(frozen=True)
class Row:
    """A schema with instances that it accepts and refuses."""

    schema: Any
    valid: list[Any]
    invalid: list[Any] = field(default_factory=list[Any])


@dataclass
class Times:
    """Of one engine over one set of schemas, in milliseconds."""

    verdicts: Counter[str] = field(default_factory=Counter[str])
    compiling: list[float] = field(default_factory=list[float])
    first: list[float] = field(default_factory=list[float])
    later: list[float] = field(default_factory=list[float])
    again: list[float] = field(default_factory=list[float])


def byte_letters() -> dict[str, int]:
    """The letters in which byte-level tokenizers write bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


def read_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of a byte-level `tokenizer.json`; special tokens end the text."""
    tokenizer = Tokenizer.from_file(str(path))
    special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    letters = byte_letters()
    tokens: list[bytes | None] = []
    for number in range(tokenizer.get_vocab_size()):
        text = tokenizer.id_to_token(number)
        spelled = text is not None and number not in special and all(c in letters for c in text)
        tokens.append(bytes(letters[c] for c in text) if spelled and text is not None else None)

    def encode(text: bytes) -> list[int]:
        return list(tokenizer.encode(text.decode(), add_special_tokens=False).ids)

    return Vocabulary(tokens, end_ids=special, encode=encode, fingerprint=str(path))


def schema_bench() -> list[Row]:
    """300 schemas of JSONSchemaBench with instances."""
    path = SHARED / "data" / "jsb_dev.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [Row(r["schema"], r["valid"], r["invalid"]) for r in rows]


def leaderboard() -> list[Row]:
    """Each tool of the function-calling leaderboard once, with the arguments of the right answers."""
    found: dict[str, Row] = {}
    for kind in KINDS:
        answers = {row["id"]: row["ground_truth"] for row in lines(f"answer_{kind}")}
        for row in lines(kind):
            schemas = {f["name"]: json_schema(f["parameters"]) for f in row["function"]}
            for name, schema in schemas.items():
                found.setdefault(
                    json.dumps([name, schema]), Row({**schema, "additionalProperties": False}, [])
                )
            for call in answers[row["id"]]:
                for name, options in call.items():
                    row_of = found[json.dumps([name, schemas[name]])]
                    given = {k: v[0] for k, v in options.items() if v[0] != ""}
                    if cast("Any", Draft202012Validator(row_of.schema)).is_valid(given):
                        row_of.valid.append(given)
    return list(found.values())


def seal_tools() -> list[Row]:
    """1,019 tools without instances."""
    types = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
    rows: list[Row] = []
    for line in (SHARED / "data" / "agents" / "sealtools" / "tool.jsonl").read_text().splitlines():
        given = json.loads(line)
        properties = {
            name: {"type": types.get(about.get("type"), "string")}
            for name, about in given["parameters"].items()
        }
        required = [name for name in given["required"] if name in properties]
        rows.append(
            Row(
                {
                    "type": "object",
                    "properties": properties,
                    "required": required,
                    "additionalProperties": False,
                },
                [],
            )
        )
    return rows


def declared(schema: Any, value: Any) -> Any:
    """A value with its keys in the order in which the schema's own `properties` have them."""
    if isinstance(value, list):
        items: Any = cast("Mapping[str, Any]", schema).get("items", {}) if isinstance(schema, dict) else {}
        return [declared(items, v) for v in cast("list[Any]", value)]
    if not isinstance(value, dict) or not isinstance(schema, dict):
        return cast("Any", value)
    members = cast("dict[str, Any]", value)
    properties = cast("dict[str, Any]", cast("dict[str, Any]", schema).get("properties") or {})
    ordered = [*(k for k in properties if k in members), *(k for k in members if k not in properties)]
    return {k: declared(properties.get(k, {}), members[k]) for k in ordered}


def timed(do: Callable[[], Any], into: list[float]) -> Any:
    """Runs and notes the milliseconds."""
    start = time.process_time()
    out = do()
    into.append((time.process_time() - start) * 1e3)
    return out


def spellings(row: Row, value: Any, constraint: Automaton | None) -> list[bytes]:
    """A value in the orders of keys that an engine may want."""
    orders = [value, declared(row.schema, value)]
    if constraint is not None:
        with suppress(ValueError):
            orders.append(constraint.arranged(value))
    texts = [json.dumps(o, ensure_ascii=False).encode("utf-8", "surrogatepass") for o in reversed(orders)]
    return list(dict.fromkeys(texts))


def follow(compiled: Compiled, ids: list[int], into: list[float]) -> bool:
    """Whether a text is accepted; notes what each mask takes."""
    walk = compiled(len(ids))
    for token in ids:
        timed(walk.mask, into)
        if not walk.advance(token):
            return False
    return walk.complete()


def try_schema(
    row: Row,
    compile_: Callable[[Any], Compiled],
    times: Times,
    vocabulary: Vocabulary,
    order: Automaton | None,
) -> None:
    """Compile a schema, and walk its instances."""
    noted: list[float] = []
    try:
        compiled = timed(lambda: compile_(row.schema), noted)
    except RefusedError:
        times.verdicts["refused"] += 1
        return
    times.compiling += noted
    timed(compiled(ROOM).mask, times.first)

    def accepted(value: Any) -> bool:
        for text in spellings(row, value, order):
            try:
                ids = vocabulary.encode(text)
            except UnicodeDecodeError:
                continue
            masks: list[float] = []
            if ids and follow(compiled, ids, masks):
                times.later += masks
                follow(compiled, ids, times.again)
                return True
        return False

    right = all(accepted(v) for v in row.valid) and not any(accepted(v) for v in row.invalid)
    times.verdicts["right" if right else "wrong"] += 1


def shares(rows: Iterable[Row], vocabulary: Vocabulary) -> str:
    """How much of the valid instances is forced, and whether the runs are the tokenizer's own."""
    forced = total = stray = runs = 0
    for row in rows:
        try:
            _, constraint = ours(row.schema, vocabulary)
        except RefusedError:
            continue
        for value in row.valid:
            try:
                text = json.dumps(constraint.arranged(value), ensure_ascii=False).encode()
            except ValueError:
                continue
            ids = vocabulary.encode(text)
            matcher = constraint.bind(vocabulary).matcher(len(ids) + ROOM)
            at = 0
            while at < len(ids):
                run = matcher.forced(ids[at - 1] if at else None)
                own = run == ids[at : at + len(run)]
                runs, stray = runs + bool(run), stray + (not own)
                forced += len(run) if own else 0
                step = run if run and own else [ids[at]]
                for token in step:
                    matcher.advance(token)
                at += len(step)
            total += len(ids)
    share = f"{100 * forced / max(total, 1):.1f} %"
    return f"forced: {share} of {total} tokens in {runs} runs, {stray} of them not the tokenizer's own"


def cells(values: list[float]) -> str:
    """Median, 90 % and 99 %."""
    if not values:
        return "-"
    if len(values) < 2:
        return f"{values[0]:.3f}"
    cut = statistics.quantiles(values, n=100, method="inclusive")
    return " / ".join(f"{cut[i]:.3g}" for i in (49, 89, 98))


def main() -> int:
    """Measure and print; 1 if one of our own constraints is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=int, help="schemas of each set")
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--only", nargs="*", help="names of engines")
    options = parser.parse_args()
    vocabulary = read_vocabulary(options.tokenizer or resolve(DEFAULT).path / "tokenizer.json")
    vocabulary.trie.find(b"")
    wrong = 0
    for title, rows in (
        ("JSONSchemaBench", schema_bench()),
        ("BFCL tools", leaderboard()),
        ("Seal-Tools", seal_tools()),
    ):
        rows = rows[: options.limit]
        orders: list[Automaton | None] = []
        for row in rows:
            try:
                orders.append(ours(row.schema, vocabulary)[1])
            except RefusedError:
                orders.append(None)
        print(f"\n| {title}: {len(rows)} | right | refused | wrong | compile | first mask | later | again |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        for name, compile_ in engines(vocabulary).items():
            if options.only and name not in options.only:
                continue
            times = Times()
            for number, (row, order) in enumerate(zip(rows, orders, strict=True), 1):
                try_schema(row, compile_, times, vocabulary, order)
                print(f"\r{title}, {name}: {number}/{len(rows)}", end="", file=sys.stderr, flush=True)
            found = times.verdicts
            wrong += found["wrong"] if name == "agentree" else 0
            costs = [cells(v) for v in (times.compiling, times.first, times.later, times.again)]
            counts = [found["right"], found["refused"], found["wrong"]]
            print(f"\r| {name} | {' | '.join(map(str, [*counts, *costs]))} |", flush=True)
        if any(row.valid for row in rows):
            print("\n" + shares(rows, vocabulary))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
