"""Fixtures that several test files share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# On a build machine the same examples every time: new ones are searched for where somebody can look at them.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

# Before any test imports torch: on shared cores, threads that wait by spinning make small models crawl.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores already
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where a test's journal is to be; nothing is there yet."""
    return tmp_path / "runs.journal"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of the catalogue's default model: fetched once into the cache folder, then found there."""
    from agentree.runtime.model.catalog import DEFAULT
    from agentree.runtime.model.folder import resolve

    return resolve(DEFAULT).path
