"""Chat templates: messages rendered as deltas, with control-token text in messages kept as text."""

from agentree.chat.guard import Span, Spans, ToolLike
from agentree.chat.jinja import TemplateFailed
from agentree.chat.template import CHATML, PLAIN, ChatTemplate, tool_block

__all__ = ["CHATML", "PLAIN", "ChatTemplate", "Span", "Spans", "TemplateFailed", "ToolLike", "tool_block"]
