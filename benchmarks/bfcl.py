"""Function-calling tasks of the Berkeley leaderboard, as prompts with tools."""

import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from agentree import Tool, tool

SHARED = Path(os.environ.get("AGENTREE_SHARED", Path(__file__).parents[2] / "shared"))
FOLDER = SHARED / "data" / "agents" / "bfcl"
KINDS = ("simple_python", "multiple", "parallel", "parallel_multiple")

_TYPES = {
    "dict": "object", "float": "number", "tuple": "array", "list": "array", "bool": "boolean",
    "int": "integer", "str": "string",
}  # fmt: skip
"""The leaderboard's names of types, where they are not JSON Schema's. "any" is no type."""


@dataclass(frozen=True)
class Task:
    """One prompt with its tools, in the order in which they are shown."""

    name: str
    question: str
    tools: tuple[Tool[..., Any], ...]
    parallel: bool
    """Whether several calls are expected."""
    expected: frozenset[str]
    """Names of the tools that a right answer calls."""

    @property
    def schemas(self) -> list[tuple[str, Mapping[str, object]]]:
        """Tools as names and schemas of their arguments."""
        return [(t.name, t.schema) for t in self.tools]


def json_schema(given: Any) -> Any:
    """A schema of the leaderboard as JSON Schema."""
    if isinstance(given, list):
        return [json_schema(g) for g in cast("list[Any]", given)]
    if not isinstance(given, dict):
        return given
    out: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", given).items():
        if key == "properties":
            out[key] = {name: json_schema(one) for name, one in value.items()}
        elif key in ("items", "additionalProperties"):
            out[key] = json_schema(value)
        elif key == "type" and isinstance(value, str):
            if value != "any":
                out[key] = _TYPES.get(value, value)
        elif key not in ("optional", "default"):
            out[key] = value
    return out


def as_tool(function: Mapping[str, Any]) -> Tool[..., Any]:
    """A tool that is described to the model and never run."""

    def described() -> None:
        """Described only."""

    made = tool(name=str(function["name"])[:64])(described)
    made.description = str(function["description"])
    made.schema = json_schema(function["parameters"])
    return made


def lines(name: str) -> list[dict[str, Any]]:
    """The rows of one file. Raises FileNotFoundError, saying where it should be."""
    path = FOLDER / f"{name}.jsonl"
    if not path.exists():
        raise FileNotFoundError(
            f"no tasks at {path}: set AGENTREE_SHARED to the folder that holds data/agents"
        )
    return [json.loads(line) for line in path.read_text().splitlines()]


def tasks(n: int, distractors: int = 2) -> list[Task]:
    """The first `n` prompts: every task with its own tools, then with some of other tasks among them.

    Kinds take turns, so that any number of prompts has all of them.
    """
    rows: list[dict[str, Any]] = [{**row, "kind": kind} for kind in KINDS for row in lines(kind)]
    answers = {row["id"]: row["ground_truth"] for kind in KINDS for row in lines(f"answer_{kind}")}
    rng = random.Random(1)
    rng.shuffle(rows)
    others: list[dict[str, Any]] = [f for row in rows for f in row["function"]]
    out: list[Task] = []
    for row, crowded in _pairs(rows):
        functions: list[dict[str, Any]] = list(row["function"])
        if crowded:
            names = {f["name"][:64] for f in functions}
            while len(functions) < len(row["function"]) + distractors:
                other = rng.choice(others)
                if other["name"][:64] not in names:
                    names.add(other["name"][:64])
                    functions.append(other)
            rng.shuffle(functions)
        out.append(
            Task(
                row["id"] + ("+" if crowded else ""),
                row["question"][0][-1]["content"],
                tuple(as_tool(f) for f in functions),
                row["kind"].startswith("parallel"),
                frozenset(name[:64] for call in answers[row["id"]] for name in call),
            )
        )
        if len(out) == n:
            break
    return out


def _pairs(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], bool]]:
    for row in rows:
        yield row, False
        yield row, True
