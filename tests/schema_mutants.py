"""Broken schemas and patterns, made of sound ones at random: a typed error each, or a constraint, in time.

`python -m tests.schema_mutants 0 2000` tries the seeds from 0 to 1999, and as many over the schemas of
`AGENTREE_SHARED` where they are.
"""

import copy
import json
import math
import os
import random
import sys
import time
from pathlib import Path
from typing import Any, cast

from agentree.errors import AgentreeError
from agentree.runtime.constraint import JSONSchema, Regex
from agentree.runtime.constraint.constraint import compile_regex, compile_schema

SECONDS = 2.0
"""Time that a compile has."""
SLACK = 3.0
"""What it may take beyond: one step between two looks at the clock, on a busy machine."""

SHARED = Path(os.environ.get("AGENTREE_SHARED", Path(__file__).parents[2] / "shared"))

SEEDS: list[dict[str, Any]] = [
    {"type": "integer", "minimum": 0, "maximum": 130, "multipleOf": 5},
    {"type": "string", "minLength": 1, "maxLength": 20, "pattern": "^[a-z]+(-[0-9]{2,4})?$"},
    {"type": "string", "format": "date-time"},
    {"enum": ["red", 1, None, {"a": [True]}], "title": "enum"},
    {
        "type": ["object", "null"],
        "properties": {"a": {"const": 1}, "b": {"type": "string"}},
        "required": ["a"],
    },
    {"type": "object", "patternProperties": {"^x-": {"type": "number"}}, "additionalProperties": False},
    {"type": "object", "propertyNames": {"maxLength": 3}, "minProperties": 1, "maxProperties": 4},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3, "uniqueItems": True},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}], "items": False},
    {"type": "array", "contains": {"type": "integer"}, "minContains": 1, "maxContains": 2},
    {"anyOf": [{"type": "integer"}, {"minLength": 2}], "not": {"const": 3}},
    {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {}}},
    {"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"type": "null"}},
    {"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#"}}}},
    {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"minProperties": 2}}},
]
PATTERNS = [
    "^[a-z]+(-[0-9]{2,4})?$", r"\d{3}-\w+@(a|b)*\.com", "(?i:ok)|(?=x)[^x-z]{2}", r"\p{L}+\s?[\u00e9\-]",
    "^(ab|c)*$",
]  # fmt: skip
_ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, 1e300, 10**30, math.inf, math.nan, "", "x", "\ud800", "#", "#/nowhere",
    "(", "[a",
    [], [[]], {}, {"a": {}}, [None], {"$ref": "#"}, {"not": {}}, object(), {1: 2}, "integer", ["integer", 3],
]  # fmt: skip
_KEYS = [
    "type", "enum", "const", "minimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
    "pattern", "format", "items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains",
    "minContains", "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
    "minProperties", "maxProperties", "anyOf", "oneOf", "allOf", "not", "if", "then", "else", "$ref",
    "$defs", "$id", "$anchor", "$schema", "dependentRequired", "dependentSchemas", "unevaluatedProperties",
    "$dynamicRef",
]  # fmt: skip
_LETTERS = "ab()[]{}|*+?^$.\\dwsDWpPuxbk0139,-:=!<>é\ud800😀 \n"


def mutated(rng: random.Random, seeds: list[dict[str, Any]]) -> Any:
    """A schema with some of its parts replaced, dropped, moved or doubled."""
    root: list[Any] = [copy.deepcopy(rng.choice(seeds))]
    for _ in range(rng.randint(1, 4)):
        holder, key = rng.choice(list(_slots(root)))
        choice = rng.randrange(6)
        if choice == 0 and holder is not root:
            del holder[key]
        elif choice == 1:
            holder[key] = rng.choice(_ODD)
        elif choice == 2:
            holder[key] = copy.deepcopy(rng.choice(seeds))
        elif choice == 3 and isinstance(holder[key], str):
            holder[key] = broken(rng, holder[key])
        elif choice == 4 and isinstance(holder[key], dict):
            holder[key][rng.choice(_KEYS)] = rng.choice([*_ODD, *seeds])
        else:
            other, name = rng.choice(list(_slots(root)))
            holder[key] = copy.deepcopy(other[name])
    return root[0]


def _slots(node: Any) -> list[tuple[Any, Any]]:
    """All places in a value: what holds each, and its key there."""
    out: list[tuple[Any, Any]] = []
    pending: list[Any] = [node]
    while pending:
        holder: Any = pending.pop()
        keys: Any = holder.keys() if hasattr(holder, "keys") else range(len(holder))
        for key in keys:
            out.append((holder, key))
            if isinstance(holder[key], dict | list):
                pending.append(holder[key])
    return out


def broken(rng: random.Random, pattern: str) -> str:
    """A text with some letters put in, taken out or repeated."""
    letters = list(pattern)
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(letters))
        choice = rng.randrange(3)
        if choice == 0:
            letters.insert(at, rng.choice(_LETTERS))
        elif choice == 1 and letters:
            del letters[min(at, len(letters) - 1)]
        else:
            letters[at:at] = letters[max(at - 3, 0) : at] * rng.choice([1, 1, 2, 40])
    return "".join(letters)


def attempt(seed: int, seeds: list[dict[str, Any]]) -> str:
    """What comes of one mutant. Raises AssertionError where it is neither an error nor a constraint."""
    rng = random.Random(seed)
    regex = rng.random() < 0.3
    spec: Any = broken(rng, rng.choice(PATTERNS)) if regex else mutated(rng, seeds)
    start = time.monotonic()
    try:
        if regex:
            made = compile_regex(Regex(spec), seconds=SECONDS)
        else:
            made = compile_schema(JSONSchema(json.loads(JSONSchema(spec).text())), seconds=SECONDS)
        made.accepts("{}" if not regex else "a")
        found = "compiled"
    except AgentreeError as error:
        assert str(error), (seed, spec)
        found = "slow" if "took longer" in str(error) else "refused"
    except Exception as error:
        raise AssertionError(f"seed {seed}: {spec!r} gives {error!r}") from error
    took = time.monotonic() - start
    assert took < SECONDS + SLACK, f"seed {seed}: {spec!r} took {took:.1f} s"
    return found


def real_seeds() -> list[dict[str, Any]]:
    """Schemas of other people, where they are."""
    file = SHARED / "data" / "jsb_dev.jsonl"
    if not file.exists():
        return []
    lines = [cast("dict[str, Any]", json.loads(line)) for line in file.read_text().splitlines()]
    return [line["schema"] for line in lines if len(json.dumps(line["schema"])) < 3000]


def main(first: int, last: int) -> None:
    """Tries the seeds and prints how often each outcome came."""
    for name, seeds in (("own", SEEDS), ("real", real_seeds())):
        counts: dict[str, int] = {}
        for seed in range(first, last) if seeds else ():
            found = attempt(seed, seeds)
            counts[found] = counts.get(found, 0) + 1
        print(f"mutants of {name} schemas, seeds {first} to {last - 1}: {dict(sorted(counts.items()))}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
