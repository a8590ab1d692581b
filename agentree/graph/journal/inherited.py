"""Classes that inherit from a value of the standard library: what is in their instances as such a value.

Neither writing nor reading runs the class's own code: an instance is made by what it inherits from.
"""

import datetime
import decimal
import fractions
import pathlib
import sys
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from agentree.graph.journal.standard import STANDARD


class Inherited(NamedTuple):
    """How an instance of a class below a certain one is taken apart and made."""

    parts: Callable[[Any], Any]
    """Plain values and lists of such."""
    made: Callable[[type[Any], Any], Any]
    """An instance of a class from its parts, without attributes."""


def _of_datetime(cls: type[Any], parts: Any) -> Any:
    at: datetime.datetime = STANDARD[datetime.datetime].made(parts)
    day, time = (at.year, at.month, at.day), (at.hour, at.minute, at.second, at.microsecond)
    return datetime.datetime.__new__(cls, *day, *time, at.tzinfo, fold=at.fold)


def _plain_datetime(value: datetime.datetime) -> datetime.datetime:
    return datetime.datetime.combine(value, datetime.datetime.timetz(value))


def _of_date(cls: type[Any], parts: Any) -> Any:
    day: datetime.date = STANDARD[datetime.date].made(parts)
    return datetime.date.__new__(cls, day.year, day.month, day.day)


def _plain_date(value: datetime.date) -> datetime.date:
    return datetime.date.fromordinal(datetime.date.toordinal(value))


def _of_time(cls: type[Any], parts: Any) -> Any:
    at: datetime.time = STANDARD[datetime.time].made(parts)
    return datetime.time.__new__(cls, at.hour, at.minute, at.second, at.microsecond, at.tzinfo, fold=at.fold)


def _plain_time(value: datetime.time) -> datetime.time:
    return datetime.datetime.timetz(datetime.datetime.combine(datetime.date.min, value))


def _of_uuid(cls: type[Any], parts: Any) -> Any:
    known, made = STANDARD[uuid.UUID].made(parts), object.__new__(cls)
    for name in ("int", "is_safe"):
        object.__setattr__(made, name, getattr(known, name))
    return made


def _of_fraction(cls: type[Any], parts: Any) -> Any:
    return fractions.Fraction.__new__(cls, *parts)


def _of_path(cls: type[Any], text: str) -> Any:
    made = pathlib.PurePath.__new__(cls, text)
    if sys.version_info >= (3, 12):
        pathlib.PurePath.__init__(made, text)
    return made


def _below(cls: type[Any], plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The parts of an instance by those of an equal one of the class of the standard library itself."""
    return lambda value: STANDARD[cls].parts(plain(value))


_Parts = Callable[[Any], Any]
_Made = Callable[[type[Any], Any], Any]
_WAYS: tuple[tuple[type[Any], _Parts, _Made], ...] = (
    (decimal.Decimal, decimal.Decimal.__str__, decimal.Decimal.__new__),
    (
        fractions.Fraction,
        fractions.Fraction.as_integer_ratio,
        lambda cls, p: fractions.Fraction.__new__(cls, *p),
    ),
    (datetime.datetime, _below(datetime.datetime, _plain_datetime), _of_datetime),
    (datetime.date, _below(datetime.date, _plain_date), _of_date),
    (datetime.time, _below(datetime.time, _plain_time), _of_time),
    (
        datetime.timedelta,
        _below(datetime.timedelta, datetime.timedelta.__pos__),
        lambda cls, p: datetime.timedelta.__new__(cls, *p),
    ),
    (uuid.UUID, lambda v: [f"{uuid.UUID.__int__(v):032x}", v.is_safe.value], _of_uuid),
    (pathlib.PurePath, pathlib.PurePath.__str__, _of_path),
)
INHERITED = {cls: Inherited(parts, made) for cls, parts, made in _WAYS}
"""By what is inherited from, the more special ones first."""
ALONG: frozenset[type[Any]] = frozenset(
    one for cls in (*INHERITED, *STANDARD) if issubclass(cls, tuple(INHERITED)) for one in cls.__mro__
)
"""What such a class has in its `__mro__` from the standard library: what these keep is in the parts."""
