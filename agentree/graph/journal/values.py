"""Values as JSON and back, exactly: by what they are, for the types that a program declares.

A value is written by its own structure: plain values and containers as they are, everything else under the
name of its type, and read back and compared before it counts as written. A type that no declaration of the
program names is refused, so that reading never imports or runs anything that the program does not have.
"""

import datetime
import decimal
import fractions
import json
import math
import pathlib
import types
import uuid
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin

from pydantic import BaseModel, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

from agentree.graph.flow import show
from agentree.graph.frozen import FrozenDict, FrozenList, FrozenSet
from agentree.lm.generation import Generation, Usage
from agentree.lm.stored import rebuilt, stored
from agentree.messages import Message
from agentree.tools import Tool, ToolCall, ToolCalls, ToolResult

if TYPE_CHECKING:
    from agentree.lm import Transcript

_PLAIN = (type(None), bool, int, float, str)
_STANDARD: tuple[type, ...] = (
    complex,
    datetime.date,
    datetime.datetime,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    fractions.Fraction,
    pathlib.PosixPath,
    uuid.UUID,
    Message,
    ToolCall,
    ToolCalls,
    ToolResult,
)
_CONTAINERS: dict[type, str] = {tuple: "tuple", set: "set", frozenset: "frozenset", FrozenSet: "set"}
_LISTS = (list, FrozenList)
_DICTS = (dict, FrozenDict)


class Unstorable(Exception):
    """A value or type that can't be written; the text says which and what to do."""


class NeedsRuntime(Unstorable):
    """A value holds a transcript, and is read where there is no runtime that it could belong to."""


class Values:
    """The types of one program, and how their values are written.

    Raises:
        Unstorable: when made, for a declared type whose values can't be written.
    """

    def __init__(self, forms: Iterable[tuple[str, Any]], tools: Iterable[Tool[..., Any]] = ()) -> None:
        """`forms` are the declared types, each with the words that say where it is declared."""
        self._tools = tuple(tools)
        self._classes: dict[str, type] = {}
        self._names: dict[type, str] = {}
        self._adapters: dict[type, TypeAdapter[Any]] = {}
        for cls in _STANDARD:
            self._add(cls)
        for where, form in forms:
            for cls in _classes_of(form):
                if cls not in self._names and cls not in (Generation, bytes, *_PLAIN, *_LISTS, *_DICTS):
                    self._declare(cls, where, form)

    def write(self, value: Any, base: "Transcript | None" = None) -> Any:
        """A value as JSON values. Transcripts in it are written as what they add to `base`."""
        cls: type = value.__class__
        if cls in _PLAIN:
            return value
        if cls in _LISTS:
            return [self.write(item, base) for item in value]
        if cls in _DICTS:
            items = cast("dict[Any, Any]", value).items()
            if all(type(key) is str for key, _ in items):
                return {"is": "dict", "v": {key: self.write(inner, base) for key, inner in items}}
            return {"is": "map", "v": [[self.write(k, base), self.write(v, base)] for k, v in items]}
        if cls in _CONTAINERS:
            return {"is": _CONTAINERS[cls], "v": [self.write(item, base) for item in value]}
        if cls is bytes:
            return {"is": "bytes", "v": value.hex()}
        if cls is Generation:
            return {"is": "generation", "v": self._generation(value, base)}
        if _is_transcript(value):
            return {"is": "transcript", "v": stored(value, base)}
        return {"is": f"type {self._name(cls, value)}", "v": self._by_type(cls, value)}

    def read(self, data: Any, base: "Transcript | None" = None, *, empty: "Transcript | None") -> Any:
        """The value that `write` gave this for, on the same base; `empty` is a transcript without a token.

        Raises Unstorable where it does not fit, NeedsRuntime where it holds a transcript and `empty` is None.
        """
        if isinstance(data, list):
            return [self.read(item, base, empty=empty) for item in cast("list[Any]", data)]
        if not isinstance(data, dict):
            return data
        found = cast("dict[str, Any]", data)
        kind, v = cast("str", found["is"]), found["v"]

        def again(inner: Any) -> Any:
            return self.read(inner, base, empty=empty)

        match kind:
            case "dict":
                return {key: again(inner) for key, inner in v.items()}
            case "map":
                return {again(key): again(inner) for key, inner in v}
            case "tuple":
                return tuple(again(item) for item in v)
            case "set":
                return {again(item) for item in v}
            case "frozenset":
                return frozenset(again(item) for item in v)
            case "bytes":
                return bytes.fromhex(v)
            case "generation":
                made: dict[str, Any] = dict(v)
                made["value"] = again(v["value"])
                made["transcript"] = self.transcript(v["transcript"], base, empty)
                made["usage"] = Usage(**v["usage"])
                return Generation(**made)
            case "transcript":
                return self.transcript(v, base, empty)
            case _:
                return self._from_type(kind.removeprefix("type "), v)

    def transcript(
        self, data: Mapping[str, Any], base: "Transcript | None", empty: "Transcript | None"
    ) -> "Transcript":
        """A transcript that `stored` wrote."""
        if empty is None:
            raise NeedsRuntime("a transcript")
        return rebuilt(data, base, empty, self._tools)

    def _generation(self, made: Generation[Any], base: "Transcript | None") -> dict[str, Any]:
        plain = {f.name: getattr(made, f.name) for f in fields(made)}
        usage = {f.name: getattr(made.usage, f.name) for f in fields(made.usage)}
        value = self.write(made.value, base)
        return plain | {"value": value, "usage": usage, "transcript": stored(made.transcript, base)}

    def schemas(self) -> dict[str, Any]:
        """JSON Schema of each declared type, as far as it has one: tells whether types have changed."""
        found: dict[str, Any] = {}
        for name, cls in self._classes.items():
            if cls not in _STANDARD:
                try:
                    found[name] = self._adapters[cls].json_schema()
                except (PydanticUserError, ValueError, TypeError):
                    found[name] = None
        return found

    # ---------------------------------------------------------------------------------------- by type

    def _declare(self, cls: type, where: str, form: Any) -> None:
        try:
            self._add(cls)
        except (PydanticSchemaGenerationError, PydanticUserError, TypeError, NameError) as e:
            raise Unstorable(
                f"{where} has the type {show(form)}, and a journal can't store values of {cls.__name__}: "
                "use a dataclass or a pydantic model of plain values, or run without a journal"
            ) from e

    def _add(self, cls: type) -> None:
        if cls in _ONCE:
            raise TypeError(cls)
        adapter = TypeAdapter[Any](cls)
        name, n = cls.__qualname__, 1
        while name in self._classes:
            n += 1
            name = f"{cls.__qualname__}~{n}"
        self._classes[name], self._names[cls], self._adapters[cls] = cls, name, adapter

    def _name(self, cls: type, value: object) -> str:
        if cls not in self._names:
            self._take_subclasses()
        if cls not in self._names:
            known = is_dataclass(value) or isinstance(value, BaseModel | Enum)
            way = "annotate what the function returns with it" if known else "return a dataclass or a model"
            raise Unstorable(
                f"a value of type {cls.__name__}, which no node declares: {way}, or plain values"
            )
        return self._names[cls]

    def _take_subclasses(self) -> None:
        """Values of a declared class may be of a class that inherits from it."""
        waiting = list(self._names)
        while waiting:
            for cls in cast("Any", waiting.pop()).__subclasses__():
                # A read-only copy of a state counts as what it is a copy of.
                if cls not in self._names and cls.__dict__.get("__class__") is None and cls not in _STANDARD:
                    try:
                        self._add(cls)
                    except (PydanticSchemaGenerationError, PydanticUserError, TypeError, NameError):
                        continue
                    waiting.append(cls)

    def _by_type(self, cls: type, value: Any) -> str:
        adapter = self._adapters[cls]
        try:
            plain = adapter.dump_python(value, mode="json", round_trip=True, by_alias=False, warnings=False)
            text = json.dumps(plain, separators=(",", ":"))
            same = _same(adapter.validate_json(text, by_name=True, by_alias=False), value)
        except Exception as e:
            raise Unstorable(
                f"a value of type {cls.__name__} that can't be written as JSON: {_first_line(e)}"
            ) from e
        if not same:
            raise Unstorable(
                f"a value of type {cls.__name__} that would come back from JSON as another value: declare "
                "the exact types of its fields"
            )
        return text

    def _from_type(self, name: str, text: str) -> Any:
        if name not in self._classes:
            self._take_subclasses()
        if name not in self._classes:
            raise Unstorable(f"a value of type {name}, which the program does not declare any more")
        adapter = self._adapters[self._classes[name]]
        try:
            return adapter.validate_json(text, by_name=True, by_alias=False)
        except ValueError as e:
            raise Unstorable(f"a value of type {name} that its type refuses now: {_first_line(e)}") from e


def _classes_of(form: Any) -> list[type]:
    """Every class in a type form, those in its arguments too."""
    found: list[type] = []
    origin = get_origin(form)
    if origin is None or (isinstance(form, type) and not get_args(form)):
        if isinstance(form, type) and form is not object and not getattr(form, "_is_protocol", False):
            found.append(form)
        return found
    if isinstance(origin, type) and origin not in _ABSTRACT and origin is not types.UnionType:
        found.append(origin)
    for inner in get_args(form):
        arguments = cast("list[Any]", inner) if isinstance(inner, list) else [inner]
        for one in arguments:
            # The options of a Literal are values.
            found += _classes_of(one) if not isinstance(one, str | int | bytes | Enum) else [type(one)]
    return [cls for cls in found if cls not in (*_CONTAINERS, *_LISTS, *_DICTS)]


_ABSTRACT = (Sequence, Iterable, Collection, Mapping, Set)
_ONCE = (Callable, Iterator, AsyncIterator, Generator, AsyncGenerator, Awaitable, type)
"""What can't be written whatever it holds."""


def _is_transcript(value: object) -> bool:
    from agentree.lm.turns import Conversation

    return isinstance(value, Conversation)


def _same(a: Any, b: Any) -> bool:
    """Equal in value and in type, all the way down; a NaN equals a NaN."""
    if a.__class__ is not b.__class__:
        return _plain_class(a) is not None and _plain_class(a) is _plain_class(b) and _same_inside(a, b)
    return _same_inside(a, b)


def _plain_class(value: object) -> type | None:
    """Read-only containers count as what they are copies of."""
    return next((cls for cls in (list, dict, set) if isinstance(value, cls)), None)


def _same_inside(a: Any, b: Any) -> bool:
    if isinstance(a, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list | tuple):
        return len(cast("list[Any]", a)) == len(b) and all(map(_same, cast("list[Any]", a), b))
    if isinstance(a, dict):
        pairs = cast("dict[Any, Any]", a)
        return pairs.keys() == b.keys() and all(_same(inner, b[key]) for key, inner in pairs.items())
    if isinstance(a, BaseModel):
        return _alike(a, b, type(a).model_fields) and (a.__pydantic_private__ == b.__pydantic_private__)
    if is_dataclass(a):
        return _alike(a, b, [f.name for f in fields(a)])
    return a == b


def _alike(a: Any, b: Any, names: Iterable[str]) -> bool:
    extra: Callable[[Any], Any] = lambda value: getattr(value, "__pydantic_extra__", None)  # noqa: E731
    return _same(extra(a), extra(b)) and all(
        _same(getattr(a, name, None), getattr(b, name, None)) for name in names
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3]) or type(error).__name__
