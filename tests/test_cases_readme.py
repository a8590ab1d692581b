"""The list of cases names tests that are there."""

import os
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SHARED = Path(os.environ.get("AGENTREE_SHARED", HERE.parents[1] / "shared"))
REPORTED = SHARED / "cases" / "runtime.md"
TEXT = (HERE / "cases" / "README.md").read_text()


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`(test_\w+)\.(test_\w+)`", TEXT)
    assert len(named) > 80
    missing = [
        f"{module}.{name}"
        for module, name in named
        if f"def {name}(" not in (HERE / f"{module}.py").read_text()
    ]
    assert missing == []


def test_every_module_that_is_named_exists() -> None:
    modules = set(re.findall(r"`((?:test|soak|engine)_\w+)`", TEXT))
    assert modules and all((HERE / f"{module}.py").exists() for module in modules)


@pytest.mark.skipif(not REPORTED.exists(), reason="the reported cases are not here: set AGENTREE_SHARED")
def test_every_reported_case_of_the_runtime_is_listed() -> None:
    sections = re.split(r"^### 4([A-Z])\.", REPORTED.read_text(encoding="utf-8"), flags=re.M)[1:]
    reported = {
        case
        for letter, section in zip(sections[::2], sections[1::2], strict=True)
        if letter in "ABCDF"
        for case in re.findall(rf"^\| ({letter}\d+) \|", section, flags=re.M)
    }
    listed = {
        case
        for row in re.findall(r"^\| ([A-F]\d+(?:, [A-F]\d+)*) \|", TEXT, flags=re.M)
        for case in row.split(", ")
    }
    assert len(reported) > 50 and reported == listed
