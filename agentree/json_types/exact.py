"""A Python type to a JSON Schema that says all that the type checks, or to the reason why there is none."""

from collections.abc import Iterator
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema

from agentree.json_types.generator import Exact, Placing
from agentree.json_types.refusals import BEYOND, WHY, NoForm, Unenforceable, sorry


def exact_schema(adapter: TypeAdapter[Any], name: str) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of what an adapter takes as JSON; every text of it validates.

    Raises Unenforceable, or NoForm for types that have no JSON form, naming the place as a path from `name`;
    and what pydantic raises for types that it does not know.
    """
    try:
        schema = adapter.json_schema(schema_generator=Exact)
    except PydanticInvalidForJsonSchema as error:
        schema = adapter.json_schema(schema_generator=Placing)
        found = next((f"{where} {node[WHY]}" for where, node in _places(schema, name) if WHY in node), None)
        raise NoForm(found or str(error)) from error
    for where, node in _places(schema, name):
        if WHY in node:
            raise Unenforceable(f"{where} {node[WHY]}")
        form = node.get("format")
        if form == "email":
            node["format"] = "email-address"
        if form in BEYOND:
            raise Unenforceable(f"{where} has the format {form!r}, {sorry(BEYOND[form])}")
    return schema


def _places(node: object, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """All schemas in a schema, with their paths."""
    if not isinstance(node, dict):
        return
    schema = cast("dict[str, Any]", node)
    yield where, schema
    for key, mark in (("properties", "."), ("$defs", "")):
        for name, inner in schema.get(key, {}).items():
            yield from _places(inner, f"{where}{mark}{name}" if mark else name)
    for key, mark in (
        ("items", "[]"),
        ("additionalProperties", "{}"),
        ("propertyNames", ", a key of the dict,"),
    ):
        yield from _places(schema.get(key), where + mark)
    for inner in schema.get("patternProperties", {}).values():
        yield from _places(inner, where + "{}")
    for i, inner in enumerate(schema.get("prefixItems", ())):
        yield from _places(inner, f"{where}[{i}]")
    for key in ("anyOf", "oneOf", "allOf"):
        for inner in schema.get(key, ()):
            yield from _places(inner, where)
