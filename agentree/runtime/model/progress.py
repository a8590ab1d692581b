"""How long work tells how far it is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Step:
    """`done` of `total` units of one stage (`total` is None where nobody knows it yet)."""

    stage: Literal["download", "verify", "extract", "convert", "compile", "load"]
    name: str
    """The file or the model that is worked on."""
    done: int
    total: int | None
    unit: Literal["bytes", "tensors", "layers"]


STAGES: dict[str, Literal["fetch", "unpack", "verify", "convert", "load"]] = {
    "download": "fetch",
    "verify": "verify",
    "extract": "unpack",
    "convert": "convert",
    "compile": "load",
    "load": "load",
}
"""What events call the stages."""
Report = Callable[[Step], None]


def ignore(_step: Step) -> None:
    """A report that nobody reads."""
