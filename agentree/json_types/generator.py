"""pydantic's core schemas to JSON Schemas that say everything their validators check, type by type.

Where pydantic's own schema is wider than its validator (a date without its bounds, an int key that may be any
text), what comes out is narrower, or the type is refused. Only the functions that a user writes as validators
are left to run afterwards.
"""

import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, cast

from pydantic import ByteSize, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import SchemaValidator, core_schema, to_jsonable_python

from agentree.json_types.decimals import decimal_form
from agentree.json_types.keys import Keys
from agentree.json_types.moments import date_form, moment_form, timedelta_form
from agentree.json_types.refusals import CHECKS, refused

FORMATS: Final = (
    "date", "date-time", "time", "duration", "local-date-time", "local-time", "email-address", "url",
    "uuid", "uuid1", "uuid3", "uuid4", "uuid5", "uuid6", "uuid7", "uuid8",
    "ipv4", "ipv6", "ipvanyaddress", "ipv4interface",
)  # fmt: skip
"""The values of `format` that come out and say something of the text."""

PYTHON_PATTERN: Final = "x-regex"
"""Keyword beside a `pattern` that Python's `re` searches for; all others are searched for by Rust's regex."""

_STRIPPED: Final = r"^(?:\S(?:[\s\S]*\S)?)?$"
_ASCII: Final = r"^[\x00-\x7f]*$"


class Exact(GenerateJsonSchema):
    """The generator. A type that can't be enforced becomes a mark, so that its place is known at the end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}
        self._configs: list[Mapping[str, Any]] = [{}]
        self._keys = Keys()

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        """As pydantic's, the settings of models and the definitions noted on the way."""
        node = cast("dict[str, Any]", schema)
        self._keys.note(node)
        instead = CHECKS.get(getattr(node.get("function", {}).get("function"), "__name__", ""))
        if instead is not None and str(node["type"]).startswith("function"):
            return refused("is checked against this machine", instead)
        config = node.get("config")
        if not isinstance(config, dict):
            return super().generate_inner(schema)
        self._configs.append(cast("dict[str, Any]", config))
        try:
            return super().generate_inner(schema)
        finally:
            self._configs.pop()

    def encode_default(self, dft: Any) -> Any:
        """As pydantic's; the order of a set differs between processes, a schema must not."""
        out = super().encode_default(dft)
        return sorted(out, key=json.dumps) if isinstance(dft, set | frozenset) else out

    def _setting(self, schema: Mapping[str, Any], name: str, of_model: str) -> Any:
        own = schema.get(name)
        return self._configs[-1].get(of_model) if own is None else own

    # ------------------------------------------------------------------ texts

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        out = super().str_schema(schema)
        pattern = schema.get("pattern")
        if pattern is not None and not isinstance(pattern, str):
            if pattern.flags & ~re.UNICODE:
                return refused("has a compiled pattern with flags", "the flags into the pattern, as in (?i)")
            out[PYTHON_PATTERN] = "python"
        elif pattern is not None and self._setting(schema, "regex_engine", "regex_engine") == "python-re":
            out[PYTHON_PATTERN] = "python"
        for name in ("to_lower", "to_upper"):
            if self._setting(schema, name, f"str_{name}") and (pattern is not None or "maxLength" in out):
                return refused(f"is checked after {name}", f"its pattern and length without {name}")
        narrower: list[str] = []
        if self._setting(schema, "strip_whitespace", "str_strip_whitespace") and (
            pattern is not None or out.get("minLength")
        ):
            narrower.append(_STRIPPED)
        if schema.get("ascii_only"):
            narrower.append(_ASCII)
        return _with_patterns(out, narrower)

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        if self._configs[-1].get("val_json_bytes", "utf8") != "utf8":
            return refused("is read as encoded bytes", "a str, and decode it afterwards")
        out = {**super().bytes_schema(schema), "format": "binary"}
        return _with_patterns(out, [_ASCII] if "maxLength" in out else [])

    def uuid_schema(self, schema: core_schema.UuidSchema) -> JsonSchemaValue:
        return {"type": "string", "format": f"uuid{schema.get('version') or ''}"}

    def url_schema(self, schema: core_schema.UrlSchema) -> JsonSchemaValue:
        out: JsonSchemaValue = {"type": "string", "format": "url"}
        longest = schema.get("max_length")
        if longest is not None:
            out["maxLength"] = longest - 1  # a path of "/" is added to a URL that has none
        schemes = schema.get("allowed_schemes")
        if schemes is not None:
            out["pattern"] = f"^(?:{'|'.join(map(re.escape, schemes))}):"
        return out

    def multi_host_url_schema(self, schema: core_schema.MultiHostUrlSchema) -> JsonSchemaValue:
        return refused("is a URL of several hosts", "AnyUrl or str")

    def complex_schema(self, schema: core_schema.ComplexSchema) -> JsonSchemaValue:
        return refused("is a complex number", "two floats")

    def json_schema(self, schema: core_schema.JsonSchema) -> JsonSchemaValue:
        return refused("is JSON inside of a text", "the type of the value itself")

    def is_subclass_schema(self, schema: core_schema.IsSubclassSchema) -> JsonSchemaValue:
        return refused("is a class", "a Literal of names")

    # ------------------------------------------------------------------ times

    def date_schema(self, schema: core_schema.DateSchema) -> JsonSchemaValue:
        return date_form(schema)

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        return moment_form(cast("Mapping[str, Any]", schema), "date-time", "a date with these bounds")

    def time_schema(self, schema: core_schema.TimeSchema) -> JsonSchemaValue:
        instead = "a time without bounds and a validator"
        return moment_form(cast("Mapping[str, Any]", schema), "time", instead)

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        return timedelta_form(schema)

    # ------------------------------------------------------------------ numbers

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        return decimal_form(schema)

    def fraction_schema(self, schema: Any) -> JsonSchemaValue:
        if set(schema) - {"type", "ref", "metadata", "serialization", "strict"}:
            return refused("is a Fraction with bounds", "a Decimal")
        return {"type": "number"}

    # ------------------------------------------------------------------ listed values

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        members = [m.value if isinstance(m, Enum) else m for m in schema["expected"]]
        return _unreadable(schema, members) or super().literal_schema(schema)

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        return _unreadable(schema, [m.value for m in schema["members"]]) or super().enum_schema(schema)

    # ------------------------------------------------------------------ containers

    def set_schema(self, schema: core_schema.SetSchema) -> JsonSchemaValue:
        return self._set(schema, super().set_schema(schema))

    def frozenset_schema(self, schema: core_schema.FrozenSetSchema) -> JsonSchemaValue:
        return self._set(schema, super().frozenset_schema(schema))

    def _set(self, schema: Any, out: JsonSchemaValue) -> JsonSchemaValue:
        items = schema.get("items_schema")
        if items is not None and not self._keys.hashable(items):
            return refused("is a set of what has no hash", "a list")
        if out.get("minItems", 0) <= 1:
            out.pop("uniqueItems", None)  # reading a set drops duplicates
        elif items is None or not self._keys.distinct(items):
            return refused("is a set with min_length of what may be equal in two spellings", "a list")
        return out

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        return self._dict(schema)

    def frozendict_schema(self, schema: Any) -> JsonSchemaValue:
        return self._dict(schema)

    def ordered_dict_schema(self, schema: Any) -> JsonSchemaValue:
        return self._dict(schema)

    def counter_schema(self, schema: Any) -> JsonSchemaValue:
        return self._dict(schema)

    def _dict(self, schema: Any) -> JsonSchemaValue:
        keys = schema.get("keys_schema")
        values = dict(self.generate_inner(schema["values_schema"])) if "values_schema" in schema else {}
        values.pop("title", None)
        out: JsonSchemaValue = {"type": "object", "additionalProperties": values or True}
        names = {} if keys is None else self._keys.names(keys, self.generate_inner)
        if names is None:
            return refused(
                "is a dict whose keys are no texts and no integers", "dict[str, ...], or a list of pairs"
            )
        if names:
            out["propertyNames"] = names
        low, high = schema.get("min_length"), schema.get("max_length")
        if low is not None and low > 1 and keys is not None and not self._keys.distinct(keys):
            return refused("is a dict with min_length, two of whose keys may be equal", "dict[str, ...]")
        out.update({k: v for k, v in (("minProperties", low), ("maxProperties", high)) if v is not None})
        return out

    # ------------------------------------------------------------------ fields and functions

    def model_field_schema(self, schema: core_schema.ModelField) -> JsonSchemaValue:
        return _hidden(schema) or super().model_field_schema(schema)

    def dataclass_field_schema(self, schema: core_schema.DataclassField) -> JsonSchemaValue:
        return _hidden(schema) or super().dataclass_field_schema(schema)

    def typed_dict_field_schema(self, schema: core_schema.TypedDictField) -> JsonSchemaValue:
        return _hidden(schema) or super().typed_dict_field_schema(schema)

    def function_after_schema(self, schema: core_schema.AfterValidatorFunctionSchema) -> JsonSchemaValue:
        if getattr(schema["function"]["function"], "__self__", None) is ByteSize:
            return {"type": "integer", "minimum": 0}
        return super().function_after_schema(schema)


class Placing(Exact):
    """Marks what has no JSON form, to find its place: a schema with such a type can't be used anyway."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        kind = cast("Mapping[str, Any]", schema).get("type")
        if kind == "callable":
            return refused("is a function", "a Literal of names")
        cls = cast("Mapping[str, Any]", schema).get("cls")
        name = getattr(cls, "__name__", cls)
        what = f"is of a kind ({kind})" if cls is None else f"is {name!r}, a class"
        return refused(f"{what} that has no JSON form", "a pydantic model, a dataclass or a TypedDict")


def _with_patterns(out: JsonSchemaValue, narrower: list[str]) -> JsonSchemaValue:
    if narrower and "pattern" not in out:
        out["pattern"] = narrower.pop()
    if narrower:
        out["allOf"] = [{"pattern": p} for p in narrower]
    return out


def _hidden(schema: Any) -> JsonSchemaValue | None:
    """Fields that are only found on a path inside of other values."""
    alias = schema.get("validation_alias")
    if not isinstance(alias, list):
        return None
    if any(isinstance(path, list) and len(cast("list[Any]", path)) == 1 for path in cast("list[Any]", alias)):
        return None
    return refused("is found by an AliasPath", "an alias that is one name")


def _unreadable(schema: Any, members: list[Any]) -> JsonSchemaValue | None:
    """A mark if some member, written as JSON, is not read back."""
    kept = {k: v for k, v in schema.items() if k not in ("ref", "metadata", "serialization")}
    validator = SchemaValidator(cast("Any", kept))
    for member in members:
        try:
            text = json.dumps(to_jsonable_python(member), allow_nan=False)
            validator.validate_json(text)
        except (ValidationError, ValueError):
            return refused(f"lists {member!r}, which JSON can't write so that it is read back", "texts")
    return None
