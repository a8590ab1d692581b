"""How a visit or a run ended that has no output, in words."""

from typing import Literal

from agentree.errors import Interrupted, LimitReached
from agentree.events import STOPPED, WAITS
from agentree.graph.budget import LimitHit
from agentree.graph.parked import Parked
from agentree.graph.shown import one_line, shown

CANCELLED = "cancelled"
"""What is said of whatever was cut off."""


def reason(error: BaseException) -> str:
    """Why there is no output, in one line: a limit and a question are no failures."""
    if isinstance(error, LimitHit | LimitReached):
        return shown(f"{STOPPED} {error}")
    if isinstance(error, Interrupted | Parked):
        return shown(f"{WAITS}: {', '.join(question.path for question in error.questions)}")
    return one_line(error)


def status(error: Exception) -> Literal["failed", "waiting", "limit"]:
    """What a run has come to that raised this."""
    if isinstance(error, LimitReached):
        return "limit"
    return "waiting" if isinstance(error, Interrupted) else "failed"
