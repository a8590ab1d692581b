"""Output types as constraints: what `gen` is asked for, how it is written, and how it is read back."""

import enum
import importlib
import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, Union, cast, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from agentree.errors import ConstraintError
from agentree.json_types import NoForm, Unenforceable, exact_schema
from agentree.runtime.constraint.asked import refuse_values, shortened
from agentree.runtime.constraint.constraint import (
    Constraint,
    compile_choice,
    compile_regex,
    compile_schema,
)
from agentree.runtime.constraint.foreign import compile_foreign
from agentree.runtime.constraint.pattern import Dialect, whole
from agentree.runtime.constraint.schema import Schema
from agentree.runtime.constraint.spec import Choice, JSONSchema, Regex
from agentree.runtime.constraint.strings import Strings, listed
from agentree.runtime.constraint.values import Book

T = TypeVar("T")
Spacing = Literal["template", "compact", "any"]

LONGEST_STRING: Final = 2000
"""Strings of Python types that state no maximum get this one, in code points, so that a small model ends."""


class Output(Generic[T]):
    """One kind of value: its constraint (None: free text), its JSON Schema, and its reader."""

    def __init__(
        self,
        name: str,
        schema: Mapping[str, object],
        read: Callable[[str], T],
        compile_: Callable[[], Constraint] | None,
        bare: Regex | Choice | type[str] | None = None,
        patterns: Dialect = "ecma",
    ) -> None:
        self.name = name
        self.schema = schema
        """JSON Schema of the value; of a JSON string, where the value is bare text."""
        self._read = read
        self._compile = compile_
        self._bare = bare
        self._patterns: Dialect = patterns

    def __repr__(self) -> str:
        return f"Output({self.name})"

    @cached_property
    def constraint(self) -> Constraint | None:
        """What `gen` forces; None for free text. Raises ConstraintError for what can't be enforced."""
        return None if self._compile is None else self._compile()

    def parse(self, text: str) -> T:
        """The value that a text spells. Raises pydantic's ValidationError, or ValueError."""
        return self._read(text)

    def parse_json(self, value: object) -> T:
        """The value from its JSON form, as it stands in a final answer: bare texts are strings there."""
        if self._bare is not None:
            if not isinstance(value, str):
                raise ValueError(f"{value!r} is no text")
            return self._read(value)
        return self._read(json.dumps(value, ensure_ascii=False))

    def place(self, book: Book) -> int:
        """The set of the value's JSON forms in a book of sets."""
        if isinstance(self._bare, Regex):
            strings = Strings(book.terms, whole(book.terms, self._bare.pattern))
            return book.given(replace(book.none, strings=strings))
        if isinstance(self._bare, Choice):
            return book.given(replace(book.none, strings=listed(book.terms, tuple(self._bare.options))))
        return Schema(book, self.schema, closed=True, lenient=False, patterns=self._patterns).number


def output_of(
    *types: Any, spacing: Spacing = "template", longest: int | None = LONGEST_STRING
) -> Output[Any]:
    """The output of a type, a spec, or a union of several types.

    `str` is free text. `Regex`, `Choice`, and a `Literal` or `Enum` of strings are bare text; everything
    else is JSON, objects closed, properties in declaration order. `longest` bounds strings that state no
    maximum, in code points (None: no bound; a value still ends within `max_tokens`). Raises
    ConstraintError for a type that has no JSON Schema.
    """
    if not types:
        raise ConstraintError("no output type: name at least one")
    for kind in types:
        refuse_values(kind)
    if len(types) == 1:
        return _single(types[0], spacing, longest)
    for kind in types:
        if isinstance(kind, Regex | Choice | JSONSchema):
            raise ConstraintError(
                f"{kind!r} can't be part of a union: write it as a type, or generate it alone"
            )
    return _typed(Union[types], spacing, longest)  # noqa: UP007


def _single(kind: Any, spacing: Spacing, longest: int | None) -> Output[Any]:
    if kind is str:
        return Output("str", {"type": "string"}, str, None, bare=str)
    if isinstance(kind, Regex):
        schema = {"type": "string", "description": f"matches {kind.pattern}"}
        return Output(repr(kind), schema, str, lambda: _regex(kind), bare=kind)
    if isinstance(kind, Choice):
        options = tuple(kind.options)
        return Output(repr(kind), {"enum": [*options]}, str, lambda: _choice(options), bare=kind)
    if isinstance(kind, JSONSchema):
        _ = kind.text()
        read = _checker(kind) if kind.lenient else json.loads
        return Output("JSONSchema", kind.schema, read, lambda: _schema(_frozen(kind), None))
    members = _texts(kind)
    if members is None:
        return _typed(kind, spacing, longest)
    return Output(
        _name(kind),
        {"enum": [*members]},
        lambda t: members[t],
        lambda: _choice(tuple(members)),
        Choice([*members]),
    )


def _checker(spec: JSONSchema) -> Callable[[str], Any]:
    """Reads a value and checks it against the whole schema: what `lenient` leaves for afterwards."""
    if importlib.util.find_spec("jsonschema") is None:
        raise ConstraintError(
            "lenient=True needs the package jsonschema to check values: pip install jsonschema"
        )

    def read(text: str) -> Any:
        validators: Any = importlib.import_module("jsonschema.validators")
        value = json.loads(text)
        kind = validators.validator_for(spec.schema, default=validators.Draft202012Validator)
        fault = next(iter(kind(spec.schema).iter_errors(value)), None)
        if fault is not None:
            raise ValueError(f"{text} does not satisfy the schema: {fault.message}")
        return value

    return read


def _texts(kind: Any) -> dict[str, Any] | None:
    """Texts of a `Literal` or `Enum` of strings, with the members they stand for."""
    if get_origin(kind) is Literal:
        members = get_args(kind)
        if all(isinstance(m, str) and not isinstance(m, enum.Enum) for m in members):
            return {m: m for m in members}
    if isinstance(kind, type) and issubclass(kind, enum.Enum) and not issubclass(kind, enum.Flag):
        texts = {m.value: m for m in kind}
        if texts and all(isinstance(t, str) for t in texts):
            return cast("dict[str, Any]", texts)
    return None


def _typed(kind: Any, spacing: Spacing, longest: int | None) -> Output[Any]:
    name = _name(kind)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        schema = exact_schema(adapter, name)
    except (NoForm, Unenforceable) as error:
        raise ConstraintError(str(error)) from error
    except PydanticSchemaGenerationError as error:
        raise ConstraintError(
            f"{name} can't be generated ({str(error).split('. ')[0]}): make it of pydantic models, "
            "dataclasses, TypedDicts, Literals, Enums, str, int, float, bool and lists of them"
        ) from error
    except Exception as error:  # types bring code of their own, and pydantic's errors have no common base
        reason = " ".join(str(error).split("\n\nFor further")[0].split()) or type(error).__name__
        if "regex parse error" in reason:
            reason = (
                f"a pattern is none of Rust's regex ({reason.split('error: ')[-1]}); write re.compile(...)"
            )
        raise ConstraintError(f"{name} can't be generated: {shortened(reason)}") from error

    def read(text: str) -> Any:
        try:
            return adapter.validate_json(text, strict=True)
        except ValidationError:
            return adapter.validate_json(text)

    spec = JSONSchema(schema, spacing=spacing, closed=True)
    return Output(name, schema, read, lambda: _schema(_frozen(spec, "rust"), longest), patterns="rust")


def _name(kind: Any) -> str:
    if kind is None or kind is NoneType:
        return "None"
    if isinstance(kind, type) and not get_args(kind):
        return kind.__name__
    if get_origin(kind) is Annotated:
        return _name(get_args(kind)[0])
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        return " | ".join(_name(k) for k in get_args(kind))
    if get_origin(kind) is not None and get_origin(kind) is not Literal:
        inner = ", ".join("..." if k is ... else _name(k) for k in get_args(kind))
        return f"{getattr(get_origin(kind), '__name__', get_origin(kind))}[{inner}]"
    return str(kind).replace("typing.", "")


@dataclass(frozen=True)
class _Frozen:
    """A JSONSchema by its text, to be found again."""

    text: str
    spacing: Spacing
    closed: bool
    lenient: bool
    fallback: Literal["llguidance"] | None = None
    patterns: Dialect = "ecma"


def _frozen(spec: JSONSchema, patterns: Dialect = "ecma") -> _Frozen:
    return _Frozen(spec.text(), spec.spacing, spec.closed, spec.lenient, spec.fallback, patterns)


@lru_cache(maxsize=512)
def _schema(spec: _Frozen, spare: int | None) -> Constraint:
    given = JSONSchema(json.loads(spec.text), spec.spacing, spec.closed, spec.lenient, spec.fallback)
    if spec.fallback is None:
        return compile_schema(given, spare, patterns=spec.patterns)
    try:
        return compile_schema(replace(given, lenient=False), spare)
    except ConstraintError as refused:
        try:
            return compile_foreign(given)
        except ConstraintError as also_refused:
            if spec.lenient:
                return compile_schema(given, spare)
            raise ConstraintError(f"{refused}; {also_refused}") from refused


@lru_cache(maxsize=512)
def _regex(spec: Regex) -> Constraint:
    return compile_regex(spec)


@lru_cache(maxsize=512)
def _choice(options: tuple[str, ...]) -> Constraint:
    return compile_choice(Choice(options))


def compile_constraint(spec: type[Any] | Regex | Choice | JSONSchema, /) -> Constraint:
    """The constraint of a type or spec, kept by content.

    Raises ConstraintError, naming the keyword and its path, for what can't be enforced exactly.
    """
    constraint = output_of(spec).constraint
    if constraint is None:
        raise ConstraintError(
            "str is free text and has no constraint: use Regex, Choice or JSONSchema to bound it"
        )
    return constraint
