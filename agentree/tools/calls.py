"""A model's calls of tools and what came of them, as values and as messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentree.messages import Message
from agentree.tools.text import canonical_json


@dataclass(frozen=True)
class ToolCall:
    """One call that a model made: arguments as JSON values, not validated yet."""

    id: str
    name: str
    args: Mapping[str, Any]


@dataclass(frozen=True)
class ToolCalls:
    """The calls of one turn, in the order the model made them."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True)
class ToolResult:
    """What a call came to: the text for the model. `error`: the text says what went wrong."""

    call: ToolCall
    content: str
    error: bool = False


class ToolRetry(Exception):
    """Raised by a tool: the model should correct its arguments. Counts against `retries`."""


class ToolFailed(Exception):
    """Raised by a tool: the call failed for good; the text goes to the model."""


def tool_call(call: ToolCall | ToolCalls) -> Message:
    """A recorded or worked call as an assistant message, in the model's own format.

    One call is an object, `{"name": "calculator", "arguments": {"expression": "17*23"}}`; several are an
    array of these.
    """
    calls = call.calls if isinstance(call, ToolCalls) else (call,)
    if not calls:
        raise ValueError("a turn without any tool call has no message: leave it out")
    shown = [{"name": c.name, "arguments": dict(c.args)} for c in calls]
    return Message("assistant", canonical_json(shown if len(shown) > 1 else shown[0]))


def tool_result(result: ToolResult | Sequence[ToolResult]) -> Message:
    """Results as one message of the tool role: a line or more for each, in the order given."""
    results = [result] if isinstance(result, ToolResult) else result
    if not results:
        raise ValueError("no tool result, no message: leave it out")
    return Message("tool", "\n".join("Error: " * r.error + r.content for r in results))
