"""Agent turns: tool calls or a final answer as one JSON value."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, cast

from agentree.errors import ConstraintError
from agentree.runtime.constraint.clashes import clash
from agentree.runtime.constraint.constraint import SECONDS, Constraint, Deadline, NoValue, compile_set
from agentree.runtime.constraint.output import Output
from agentree.runtime.constraint.pattern import Dialect
from agentree.runtime.constraint.schema import Schema
from agentree.runtime.constraint.shapes import FALSE, Arrays, Layer, Objects, Property
from agentree.runtime.constraint.spec import JSONSchema
from agentree.runtime.constraint.values import Book

FINAL: Final = "final_answer"
"""Name of the pseudo tool that ends the work."""

LONGEST_STRING: Final = 400
"""Strings of calls and answers that state no maximum get this one, in code points."""

MOST_CALLS: Final = 8
"""Calls in one parallel turn."""


@dataclass(frozen=True)
class Answer:
    """The final value of a turn."""

    value: Any


def tool_calls(
    tools: Sequence[tuple[str, Mapping[str, object]]],
    final: Output[Any] | None = None,
    parallel: bool = False,
    *,
    spacing: Literal["template", "compact", "any"] = "template",
    longest: int | None = LONGEST_STRING,
    patterns: Dialect = "ecma",
) -> Constraint:
    """What an agent may write in one turn: `{"name": ..., "arguments": {...}}`.

    The final answer is the pseudo tool `final_answer`, whose arguments are the output if that is an object
    and else `{"answer": <output>}`. With `parallel`, calls come as an array of 1 to 8; the final answer
    stands alone. `patterns` is the dialect of `pattern`: Rust's for the schemas of Python functions. Raises
    ConstraintError for schemas that can't be enforced, duplicate names, or if there is nothing to write.
    """
    listed = tuple((name, _text(name, schema)) for name, schema in tools)
    names = [name for name, _ in listed]
    if FINAL in names:
        raise ConstraintError(
            f"a tool can't be named {FINAL!r}: it stands for the final answer; rename the tool"
        )
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ConstraintError(f"several tools are named {twice[0]!r}: rename all but one")
    if not listed and final is None:
        raise ConstraintError("a turn needs tools or a final output: give at least one")
    return _compile(listed, final, parallel, spacing, longest, patterns)


@lru_cache(maxsize=128)
def _compile(
    tools: tuple[tuple[str, str], ...],
    final: Output[Any] | None,
    parallel: bool,
    spacing: Literal["template", "compact", "any"],
    longest: int | None,
    patterns: Dialect,
) -> Constraint:
    tick = Deadline(SECONDS)
    book = Book(tick=tick)
    calls: list[Objects] = []
    arguments: dict[str, int] = {}
    for name, text in tools:
        arguments[name] = Schema(book, json.loads(text), closed=True, lenient=False, patterns=patterns).number
        calls.append(_call(book, name, arguments[name]))
    answers: list[Objects] = []
    if final is not None:
        number = final.place(book)
        if not _is_object(book, number):
            number = book.given(replace(book.none, objects=(_closed(Property("answer", number, True)),)))
        answers.append(_call(book, FINAL, number))
    if parallel and calls:
        item = book.given(replace(book.none, objects=tuple(calls)))
        value = replace(book.none, arrays=(Arrays((), item, 1, MOST_CALLS),), objects=tuple(answers))
    else:
        value = replace(book.none, objects=(*calls, *answers))
    shapes = dict(zip(calls, arguments, strict=True))
    try:
        constraint = compile_set(book, book.given(value), spacing, longest, tick, shapes)
    except ConstraintError:
        _blame(book, arguments, tick, dict(tools))
        raise
    _blame(book, arguments, tick, dict(tools))
    return constraint


def _text(name: str, schema: Mapping[str, object]) -> str:
    try:
        return JSONSchema(schema).text()
    except ConstraintError as error:
        raise ConstraintError(f"tool {name!r}: {error}") from error


def _blame(book: Book, arguments: Mapping[str, int], tick: Deadline, texts: Mapping[str, str]) -> None:
    """Raises for the first tool that can't be called, by its name."""
    for name, number in arguments.items():
        try:
            compile_set(book, number, "template", None, tick)
        except ConstraintError as error:
            bounds = clash(json.loads(texts[name])) if isinstance(error, NoValue) else ""
            raise ConstraintError(f"tool {name!r}: {error}" + (f": {bounds}" if bounds else "")) from error


def _closed(*properties: Property) -> Objects:
    return Objects(properties, (Layer((), FALSE),), said=True)


def _call(book: Book, name: str, arguments: int) -> Objects:
    return _closed(Property("name", book.sets.constant(name), True), Property("arguments", arguments, True))


def _is_object(book: Book, number: int) -> bool:
    value = book.value(number)
    scalars = value.null or value.true or value.false or not value.numbers.void or not value.strings.void
    return bool(value.objects) and not scalars and not value.arrays


def answers_as_object(final: Output[Any]) -> bool:
    """Whether the arguments of the final answer are the output itself, not `{"answer": <output>}`."""
    book = Book()
    return _is_object(book, final.place(book))


def final_schema(final: Output[Any]) -> Mapping[str, object]:
    """JSON Schema of the arguments of the final answer, to be shown in a prompt."""
    if answers_as_object(final):
        return final.schema
    inner = dict(final.schema)
    outer: dict[str, object] = {"type": "object"}
    if "$defs" in inner:
        outer["$defs"] = inner.pop("$defs")
    return {**outer, "properties": {"answer": inner}, "required": ["answer"], "additionalProperties": False}


def parse_turn(text: str, final: Output[Any] | None = None) -> list[tuple[str, dict[str, Any]]] | Answer:
    """What an agent wrote under `tool_calls`: the calls in order, or the final answer.

    Raises ValueError for any other text, pydantic's ValidationError where the output type refuses the answer.
    """
    value: Any = json.loads(text)
    listed: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    calls = [_read(c) for c in listed]
    if len(calls) == 1 and calls[0][0] == FINAL:
        arguments = calls[0][1]
        if final is None:
            raise ValueError(f"{FINAL} where no final output was asked for")
        if answers_as_object(final):
            return Answer(final.parse_json(arguments))
        return Answer(final.parse_json(arguments["answer"]))
    return calls


def _read(call: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(call, dict):
        members = cast("dict[str, Any]", call)
        name, arguments = members.get("name"), members.get("arguments")
        if isinstance(name, str) and isinstance(arguments, dict) and len(members) == 2:
            return name, cast("dict[str, Any]", arguments)
    raise ValueError(f"{call!r} is no tool call: an object of name and arguments")
