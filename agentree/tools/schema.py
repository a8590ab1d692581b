"""Python signature -> JSON Schema and validated arguments, through pydantic's public API.

The parameters become one closed `TypedDict`: any Python name may be a key of it, and an optional key that is
absent is simply not passed, so that the function's own default applies.

What comes out is a subset of JSON Schema that an automaton can enforce; see `KEYWORDS`.
"""

import inspect
import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, NotRequired, Required, cast, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from agentree.errors import ToolDefinitionError
from agentree.json_types import FORMATS as EXACT_FORMATS
from agentree.json_types import PYTHON_PATTERN, NoForm, Unenforceable, exact_schema
from agentree.tools.text import canonical_json, shorten

KEYWORDS = (
    "$ref", "type", "description", "enum", "const", "anyOf", "properties", "required", "additionalProperties",
    "propertyNames", "minProperties", "maxProperties", "items", "prefixItems", "minItems", "maxItems",
    "minLength", "maxLength", "pattern", PYTHON_PATTERN, "format", "minimum", "exclusiveMinimum", "maximum",
    "exclusiveMaximum", "multipleOf", "default",
)  # fmt: skip
"""All keywords that a tool's schema can contain (and `$defs` at its top), in the order they are written."""

FORMATS = frozenset((*EXACT_FORMATS, "hostname", "uri"))
"""All values of `format` that a tool's schema can contain."""

_WITHOUT_MEANING = frozenset(
    {"title", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "discriminator"}
)
_RELAXED = frozenset({"uniqueItems"})  # a set is made of any list: duplicates do no harm
_FREE_FORMATS = frozenset({"path", "file-path", "directory-path", "binary"})
_MAX_DEFAULT = 200
_MAX_ERRORS = 8


class ArgumentError(ValueError):
    """Arguments that don't fit the parameters; the text names each bad argument."""


class _Refused(Exception):
    """A type that has no enforceable schema: why, and what to write instead."""


@dataclass(frozen=True)
class Parameters:
    """What a function takes: the schema that a model sees, and the way back to Python values."""

    schema: dict[str, object]
    names: tuple[str, ...]
    signature: tuple[inspect.Parameter, ...]
    adapter: TypeAdapter[dict[str, Any]]

    def bind(self, arguments: object) -> tuple[list[object], dict[str, object]]:
        """Validate JSON arguments and return them as `*args, **kwargs`. Raises ArgumentError.

        Strict: `true` is no integer and `3.0` neither; dates, enums and models come as JSON writes them.
        """
        if not isinstance(arguments, Mapping):
            raise ArgumentError(
                f"the arguments must be a JSON object, not {shorten(canonical_json(arguments), 80)}"
            )
        try:
            text = canonical_json(dict(cast("Mapping[str, object]", arguments)))
        except (TypeError, ValueError, RecursionError) as e:
            raise ArgumentError(f"the arguments are no JSON: {e}") from e
        try:
            values = self.adapter.validate_json(text, strict=True)
        except ValidationError as e:
            raise ArgumentError(self._explain(e)) from e
        return self._spread(values)

    def _spread(self, values: Mapping[str, object]) -> tuple[list[object], dict[str, object]]:
        args: list[object] = []
        kwargs: dict[str, object] = {}
        rest = any(values.get(p.name) for p in self.signature if p.kind is p.VAR_POSITIONAL)
        for p in self.signature:
            if p.kind is p.VAR_POSITIONAL:
                args.extend(cast("list[object]", values.get(p.name, [])))
            elif p.kind is p.POSITIONAL_ONLY or (rest and p.kind is p.POSITIONAL_OR_KEYWORD):
                args.append(values.get(p.name, p.default))
            elif p.name in values:
                kwargs[p.name] = values[p.name]
        return args, kwargs

    def _explain(self, error: ValidationError) -> str:
        lines: list[str] = []
        for item in error.errors(include_url=False, include_context=False)[:_MAX_ERRORS]:
            where = _location(item["loc"])
            if item["type"] == "missing":
                lines.append(f"{where}: missing")
            elif item["type"] == "extra_forbidden" and len(item["loc"]) == 1:
                known = ", ".join(self.names) or "none"
                lines.append(f"{where}: no such argument (there are: {known})")
            else:
                given = shorten(canonical_json(item["input"]), 60)
                lines.append(f"{where or 'arguments'}: {item['msg']}, not {given}")
        if error.error_count() > _MAX_ERRORS:
            lines.append(f"and {error.error_count() - _MAX_ERRORS} more")
        return "; ".join(lines)


def _location(loc: tuple[int | str, ...]) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def parameters_of(
    owner: str, parameters: list[inspect.Parameter], scope: Mapping[str, object], docs: Mapping[str, str]
) -> Parameters:
    """The schema of a function's parameters.

    `owner` is how errors call the function; `scope` is where names in string annotations are looked up;
    `docs` has texts by parameter name. Raises ToolDefinitionError.
    """
    fields: dict[str, Any] = {}
    hints: dict[str, Any] = {}
    for p in parameters:
        hint = hints[p.name] = _hint(owner, p, scope)
        if p.kind is p.VAR_POSITIONAL:
            fields[p.name] = NotRequired[list[hint]]
        else:
            fields[p.name] = Required[hint] if p.default is p.empty else NotRequired[hint]
    shape: Any = _typed_dict(fields)
    shape.__pydantic_config__ = ConfigDict(extra="forbid")
    try:
        adapter = TypeAdapter[dict[str, Any]](shape)
        raw = exact_schema(adapter, owner)
    except Unenforceable as e:
        raise ToolDefinitionError(str(e)) from e
    except Exception as e:
        raise ToolDefinitionError(_blame(owner, hints, e)) from e
    properties = raw.get("properties", {})
    for p in parameters:
        if p.name not in properties or isinstance(p.default, FieldInfo):
            raise ToolDefinitionError(
                f"parameter {p.name!r} of {owner} has an alias or a Field as its default: "
                f"write Annotated[type, Field(...)], without an alias, and a plain default"
            )
        _annotate(properties[p.name], p, hints[p.name], docs.get(p.name, ""))
    schema = _closed(owner, raw)
    return Parameters(schema, tuple(fields), tuple(parameters), adapter)


def _typed_dict(fields: dict[str, Any]) -> Any:
    make: Callable[[str, dict[str, Any]], Any] = cast("Any", TypedDict)
    return make("Arguments", fields)


def _hint(owner: str, p: inspect.Parameter, scope: Mapping[str, object]) -> Any:
    if p.kind is p.VAR_KEYWORD:
        raise ToolDefinitionError(
            f"{owner} takes **{p.name}, which a model can't be told about: name each argument, "
            f"or take one parameter of a model type"
        )
    if p.annotation is p.empty:
        raise ToolDefinitionError(
            f"parameter {p.name!r} of {owner} has no annotation: write its type, as in `{p.name}: str`"
        )
    try:
        holder: Any = SimpleNamespace(__annotations__={p.name: p.annotation})
        return typing.get_type_hints(holder, globalns=dict(scope), include_extras=True)[p.name]
    except Exception as e:
        raise ToolDefinitionError(
            f"the annotation {p.annotation!r} of parameter {p.name!r} of {owner} can't be resolved ({e}): "
            f"define the type at module level, before the tool and outside of `if TYPE_CHECKING`"
        ) from e


def _blame(owner: str, hints: Mapping[str, Any], error: Exception) -> str:
    for name, hint in hints.items():
        try:
            TypeAdapter(hint).json_schema()
        except Exception as e:
            told = error if isinstance(error, NoForm) else e  # it knows the place
            reason = " ".join(str(told).split("\n\nFor further")[0].split())
            shown = getattr(hint, "__name__", None) or str(hint)
            return (
                f"parameter {name!r} of {owner} is {shown}, which has no JSON form ({shorten(reason, 300)}): "
                f"take a str, number, list, Literal, Enum, dataclass or pydantic model instead"
            )
    return f"the parameters of {owner} have no JSON Schema: {error}"


def _annotate(prop: dict[str, object], p: inspect.Parameter, hint: Any, doc: str) -> None:
    """Add description and default to a property, where the type itself doesn't say."""
    prop.pop("default", None)
    texts = [m for m in get_args(hint)[1:] if isinstance(m, str)] if get_origin(hint) is Annotated else []
    text = texts[0] if texts else doc
    if text:
        prop.setdefault("description", text)
    if p.default is p.empty or p.default is None:
        return
    try:
        value = TypeAdapter(hint).dump_python(p.default, mode="json", warnings="error")
        if isinstance(p.default, set | frozenset):
            # the order of a set differs between processes; a schema must not
            value = sorted(value, key=canonical_json)
        if len(json.dumps(value, allow_nan=False)) <= _MAX_DEFAULT:
            prop["default"] = value
    except Exception:
        return  # a default without a JSON form still applies, the model is just not told of it


def _closed(owner: str, raw: dict[str, Any]) -> dict[str, object]:
    """The schema in the enforceable subset, its keys in a fixed order. Raises ToolDefinitionError."""
    definitions: dict[str, Any] = raw.get("$defs", {})
    top: dict[str, object] = {"type": "object", "properties": {}}
    properties: dict[str, object] = {}
    try:
        for name, prop in raw.get("properties", {}).items():
            properties[name] = _subset(prop, f"parameter {name!r} of {owner}")
        defs = {
            name: _subset(d, f"type {name!r} in the parameters of {owner}") for name, d in definitions.items()
        }
    except _Refused as e:
        raise ToolDefinitionError(str(e)) from None
    top["properties"] = properties
    if raw.get("required"):
        top["required"] = raw["required"]
    top["additionalProperties"] = False
    if defs:
        top["$defs"] = defs
    return top


def _subset(schema: Any, where: str) -> dict[str, object]:
    if schema is True or not (set(schema) & {"$ref", "type", "enum", "const", "anyOf", "oneOf"}):
        raise _Refused(f"{where} may be anything (Any, object or a bare list): write the type of its values")
    out: dict[str, object] = {}
    for key, value in schema.items():
        if key in _WITHOUT_MEANING or key in _RELAXED:
            continue
        if key in ("anyOf", "oneOf"):  # pydantic writes oneOf for tagged unions only: disjoint either way
            out["anyOf"] = [_subset(one, where) for one in value]
        elif key == "properties":
            out[key] = {name: _subset(one, f"field {name!r} of {where}") for name, one in value.items()}
        elif key == "additionalProperties":
            if isinstance(value, dict) and value:
                out[key] = _subset(value, f"a value of {where}")
        elif key == "items":
            if value is not False:
                out[key] = _subset(value, f"an item of {where}")
        elif key == "prefixItems":
            out[key] = [_subset(one, f"item {i} of {where}") for i, one in enumerate(value)]
        elif key == "format":
            if value not in FORMATS and value not in _FREE_FORMATS:
                raise _Refused(f"{where} has the format {value!r}, which can't be enforced: take a plain str")
            if value in FORMATS:
                out[key] = value
        elif key not in KEYWORDS:
            raise _Refused(
                f"{where} needs the JSON Schema keyword {key!r}, which can't be enforced: "
                f"take a simpler type and check the value in the function"
            )
        else:
            out[key] = value
    kind = out.get("type")
    if kind == "object":
        if "properties" in out:
            out["additionalProperties"] = False
        elif "additionalProperties" not in out:
            raise _Refused(
                f"{where} is a dict of anything: write the type of its values, as in dict[str, int], "
                f"or take a dataclass, TypedDict or pydantic model with named fields"
            )
    if kind == "array" and "items" not in out and "prefixItems" not in out and out.get("maxItems") != 0:
        raise _Refused(f"{where} is a list of anything: write the type of its items, as in list[str]")
    return {key: out[key] for key in KEYWORDS if key in out}
