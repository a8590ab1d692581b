"""Sinks for events: a live console, plain lines, JSONL files; and the picture that the views draw."""

from agentree.trace.jsonl import JSONLWriter, read_trace
from agentree.trace.lines import LineView
from agentree.trace.state import Picture
from agentree.trace.watch import Sink, Watch

__all__ = ["JSONLWriter", "LineView", "Picture", "Sink", "Watch", "read_trace"]
