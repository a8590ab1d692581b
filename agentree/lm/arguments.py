"""Arguments as callers give them: looked at where they come in, so that a slip is told by its name."""

import math
import operator
from collections.abc import Iterable
from numbers import Real
from typing import cast

from agentree.errors import InvalidArgument

SHOWN = 80
"""Characters of a value that an error shows."""


def shown(value: object) -> str:
    """A value as an error names it: its repr, cut where it is long."""
    try:
        text = repr(value)
    except Exception:  # a repr may fail, as that of an integer of 5,000 digits does
        text = f"<{type(value).__name__}>"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def whole(name: str, value: object, hint: str, *, least: int, below: int | None = None) -> int:
    """An integer in [least, below). Integers of NumPy count as such; True and False don't.

    Raises InvalidArgument with the hint: what the argument is for, and what may be written.
    """
    try:
        number = operator.index(cast("int", value))
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise InvalidArgument(f"{name}={shown(value)} is no whole number: {hint}")
    if number < least or (below is not None and number >= below):
        raise InvalidArgument(f"{name}={shown(number)} is out of range: {hint}")
    return number


def finite(name: str, value: object, hint: str) -> float:
    """A number that is neither NaN nor infinite, as a float. Raises InvalidArgument with the hint."""
    number = math.nan
    if not isinstance(value, bool) and isinstance(value, Real):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    if not math.isfinite(number):
        raise InvalidArgument(f"{name}={shown(value)} is no finite number: {hint}")
    return number


def text(name: str, value: object, hint: str) -> str:
    """A string. Raises InvalidArgument with the hint."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name}={shown(value)} is no string: {hint}")
    return value


def items(name: str, value: object, hint: str) -> tuple[object, ...]:
    """The members of a list; a lone string is refused, as it would fall into letters."""
    if isinstance(value, str | bytes | bytearray) or not isinstance(value, Iterable):
        raise InvalidArgument(f"{name}={shown(value)} is no list: {hint}")
    return tuple(cast("Iterable[object]", value))


def stop_strings(stop: object) -> tuple[str, ...]:
    """Strings that end a generation."""
    found: list[str] = []
    for i, one in enumerate(items("stop", stop, _how_to_stop(stop))):
        name = f"stop[{i}]"
        string = text(name, one, _how_to_stop(one))
        if not string:
            raise InvalidArgument(
                f"{name} is an empty string, which would stop everything at once: leave it out"
            )
        if any("\ud800" <= c <= "\udfff" for c in string):
            raise InvalidArgument(
                f"{name}={shown(string)} has a lone surrogate, which no generated text holds: leave it out"
            )
        found.append(string)
    return tuple(found)


def _how_to_stop(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        value = value.decode(errors="replace")
    example = [value] if isinstance(value, str) and value else ["\n"]
    return f"write stop={shown(example)}, a list of strings"
