"""Values as short text for events and error messages."""

from collections.abc import Sequence
from typing import cast

from pydantic import BaseModel

from agentree.messages import Message
from agentree.tools import ToolCall, ToolCalls, ToolResult, canonical_json, result_text

LIMIT = 2000
"""Longest text of a value in an event, in characters."""


def shown(value: object, limit: int = LIMIT) -> str:
    """A value as a reader would want to see it, cut to `limit` characters.

    Never raises: what has no text as JSON (bytes that are no UTF-8) is shown as Python shows it, and what has
    none at all by its type.
    """
    try:
        text = _text(value)
    except Exception:
        text = _as_python(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def one_line(error: BaseException) -> str:
    """What went wrong, in one line."""
    reason = " ".join(str(error).split())
    return shown(f"{type(error).__name__}: {reason}" if reason else type(error).__name__)


def _as_python(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def _text(value: object) -> str:
    match value:
        case str():
            return value
        case Message():
            return value.text
        case ToolCall():
            return f"{value.name}({canonical_json(dict(value.args))})"
        case ToolCalls():
            return ", ".join(_text(call) for call in value.calls)
        case ToolResult():
            return ("Error: " if value.error else "") + value.content
        case list() | tuple():
            items = cast("Sequence[object]", value)
            return "[" + ", ".join(shown(item, 200) for item in items[:50]) + "]"
        case BaseModel():
            return value.model_dump_json()
        case _:
            return result_text(value)
