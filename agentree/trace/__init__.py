"""Sinks for events: a live console, plain lines, JSONL files; and what trace files tell.

For scripts: `Watch` carries the events of a runtime's bus to sinks. What draws in a terminal, and what
explains plans, is loaded on first use.
"""

from typing import TYPE_CHECKING

from agentree.trace.jsonl import JSONLWriter, read_trace
from agentree.trace.lines import LineView
from agentree.trace.state import Picture
from agentree.trace.watch import Sink, Watch

if TYPE_CHECKING:
    from agentree.trace.console import ConsoleView
    from agentree.trace.explanation import explain

__all__ = ["ConsoleView", "JSONLWriter", "LineView", "Picture", "Sink", "Watch", "explain", "read_trace"]


def __getattr__(name: str) -> object:
    if name == "ConsoleView":
        from agentree.trace.console import ConsoleView

        return ConsoleView
    if name == "explain":
        from agentree.trace.explanation import explain

        return explain
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
