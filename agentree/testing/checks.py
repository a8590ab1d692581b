"""Assertions about runs, and a switch against real models in tests."""

from collections.abc import Generator
from contextlib import contextmanager
from threading import Event
from typing import Any

from agentree.errors import AgentreeError
from agentree.graph import Run
from agentree.lm.home import Home
from agentree.lm.session import Session


def assert_cached(run: Run[Any], *, at_least: float) -> None:
    """Fail unless this share (0 to 1) of a run's prompt tokens came from the cache."""
    usage = run.usage
    if usage.cached_tokens is None:
        raise AssertionError("this runtime does not tell which tokens came from its cache")
    share = usage.cached_tokens / usage.prompt_tokens if usage.prompt_tokens else 1.0
    if share < at_least:
        raise AssertionError(
            f"{usage.cached_tokens} of {usage.prompt_tokens} prompt tokens were cached ({share:.1%}), "
            f"not {at_least:.1%}:\n{run.explain()}"
        )


@contextmanager
def forbid_models() -> Generator[None]:
    """While the block lasts, opening a runtime that would load weights raises AgentreeError.

    As a fixture for all tests: `@pytest.fixture(autouse=True)` over a generator with this block. Not for use
    from several threads at once.
    """

    def refuse(self: Home, abandoned: Event) -> Session:
        raise AgentreeError(
            f"real models are forbidden here, and {str(self.settings.model)!r} would be loaded: "
            "use ScriptedRuntime"
        )

    original = Home._load
    Home._load = refuse
    try:
        yield
    finally:
        Home._load = original
