"""Broken schemas and patterns: a typed error each, or a constraint."""

import pytest
from schema_mutants import SEEDS, attempt, real_seeds


@pytest.mark.parametrize("block", range(4))
def test_mutants_give_a_typed_error_or_a_constraint(block: int) -> None:
    found = [attempt(seed, SEEDS) for seed in range(block * 30, block * 30 + 30)]
    assert "refused" in found and "compiled" in found


@pytest.mark.skipif(not real_seeds(), reason="no schemas of other people here")
def test_mutants_of_real_schemas() -> None:
    for seed in range(20):
        attempt(seed, real_seeds())
