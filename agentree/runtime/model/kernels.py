"""Which kernels compute on a CPU: compiled ones where they can be built and are right, else torch's."""

import logging
import os
from functools import cache
from pathlib import Path

from agentree.errors import InvalidArgument
from agentree.runtime.model import store
from agentree.runtime.model.config import ModelConfig
from agentree.runtime.model.progress import Report, Step, ignore
from agentree.runtime.model.selfcheck import works
from agentree.runtime.native.compiler import BuildFailed, NoCompiler, library
from agentree.runtime.native.library import GATES, LANES, Library

VARIABLE = "AGENTREE_KERNELS"
CHOICES = ("auto", "compiled", "torch")

_log = logging.getLogger(__name__)


class NoKernels(Exception):
    """Compiled kernels can't be used: says why."""


def choose_kernels(config: ModelConfig, *, progress: Report = ignore) -> Library | None:
    """The compiled kernels, or None where torch is to compute this model.

    `AGENTREE_KERNELS` decides: "torch", "compiled", or "auto" (unset), which is compiled where that works.
    They are built at first use, which takes some seconds; what `progress` raises ends that.

    Raises:
        InvalidArgument: the variable holds something else, or asks for kernels that can't be had here.
    """
    asked = os.environ.get(VARIABLE, "").strip() or "auto"
    if asked not in CHOICES:
        raise InvalidArgument(f"{VARIABLE}={asked!r} must be one of {', '.join(CHOICES)}; or unset it")
    if asked == "torch":
        return None
    try:
        if not fits(config):
            sizes = (
                f"heads of {config.head_dim}, width {config.hidden_size}, {config.intermediate_size} inside"
            )
            raise NoKernels(f"its sizes don't fit the compiled kernels ({sizes})")
        return _build(progress)
    except (NoKernels, BuildFailed, OSError) as error:
        if asked == "compiled":
            raise InvalidArgument(f"{VARIABLE}=compiled: {error}; unset it to compute with torch") from error
        expected = isinstance(error, NoCompiler) or not fits(config)
        _log.log(logging.INFO if expected else logging.WARNING, "computing with torch: %s", error)
        return None


def fits(config: ModelConfig) -> bool:
    """Whether a model's sizes are those that the compiled kernels take."""
    return not (config.head_dim % LANES or config.intermediate_size % GATES or config.hidden_size % 2)


def _build(progress: Report) -> Library:
    def tick() -> None:
        progress(Step("compile", "kernels", 0, None, "layers"))

    path = str(library(store.home() / "kernels", tick))
    opened = _opened(path)
    if isinstance(opened, str):
        raise NoKernels(opened)
    return opened


@cache
def _opened(path: str) -> Library | str:
    """A library, opened and checked once per process; or why it can't be used."""
    try:
        opened = Library(Path(path))
    except (OSError, AttributeError) as error:
        return f"{path} can't be used: {error}"
    return opened if works(opened) else f"{path} computes something else than torch"
