"""Fixtures that several test files share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of the catalogue's default model: fetched once into the cache folder, then found there."""
    from agentree.runtime.model.catalog import DEFAULT
    from agentree.runtime.model.folder import resolve

    return resolve(DEFAULT).path
