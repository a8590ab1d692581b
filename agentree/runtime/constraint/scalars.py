"""Numbers and strings that a schema states."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from agentree.errors import ConstraintError
from agentree.json_types import PYTHON_PATTERN
from agentree.runtime.constraint import numbers, strings
from agentree.runtime.constraint.documents import Place, pointer
from agentree.runtime.constraint.formats import FORMATS, LONGEST
from agentree.runtime.constraint.keywords import count, number
from agentree.runtime.constraint.numbers import Comparison
from agentree.runtime.constraint.pattern import Dialect, simple_repeat
from agentree.runtime.constraint.terms import partition
from agentree.runtime.constraint.values import Book

Refuse = Callable[[Place, str, str], None]
"""Told of a keyword at a place that can't be enforced, and why: raises, or goes on without it."""


def numbers_of(
    schema: Mapping[str, object], place: Place, types: Sequence[str], refuse: Refuse
) -> numbers.Numbers:
    """The numbers that a schema of these types allows."""
    if "number" in types:
        out = numbers.ALL
    elif "integer" in types:
        out = numbers.WHOLE
    else:
        return numbers.NONE
    bounds: list[tuple[Comparison, object, str]] = []
    for keyword, plain, strict, flag in (
        ("minimum", ">=", ">", "exclusiveMinimum"),
        ("maximum", "<=", "<", "exclusiveMaximum"),
    ):
        if keyword in schema:
            operation = strict if schema.get(flag) is True else plain
            bounds.append((cast("Comparison", operation), schema[keyword], keyword))
        if flag in schema and not isinstance(schema[flag], bool):
            bounds.append((cast("Comparison", strict), schema[flag], flag))
    for operation, bound, keyword in bounds:
        value = number(bound, keyword, place)
        out = numbers.both(out, numbers.Numbers(numbers.compared(operation, numbers.decimal(value))))
    if "multipleOf" in schema:
        value = number(schema["multipleOf"], "multipleOf", place)
        if value <= 0:
            raise ConstraintError(f"'multipleOf' at {pointer(place)} is {value!r}: it must be above 0")
        try:
            out = numbers.both(out, numbers.Numbers(numbers.multiples(numbers.decimal(value))))
        except ConstraintError as error:
            refuse(place, "multipleOf", str(error))
    return out


def strings_of(
    book: Book, schema: Mapping[str, object], place: Place, patterns: Dialect, refuse: Refuse
) -> strings.Strings:
    """The strings that a schema allows; `patterns` is the dialect of `pattern` where it names no other."""
    terms = book.terms
    out = strings.all_strings(terms)
    low = count(schema, "minLength", place) or 0
    out = replace(out, low=low, high=count(schema, "maxLength", place))
    if "pattern" in schema:
        pattern = schema["pattern"]
        if not isinstance(pattern, str):
            raise ConstraintError(f"'pattern' at {pointer(place)} is {pattern!r}, no text")
        dialect = "python" if schema.get(PYTHON_PATTERN) == "python" else patterns
        try:
            out = strings.both(out, _pattern(book, pattern, dialect))
        except ConstraintError as error:
            refuse(place, "pattern", str(error))
    known = schema.get("format")
    if isinstance(known, str) and known in FORMATS:
        found = replace(book.found(FORMATS[known]), high=LONGEST.get(known))
        out = strings.both(out, found)
    return out


def _pattern(book: Book, pattern: str, dialect: Dialect) -> strings.Strings:
    """A pattern that is one counted set of characters becomes a length window."""
    counted = simple_repeat(pattern, dialect)
    if counted is None:
        return book.found(pattern, dialect)
    terms = book.terms
    ranges, low, high = counted
    if len(partition([ranges])) == 1:
        return strings.Strings(terms, terms.texts if ranges else terms.literal(""), low, high)
    return strings.Strings(terms, terms.cat(terms.repeat(terms.chars(ranges), 0, None), terms.end), low, high)
