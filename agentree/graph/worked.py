"""Short worked calls made of the tools' schemas: small models follow a protocol that they have seen."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from agentree.graph.final import final_arguments, final_message
from agentree.messages import Message, user
from agentree.tools import ArgumentError, Tool, ToolCall, ToolResult, canonical_json, tool_call, tool_result

MOST = 4
"""Worked calls in all."""
_SUMS = (("7 / 16", "0.4375"), ("900 - 150", "750"), ("640 - 905", "-265"), ("258 - 431", "-173"))
"""Ends with a negative result: small models are prone to drop a sign that they have not just copied."""
_TEXTS = (
    (("expression", "formula"), "12 + 30"),
    (("path", "file"), "notes.txt"),
    (("url", "link"), "https://example.com"),
    (("city", "place", "location"), "Paris"),
    (("country",), "France"),
    (("language",), "English"),
    (("query", "search", "topic", "question", "keyword"), "solar power"),
    (("name", "person", "author"), "Ada"),
    (("date", "day"), "2024-05-01"),
)
_FORMATS = {
    "date": "2024-05-01",
    "date-time": "2024-05-01T12:00:00Z",
    "time": "12:00:00Z",
    "email": "ada@example.com",
    "uri": "https://example.com",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "ipv4": "192.0.2.1",
    "hostname": "example.com",
}
_QUOTED = re.compile(
    r"(?:such as|for example|e\.g\.|like)[,:]?\s+[\"“'`]([^\"”'`]{1,60})[\"”'`]", re.IGNORECASE
)

Exchange = tuple[str, Mapping[str, Any], str]
"""A question, a call's arguments, and its result."""


def worked_turns(
    tools: Sequence[Tool[..., Any]], output: Any, *, parallel: bool = False
) -> tuple[Message, ...]:
    """A few whole exchanges: question, call, result, final answer. Each call is valid for its tool.

    With `parallel`, a call is a list of one, as turns with several calls are lists.
    """
    turns: list[Message] = []
    made = 0
    for tool in tools:
        for question, arguments, result in _exchanges(tool, max(1, MOST // len(tools))):
            if made == MOST:
                return tuple(turns)
            made += 1
            call = ToolCall(f"example_{made}", tool.name, arguments)
            final = final_message(_answer(output, result))
            said = tool_call(call)
            if parallel:
                said = Message(said.role, f"[{said.text}]")
            turns += [user(question), said, tool_result(ToolResult(call, result)), final]
    return tuple(turns)


def _exchanges(tool: Tool[..., Any], most: int) -> list[Exchange]:
    arguments = _object(tool.schema, tool.schema)
    if arguments is None or not _valid(tool, arguments):
        return []
    if list(arguments) == ["expression"]:
        sums: list[Exchange] = [(f"What is {text}?", {"expression": text}, result) for text, result in _SUMS]
        if all(_valid(tool, sum_[1]) for sum_ in sums):
            return sums[-most:]
    task = tool.description.split("\n")[0].rstrip(".:") or f"Use {tool.name}"
    values = [v if isinstance(v, str) else canonical_json(v) for v in arguments.values()]
    shown = values if len(values) == 1 else [f"{k} = {v}" for k, v in zip(arguments, values, strict=True)]
    question = f"{task}: {', '.join(shown)}" if shown else f"{task}."
    return [(question, arguments, f"{tool.name}: {', '.join(values) or 'done'}")]


def _valid(tool: Tool[..., Any], arguments: Mapping[str, Any]) -> bool:
    try:
        tool.bind(arguments)
    except ArgumentError:
        return False
    return True


def _answer(output: Any, result: str) -> object:
    """Arguments of a final answer in which the result can be seen."""
    schema = final_arguments(output)
    return _value("", schema, schema, result)


def _object(
    schema: Mapping[str, Any], root: Mapping[str, Any], result: str | None = None
) -> dict[str, Any] | None:
    properties = cast("Mapping[str, Mapping[str, Any]]", schema.get("properties", {}))
    made: dict[str, Any] = {}
    for name in schema.get("required", ()):
        made[name] = _value(name, properties.get(name, {}), root, result)
    return made


def _value(name: str, schema: Mapping[str, Any], root: Mapping[str, Any], result: str | None) -> Any:
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            options = [option for option in schema[key] if option.get("type") != "null"]
            return _value(name, options[0], root, result) if options else None
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return _object(schema, root, result)
    if kind == "array":
        count = max(1, schema.get("minItems", 0))
        return [_value(name, schema.get("items", {}), root, result)] * count
    if kind == "boolean":
        return True
    if kind in ("integer", "number"):
        return _number(schema, kind, result)
    if kind == "null":
        return None
    return _text(name, schema, result)


def _number(schema: Mapping[str, Any], kind: str, result: str | None) -> int | float:
    low = schema.get("minimum", schema.get("exclusiveMinimum", 1) + ("exclusiveMinimum" in schema))
    high = schema.get("maximum", schema.get("exclusiveMaximum", 10**9) - ("exclusiveMaximum" in schema))
    wanted = 3.0 if kind == "number" else 3
    if result is not None and re.fullmatch(r"-?\d+(\.\d+)?", result):
        wanted = float(result) if kind == "number" else int(float(result))
    return min(max(wanted, low), high)


def _text(name: str, schema: Mapping[str, Any], result: str | None) -> str:
    least, most = schema.get("minLength", 0), schema.get("maxLength", 200)
    if result is not None:
        text = result
    elif schema.get("format") in _FORMATS:
        text = _FORMATS[schema["format"]]
    elif quoted := _QUOTED.search(schema.get("description", "")):
        text = quoted[1]
    else:
        words = name.lower()
        text = next((text for keys, text in _TEXTS if any(key in words for key in keys)), "an example")
    return text[:most].ljust(least, "x")
