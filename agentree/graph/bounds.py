"""Refuses numbers that bound nothing: not a number, no whole one, or too small."""

import math

from agentree.errors import InvalidArgument


def is_whole(value: object) -> bool:
    """Whether it is an integer, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def whole_number(what: str, value: object, least: int) -> None:
    """Raises InvalidArgument, with `what` before the value, for what is no integer of at least `least`."""
    if not is_whole(value):
        raise InvalidArgument(f"{what}={value!r}): it must be a whole number")
    if isinstance(value, int) and value < least:
        raise InvalidArgument(f"{what}={value!r}): it must be at least {least}")


def seconds(what: str, value: object) -> None:
    """Raises InvalidArgument, with `what` before the value, for what is no time above 0."""
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not 0 < number < math.inf:
        raise InvalidArgument(f"{what}={value!r}): it must be a number above 0; leave it out for no limit")
