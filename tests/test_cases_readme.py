"""The list of cases names tests that are there."""

import re
from pathlib import Path

HERE = Path(__file__).parent
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
