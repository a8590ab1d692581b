"""Python functions as tools: schema, validated call, result."""

from agentree.tools.builtin.calculator import calculator
from agentree.tools.builtin.files import file_tools
from agentree.tools.calls import (
    ToolCall,
    ToolCalls,
    ToolFailed,
    ToolResult,
    ToolRetry,
    tool_call,
    tool_result,
)
from agentree.tools.cancelled import raise_if_asked
from agentree.tools.decorator import ONE_TOOL, Tool, tool, tools_by_name
from agentree.tools.execution import ErrorPolicy, Finished, run_call, unknown_tool
from agentree.tools.schema import ArgumentError
from agentree.tools.text import canonical_json, clip, result_text

__all__ = [
    "ONE_TOOL",
    "ArgumentError",
    "ErrorPolicy",
    "Finished",
    "Tool",
    "ToolCall",
    "ToolCalls",
    "ToolFailed",
    "ToolResult",
    "ToolRetry",
    "calculator",
    "canonical_json",
    "clip",
    "file_tools",
    "raise_if_asked",
    "result_text",
    "run_call",
    "tool",
    "tool_call",
    "tool_result",
    "tools_by_name",
    "unknown_tool",
]
