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
from agentree.runtime.native.compiler import BuildFailed, library
from agentree.runtime.native.library import GATES, LANES, Library

VARIABLE = "AGENTREE_KERNELS"
CHOICES = ("auto", "compiled", "torch")

_log = logging.getLogger(__name__)


def choose_kernels(config: ModelConfig, *, progress: Report = ignore) -> Library | None:
    """The compiled kernels, or None where torch is to compute this model.

    `AGENTREE_KERNELS` decides: "torch", "compiled", or "auto" (unset), which is compiled where that works.
    They are built at first use, which takes some seconds.

    Raises:
        InvalidArgument: the variable holds something else, or asks for kernels that can't be had here.
    """
    asked = os.environ.get(VARIABLE, "").strip() or "auto"
    if asked not in CHOICES:
        raise InvalidArgument(f"{VARIABLE}={asked!r} must be one of {', '.join(CHOICES)}; or unset it")
    if asked == "torch":
        return None
    found, why = _build(progress)
    if found is not None and not fits(config):
        sizes = f"heads of {config.head_dim}, width {config.hidden_size}, {config.intermediate_size} inside"
        found, why = None, f"its sizes don't fit the compiled kernels ({sizes})"
    if found is None and asked == "compiled":
        raise InvalidArgument(f"{VARIABLE}=compiled: {why}; unset it to compute with torch")
    if found is None:
        _log.info("computing with torch: %s", why)
    return found


def fits(config: ModelConfig) -> bool:
    """Whether a model's sizes are those that the compiled kernels take."""
    return not (config.head_dim % LANES or config.intermediate_size % GATES or config.hidden_size % 2)


def _build(progress: Report) -> tuple[Library | None, str]:
    def starts() -> None:
        progress(Step("compile", "kernels", 0, None, "layers"))

    try:
        return _opened(str(library(store.home() / "kernels", starts)))
    except (BuildFailed, OSError) as error:
        return None, str(error)


@cache
def _opened(path: str) -> tuple[Library | None, str]:
    """A library is opened and checked once per process."""
    try:
        opened = Library(Path(path))
    except (OSError, AttributeError) as error:
        return None, f"{path} can't be used: {error}"
    return (opened, "") if works(opened) else (None, f"{path} computes something else than torch")
