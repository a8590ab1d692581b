"""Membership of JSON values in sets, and values rearranged so that they can be written."""

import json
from decimal import Decimal
from typing import Any, cast

from agentree.runtime.constraint.shapes import Arrays, Objects, item
from agentree.runtime.constraint.values import Book


def arranged(book: Book, number: int, value: Any) -> Any:
    """The value with its keys in the order in which they are written.

    Raises ValueError if it is not in the set.
    """
    members = book.value(number)
    if isinstance(value, dict):
        for shape in members.objects:
            found = _object(book, shape, cast("dict[str, Any]", value))
            if found is not None:
                return found
    elif isinstance(value, list):
        for array in members.arrays:
            items = _array(book, array, cast("list[Any]", value))
            if items is not None:
                return items
    elif _scalar(book, number, value):
        return value
    raise ValueError(f"{value!r} does not satisfy the constraint")


def _scalar(book: Book, number: int, value: Any) -> bool:
    members = book.value(number)
    if value is None:
        return members.null
    if isinstance(value, bool):
        return members.true if value else members.false
    if isinstance(value, str):
        return members.strings.holds(value)
    text = format(Decimal(repr(value)), "f")
    return members.numbers.values.holds(text)


def _holds(book: Book, number: int, value: Any) -> bool:
    try:
        arranged(book, number, value)
    except ValueError:
        return False
    return True


def _array(book: Book, shape: Arrays, values: list[Any]) -> list[Any] | None:
    if len(values) < shape.low or (shape.high is not None and len(values) > shape.high):
        return None
    if shape.unique and len({json.dumps(v, sort_keys=True) for v in values}) < len(values):
        return None
    for number, low, high in shape.contains:
        count = sum(_holds(book, number, v) for v in values)
        if count < low or (high is not None and count > high):
            return None
    try:
        return [arranged(book, item(shape, i), v) for i, v in enumerate(values)]
    except ValueError:
        return None


def _object(book: Book, shape: Objects, members: dict[str, Any]) -> dict[str, Any] | None:
    if len(members) < shape.low or (shape.high is not None and len(members) > shape.high):
        return None
    names = book.value(shape.names).strings
    if not all(names.holds(key) for key in members):
        return None
    declared = {p.key: p for p in shape.properties}
    if any(p.required and p.key not in members for p in shape.properties):
        return None
    if shape.closed and any(key not in declared for key in members):
        return None
    for witness in shape.witnesses:
        fresh = [key for key in members if key not in witness.declared]
        if not any(_holds(book, book.objects.broken(witness, key), members[key]) for key in fresh):
            return None
    keys = [p.key for p in shape.properties if p.key in members]
    try:
        return {
            key: arranged(
                book,
                declared[key].value if key in declared else book.objects.undeclared(shape, key),
                members[key],
            )
            for key in dict.fromkeys((*keys, *members))
        }
    except ValueError:
        return None
