"""What a journal holds, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "accepted",
    "opened",
    "node started",
    "state",
    "generation",
    "call started",
    "call withdrawn",
    "call ended",
    "question",
    "refused",
    "branch lost",
    "node failed",
    "node ended",
    "waiting",
    "ended",
]
Status = Literal["running", "waiting", "stopped", "limit", "done", "failed", "cancelled"]
"""A run that is done or cancelled is over; every other one can be resumed. "stopped": cut off from outside;
"limit": by a limit of its program."""
OVER: frozenset[str] = frozenset({"done", "cancelled"})


@dataclass(frozen=True)
class Fact:
    """One thing that happened in a run. `path` is the task path that it happened at."""

    kind: Kind
    path: str
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JSON values."""
    time: float = 0.0
    """Seconds since the epoch."""


@dataclass(frozen=True)
class Header:
    """One run, as a list of runs shows it."""

    run: str
    program: str
    source: str
    """The file and name of the program where a command line started it, else ""."""
    model: str
    created: float
    updated: float
    """When something was written of it last."""
    status: Status
    stop: bool = False
    """Whether somebody asked to cancel it: a process that goes on with it may not know yet."""
    beat: float = 0.0
    """When a process last told that it works on it; 0 where none had to. Facts may be later."""
