"""The JSON Schema Test Suite under a ratchet, and faults reported of other engines."""

import json
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agentree.errors import ConstraintError
from agentree.runtime.constraint import Constraint, JSONSchema, Regex
from agentree.runtime.constraint.constraint import compile_regex, compile_schema

SHARED = Path(os.environ.get("AGENTREE_SHARED", Path(__file__).parents[2] / "shared"))
RATCHET = Path(__file__).parent / "cases" / "constraint_ratchet.json"

KNOWN_WRONG_REJECTS = {
    "a float with zero fractional part is an integer",
    "float zero is valid",
    "float one is valid",
    "float is valid",
    "[0.0] is valid",
    "[1.0] is valid",
    "integer -2 is valid",
    "no validation: invalid number, but it still validates",
}
"""Whole numbers and listed values have one spelling; custom vocabularies are not read. Formats are enforced,
where the suite (file `format.json`) has them as annotations.
"""


def spelled(constraint: Constraint, value: Any) -> str:
    with suppress(ValueError):
        value = constraint.arranged(value)
    return json.dumps(value, ensure_ascii=False)


def judge(schema: Any, tests: list[dict[str, Any]]) -> list[str]:
    """Per test: right, refused, or which way it is wrong."""
    try:
        constraint = compile_schema(JSONSchema({"allOf": [schema]} if isinstance(schema, bool) else schema))
    except ConstraintError as error:
        void = "contradict" in str(error)
        return [("wrong reject" if t["valid"] else "right") if void else "refused" for t in tests]
    out: list[str] = []
    for test in tests:
        accepted = constraint.accepts(spelled(constraint, test["data"]).encode("utf-8", "surrogatepass"))
        out.append("right" if accepted == test["valid"] else "wrong accept" if accepted else "wrong reject")
    return out


@pytest.mark.parametrize("draft", ["draft2020-12", "draft7"])
def test_the_suite_never_gets_worse(draft: str) -> None:
    folder = SHARED / "data" / "jsts" / "tests" / draft
    if not folder.is_dir():
        pytest.skip(f"the JSON Schema Test Suite is not at {folder}")
    ratchet: dict[str, dict[str, dict[str, int]]] = (
        json.loads(RATCHET.read_text()) if RATCHET.exists() else {}
    )
    found: dict[str, dict[str, int]] = {}
    for file in sorted(folder.glob("*.json")):
        counts: Counter[str] = Counter()
        for group in json.loads(file.read_text()):
            schema: Any = group["schema"]
            if draft == "draft7" and not isinstance(schema, bool):
                schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
            for test, verdict in zip(group["tests"], judge(schema, group["tests"]), strict=True):
                assert verdict != "wrong accept", (file.name, group["description"], test["description"])
                if verdict == "wrong reject":
                    assert file.name == "format.json" or test["description"] in KNOWN_WRONG_REJECTS, test
                counts[verdict] += 1
        found[file.name] = dict(sorted(counts.items()))
    if os.environ.get("AGENTREE_RATCHET") == "write":
        RATCHET.write_text(json.dumps({**ratchet, draft: found}, indent=1) + "\n")
        return
    for name, before in ratchet[draft].items():
        assert found[name].get("right", 0) >= before.get("right", 0), name
        assert found[name].get("wrong reject", 0) <= before.get("wrong reject", 0), name


LEFT_OUT = {
    "MegaIng/interegular#3": "a look-ahead looks past the end of a whole match, where there is nothing",
    "format regex": "the format is an annotation",
    "ws before/after root": "no blanks around the value",
    "ws: 50 blanks": "",
}


def _cases() -> list[Any]:
    file = SHARED / "cases" / "structured.jsonl"
    if not file.exists():
        return []
    cases = [json.loads(line) for line in file.read_text().splitlines()]
    return [c for c in cases if (c["schema"] is not None or c["regex"]) and c["ref"] not in LEFT_OUT]


@pytest.mark.skipif(not _cases(), reason=f"no reported faults at {SHARED}")
def test_reported_faults_do_not_occur() -> None:
    for case in _cases():
        try:
            if case["schema"] is None:
                constraint = compile_regex(Regex(case["regex"]))
            else:
                constraint = compile_schema(JSONSchema(case["schema"], spacing="any"))
        except ConstraintError:
            assert case["kind"] == "must error" or "fraction" in str(case), case
            continue
        assert all(constraint.accepts(v) for v in case["valid"]), case
        assert not any(constraint.accepts(v) for v in case["invalid"]), case
