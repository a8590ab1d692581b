"""What pydantic's core schemas say of members of sets and keys of dicts: texts, hashes, equality."""

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, cast

_INNER: Final = {
    "nullable": "schema", "default": "schema", "function-after": "schema", "function-before": "schema",
    "function-wrap": "schema", "lax-or-strict": "lax_schema", "json-or-python": "json_schema",
    "definitions": "schema", "model": "schema", "dataclass": "schema",
}  # fmt: skip
_TEXTS: Final = frozenset(("str", "uuid", "date", "datetime", "time", "timedelta", "url", "any"))
_UNHASHABLE: Final = frozenset(
    (
        "list",
        "set",
        "dict",
        "any",
        "typed-dict",
        "deque",
        "ordered-dict",
        "counter",
        "frozendict",
        "generator",
    )
)
_SAME: Final = ("strip_whitespace", "to_lower", "to_upper")


class Keys:
    """Answers about core schemas of one type; definitions are looked up."""

    def __init__(self) -> None:
        self._defined: dict[str, dict[str, Any]] = {}
        self._seen: set[int] = set()

    def note(self, schema: dict[str, Any]) -> None:
        """Remembers what `schema` defines."""
        for defined in (*schema.get("definitions", ()), schema):
            if "ref" in defined:
                self._defined[defined["ref"]] = defined

    def _plain(self, schema: dict[str, Any]) -> dict[str, Any]:
        while True:
            kind = schema.get("type")
            if kind == "definition-ref":
                schema = self._defined.get(schema["schema_ref"], {"type": "any"})
            elif kind in _INNER and kind not in ("model", "dataclass") and _INNER[kind] in schema:
                schema = cast("dict[str, Any]", schema[_INNER[kind]])
            else:
                return schema

    def hashable(self, schema: dict[str, Any]) -> bool:
        """Whether every value of it can be a member of a set."""
        schema = self._plain(schema)
        kind = schema.get("type")
        if kind in _UNHASHABLE:
            return False
        if kind in ("model", "dataclass"):
            return schema["cls"].__hash__ is not None and self._fields_hashable(schema)
        members: list[Any] = [*_choices(schema)]
        if kind in ("tuple", "frozenset"):
            items = schema.get("items_schema")
            if items is None:
                return False
            members += items if isinstance(items, list) else [items]
        if kind == "named-tuple":
            members += [f["schema"] for f in schema.get("fields", ())]
        return all(self.hashable(m) for m in members)

    def _fields_hashable(self, schema: dict[str, Any]) -> bool:
        """Whether a frozen class can be hashed: it hashes its fields."""
        key = id(schema)
        if key in self._seen:
            return True
        self._seen.add(key)
        inner = self._plain(schema["schema"])
        fields: Any = inner.get("fields", ())
        return all(self.hashable(f["schema"]) for f in getattr(fields, "values", lambda: fields)())

    def distinct(self, schema: dict[str, Any]) -> bool:
        """Whether values that are spelled differently are never equal."""
        schema = self._plain(schema)
        kind = schema.get("type")
        if kind == "str":
            return not any(schema.get(k) for k in _SAME)
        if kind in ("literal", "enum"):
            return len(set(map(_value, _listed(schema)))) == len(_listed(schema))
        return kind in ("int", "date")

    def names(self, schema: dict[str, Any], make: Callable[[Any], dict[str, Any]]) -> dict[str, Any] | None:
        """What the keys of a JSON object may be; None if they can't be said."""
        plain = self._plain(schema)
        kind = plain.get("type")
        if kind == "int":
            return _integers(plain)
        if kind == "bool":
            return {"enum": ["true", "false"]}
        if kind in ("literal", "enum") and not all(isinstance(_value(m), str) for m in _listed(plain)):
            return None
        if kind == "union":
            forms = [self.names(choice, make) for choice in _choices(plain)]
            if any(f is None for f in forms):
                return None
            return {} if any(f == {} for f in forms) else {"anyOf": forms}
        if kind not in _TEXTS and kind not in ("literal", "enum"):
            return None
        made = dict(make(schema))
        for noise in ("title", "description", "type"):
            made.pop(noise, None)
        return made


def _choices(schema: dict[str, Any]) -> list[Any]:
    choices = schema.get("choices", ())
    listed: list[Any] = [*(choices.values() if isinstance(choices, dict) else choices)]
    return [c[0] if isinstance(c, tuple) else c for c in listed]


def _listed(schema: dict[str, Any]) -> list[Any]:
    return list(schema.get("expected") or schema.get("members") or ())


def _value(member: Any) -> Any:
    return member.value if isinstance(member, Enum) else member


def _integers(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Integers as keys, in one spelling each; None for bounds other than those that a sign decides."""
    bounds = {k: schema[k] for k in ("ge", "gt", "le", "lt", "multiple_of") if schema.get(k) is not None}
    if bounds in ({"ge": 1}, {"gt": 0}):
        return {"pattern": "^[1-9][0-9]{0,17}$"}
    if bounds in ({"ge": 0}, {"gt": -1}):
        return {"pattern": "^(?:0|[1-9][0-9]{0,17})$"}
    return None if bounds else {"pattern": "^(?:0|-?[1-9][0-9]{0,17})$"}
