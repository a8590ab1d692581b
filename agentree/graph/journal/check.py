"""Whether a JSON value fits a JSON Schema as types describe themselves by: for answers of people.

What a type says beyond that (formats, validators of its own) is left to the type. An object with named
keys has no others unless the schema allows them: what a person says under a key that nobody reads gets lost.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: (
        (isinstance(v, int) and not isinstance(v, bool)) or (isinstance(v, float) and v.is_integer())
    ),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "string": lambda v: isinstance(v, str),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}
_OTHER_TYPE = "it must be of type"
_OPENING = frozenset({"patternProperties", "allOf", "anyOf", "oneOf"})
"""What may tell of further keys."""
_BOUNDS: tuple[tuple[str, str, Callable[[Any, Any], bool], str], ...] = (
    ("number", "minimum", lambda v, b: v >= b, "it must be at least {}"),
    ("number", "maximum", lambda v, b: v <= b, "it must be at most {}"),
    ("number", "exclusiveMinimum", lambda v, b: v > b, "it must be above {}"),
    ("number", "exclusiveMaximum", lambda v, b: v < b, "it must be below {}"),
    ("number", "multipleOf", lambda v, b: v % b == 0, "it must be a multiple of {}"),
    ("string", "minLength", lambda v, b: len(v) >= b, "it needs at least {} characters"),
    ("string", "maxLength", lambda v, b: len(v) <= b, "it may have at most {} characters"),
    ("string", "pattern", lambda v, b: re.search(b, v) is not None, "it does not match {}"),
    ("array", "minItems", lambda v, b: len(v) >= b, "it needs at least {} items"),
    ("array", "maxItems", lambda v, b: len(v) <= b, "it may have at most {} items"),
)


def complaint(value: object, schema: Mapping[str, Any]) -> str | None:
    """What is wrong with a value, with its place; None if it fits."""
    return _wrong(value, schema, schema, "")


def _wrong(value: Any, schema: Any, root: Mapping[str, Any], at: str) -> str | None:
    if not isinstance(schema, dict):
        return _say(at, "it is not allowed") if schema is False else None
    found = cast("dict[str, Any]", schema)
    if "$ref" in found:
        return _wrong(value, _target(found["$ref"], root), root, at)
    # Where a schema has several parts, each knows its own keys only.
    parts = cast("Sequence[Any]", found.get("allOf", ()))
    several = len(parts) + sum(key in found for key in ("anyOf", "oneOf", "properties")) > 1
    for key in ("anyOf", "oneOf"):
        if key in found:
            tried = [_wrong(value, _open(one, root) if several else one, root, at) for one in found[key]]
            if None not in tried:
                return _nearest([str(one) for one in tried], at)
    for one in parts:
        if (wrong := _wrong(value, _open(one, root) if several else one, root, at)) is not None:
            return wrong
    kinds = found.get("type")
    if kinds is not None and not any(
        _TYPES[k](value) for k in ([kinds] if isinstance(kinds, str) else kinds)
    ):
        return _say(at, f"{_OTHER_TYPE} {kinds}, not {_name(value)}")
    options = [found["const"]] if "const" in found else found.get("enum")
    if options is not None and not any(type(value) is type(o) and value == o for o in options):
        return _say(at, "it must be " + " or ".join(map(repr, options)))
    for kind, key, holds, text in _BOUNDS:
        if key in found and _TYPES[kind](value) and not holds(value, found[key]):
            return _say(at, text.format(repr(found[key])))
    if isinstance(value, dict):
        return _object(cast("dict[str, Any]", value), found, root, at)
    return _array(cast("list[Any]", value), found, root, at) if isinstance(value, list) else None


def _object(
    value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], at: str
) -> str | None:
    names = cast("Mapping[str, Any]", schema.get("properties", {}))
    if lacking := [name for name in schema.get("required", ()) if name not in value]:
        return _say(at, f"{lacking[0]!r} is missing")
    rest = schema.get("additionalProperties", "properties" not in schema or not _OPENING.isdisjoint(schema))
    for name, inner in value.items():
        if name not in names and rest is False:
            there = f"there are: {', '.join(names)}" if names else "there is none"
            return _say(at, f"{name!r} is not known ({there})")
        if (wrong := _wrong(inner, names.get(name, rest), root, f"{at}.{name}" if at else name)) is not None:
            return wrong
    return None


def _array(value: Sequence[Any], schema: Mapping[str, Any], root: Mapping[str, Any], at: str) -> str | None:
    first = cast("Sequence[Any]", schema.get("prefixItems", ()))
    for i, item in enumerate(value):
        wrong = _wrong(item, first[i] if i < len(first) else schema.get("items", True), root, f"{at}[{i}]")
        if wrong is not None:
            return wrong
    if schema.get("uniqueItems") and any(value[i] in value[:i] for i in range(len(value))):
        return _say(at, "an item occurs twice")
    return None


def _open(schema: Any, root: Mapping[str, Any]) -> Any:
    """The schema, with all keys allowed that it does not speak of."""
    while isinstance(schema, dict) and "$ref" in schema:
        schema = _target(cast("dict[str, Any]", schema)["$ref"], root)
    if not isinstance(schema, dict):
        return schema
    return {"additionalProperties": True, **cast("dict[str, Any]", schema)}


def _nearest(tried: Sequence[str], at: str) -> str:
    """Why none of several forms fits: of those of the right type, if there are any."""
    near = [one for one in tried if not one.startswith(_say(at, _OTHER_TYPE))]
    return " or ".join(dict.fromkeys(near or tried))


def _target(ref: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for part in ref.removeprefix("#/").split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def _say(at: str, text: str) -> str:
    return f"{at}: {text}" if at else text


def _name(value: object) -> str:
    return next(name for name, holds in _TYPES.items() if holds(value))
