"""What the JSON values of a journal say, for people: without the program that they belong to."""

import json
from collections.abc import Mapping
from typing import Any, cast

from agentree.graph.journal.standard import BY_NAME, PLAIN, unplain
from agentree.graph.journal.unstorable import Unstorable


def told(written: Any) -> Any:
    """A written value in plain JSON values, without what only reading it back needs."""
    if isinstance(written, list):
        return [told(item) for item in cast("list[Any]", written)]
    if not isinstance(written, dict):
        return written
    found = cast("dict[str, Any]", written)
    kind, v = found["is"], cast("Any", found.get("v"))
    if kind in PLAIN:
        value = PLAIN[kind](v)
        return value if isinstance(value, str | float) else str(value)
    if kind in BY_NAME:
        try:
            return str(BY_NAME[kind].made(unplain(v)))
        except Unstorable:  # a zone that this machine does not know
            return str(v)
    match kind:
        case "dict":
            return _named(v)
        case "map":
            return {_key(key): told(inner) for key, inner in v}
        case "adapted":
            return json.loads(v)
        case "generation":
            return told(v["value"])
        case "transcript":
            return f"<transcript of {v['keep'] + len(v['ids'])} tokens>"
        case "again":
            return "<the same as before>"
        case "of the state":
            return "<a part of the state>"
        case "object":
            return _object(found)
        case _:
            return told(v)


def _object(found: Mapping[str, Any]) -> Any:
    if "b" in found:
        return told(found["b"])
    attributes = found.get("v", {}) | found.get("s", {})
    return _named({name: inner for name, inner in attributes.items() if not name.startswith("__")})


def _named(items: Mapping[str, Any]) -> dict[str, Any]:
    return {name: told(inner) for name, inner in items.items()}


def _key(written: Any) -> str:
    key = told(written)
    return key if isinstance(key, str) else json.dumps(key)
