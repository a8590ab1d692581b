"""Constraint engine: compile times, masks, forced share; beside other engines if they are installed.

python benchmarks/constraints.py SCHEMAS.jsonl --tokenizer tokenizer.json

Each line of the file holds a `schema` and a list of `valid` instances. Times are processor time of a thread.
"""

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from agentree.errors import ConstraintError
from agentree.runtime.constraint import JSONSchema, Vocabulary
from agentree.runtime.constraint.constraint import compile_schema


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


def timed(do: Callable[[], Any], into: list[float]) -> Any:
    """Runs and notes the milliseconds."""
    start = time.thread_time()
    out = do()
    into.append((time.thread_time() - start) * 1e3)
    return out


def quantiles(values: list[float]) -> str:
    """Median, 90 % and 99 %, in milliseconds."""
    ordered = sorted(values)
    if not ordered:
        return "-"
    return " / ".join(
        f"{ordered[min(int(len(ordered) * p), len(ordered) - 1)]:.4f}" for p in (0.5, 0.9, 0.99)
    )


def measure(rows: list[dict[str, Any]], vocabulary: Vocabulary) -> dict[str, Any]:
    """Walks every valid instance by the tokenizer's own tokens."""
    compiles: list[float] = []
    first: list[float] = []
    cached: list[float] = []
    runs: list[float] = []
    total = forced = stray = refused = 0
    for row in rows:
        try:
            constraint = timed(lambda row=row: compile_schema(JSONSchema(row["schema"])), compiles)
        except ConstraintError:
            refused += 1
            continue
        bound = constraint.bind(vocabulary)
        for value in row["valid"]:
            try:
                text = json.dumps(constraint.arranged(value), ensure_ascii=False).encode()
            except ValueError:
                continue
            ids = vocabulary.encode(text)
            matcher = bound.matcher(len(ids) + 500)
            at = 0
            while at < len(ids):
                run = timed(lambda m=matcher, last=ids[at - 1] if at else None: m.forced(last), runs)
                if run and run == ids[at : at + len(run)]:
                    forced += len(run)
                else:
                    stray += bool(run)
                    timed(matcher.mask, first)
                    timed(matcher.mask, cached)
                    run = [ids[at]]
                for token in run:
                    matcher.advance(token)
                at += len(run)
            total += len(ids)
    return {
        "refused": refused,
        "compile ms (p50 / p90 / p99)": quantiles(compiles),
        "mask ms, first visit or not": quantiles(first),
        "mask ms, again": quantiles(cached),
        "forced run ms": quantiles(runs),
        "forced share": round(forced / max(total, 1), 4),
        "forced runs that are not the tokenizer's own": stray,
    }


def peers(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Grammar compile times of the other engines that are installed."""
    out: dict[str, Any] = {}
    if importlib.util.find_spec("llguidance"):
        llguidance: Any = importlib.import_module("llguidance")
        times: list[float] = []
        for row in rows:
            timed(
                lambda row=row: llguidance.LLMatcher.grammar_from_json_schema(json.dumps(row["schema"])),
                times,
            )
        out["llguidance, grammar ms"] = quantiles(times)
    if importlib.util.find_spec("xgrammar"):
        xgrammar: Any = importlib.import_module("xgrammar")
        times = []
        for row in rows:
            timed(lambda row=row: xgrammar.Grammar.from_json_schema(json.dumps(row["schema"])), times)
        out["xgrammar, grammar ms"] = quantiles(times)
    return out


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("schemas", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    lines: list[str] = options.schemas.read_text().splitlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines][: options.limit]
    vocabulary = read_vocabulary(options.tokenizer)
    _ = vocabulary.trie
    for name, value in {**measure(rows, vocabulary), **peers(rows)}.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
