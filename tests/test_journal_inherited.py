"""Classes that inherit from builtins and from values of the standard library: kept where declared."""

import datetime
import json
import pathlib
import sys
import uuid
import zoneinfo
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from exactly import difference
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from agentree.graph.journal.unstorable import Unstorable
from agentree.graph.journal.values import Values


class Price(Decimal):
    currency: str = "EUR"

    def __str__(self) -> str:
        return f"{self.currency} {super().__str__()}"


class Share(Fraction):
    pass


class Id(uuid.UUID):
    pass


class Day(datetime.date):
    pass


class Moment(datetime.datetime):
    def __new__(cls, *args: Any, **more: Any) -> "Moment":
        raise TypeError("made by now_()")

    @classmethod
    def at(cls, value: datetime.datetime) -> "Moment":
        day, time = (value.year, value.month, value.day), (value.hour, value.minute, value.second)
        return datetime.datetime.__new__(cls, *day, *time, value.microsecond, value.tzinfo, fold=value.fold)


class Clock(datetime.time):
    pass


class Span(datetime.timedelta):
    __slots__ = ("why",)


class Folder(type(pathlib.PurePosixPath())):
    pass


class Numbers(list[Any]):
    pass


@dataclass(eq=False)
class Bill:
    price: Price | None = None
    numbers: list[int] | None = None


FORMS = (Price, Share, Id, Day, Moment, Clock, Span, Folder, Numbers)
VALUES = Values([("a", Bill), *(("b", form | None) for form in FORMS)])


def back(value: Any) -> Any:
    return VALUES.read(json.loads(json.dumps(VALUES.write(value))), empty=None)


ZONES = st.sampled_from([None, datetime.UTC, zoneinfo.ZoneInfo("Europe/Berlin")])
INHERITED: st.SearchStrategy[Any] = st.one_of(
    st.decimals().map(Price),
    st.fractions().map(Share),
    st.uuids().map(lambda value: Id(int=value.int, is_safe=uuid.SafeUUID.unsafe)),
    st.dates().map(lambda value: Day(value.year, value.month, value.day)),
    st.datetimes(timezones=ZONES).map(Moment.at),
    st.times().map(lambda t: Clock(t.hour, t.minute, t.second, t.microsecond, datetime.UTC, fold=1)),
    st.timedeltas().map(lambda value: Span(value.days, value.seconds, value.microseconds)),
    st.lists(st.sampled_from(["a", "..", "b c", "é"])).map(lambda parts: Folder(*parts)),
    st.lists(st.integers()).map(Numbers),
)


@given(INHERITED, st.dictionaries(st.sampled_from("xyz"), st.integers(), max_size=2))
def test_they_come_back_with_all_that_they_have(value: Any, attributes: dict[str, int]) -> None:
    if hasattr(value, "__dict__"):
        value.__dict__.update(attributes)
    made = back([value, value])
    assert made[0] is made[1]
    assert difference(made, [value, value]) is None
    assert repr(made) == repr([value, value])
    assert type(made[0]) is type(value)
    for name in ("fold", "tzinfo", "is_safe"):
        assert getattr(made[0], name, None) == getattr(value, name, None)
    if not isinstance(value, Decimal) or value.is_finite():
        assert made[0] == value


def test_their_slots_are_kept() -> None:
    span = Span(days=1)
    span.why = "holidays"
    made = back(span)
    assert (made, made.why) == (span, "holidays")


def test_one_that_is_not_declared_is_refused_with_what_to_do() -> None:
    class Own(list[int]):
        pass

    class Exact(Decimal):
        pass

    why = (
        r"type Own, which no type of the program names, at Bill\.numbers: annotate what holds it with Own, or"
    )
    with pytest.raises(Unstorable, match=f"{why} make it a plain list"):
        VALUES.write(Bill(numbers=Own([1])))
    with pytest.raises(Unstorable, match=r"Exact, which no type .* with Exact, or make it a plain Decimal"):
        VALUES.write([Exact(1)])


class Handle:
    pass


@dataclass
class Inside:
    handle: Handle


class Key(BaseModel):
    key: SecretStr = SecretStr("")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (SecretStr("x"), r"type SecretStr, at list\[0\]: a file is no place for secrets"),
        (
            Key(),
            r"type Key, which has values of SecretStr \(key\), at list\[0\]: a file is",
        ),
        (Handle(), r"type Handle, at list\[0\]: use a dataclass or a pydantic model"),
        (
            Inside(Handle()),
            r"type Inside, which has values of Handle \(handle\), at list\[0\]: use a",
        ),
        (object(), r"type object, at list\[0\]: use a dataclass"),
    ],
)
def test_what_can_not_be_written_is_not_told_to_be_declared(value: Any, why: str) -> None:
    with pytest.raises(Unstorable, match=why):
        VALUES.write([value])


def test_what_an_extension_keeps_in_c_is_refused_by_its_type() -> None:
    with pytest.raises(Unstorable, match="values of float64"):
        Values([("a", np.float64)])


def test_zones_of_a_class_of_their_own_are_refused() -> None:
    class Zone(zoneinfo.ZoneInfo):
        pass

    with pytest.raises(Unstorable, match=r"in the zone .*\(Zone\): use datetime\.timezone"):
        VALUES.write(datetime.datetime(2026, 1, 1, tzinfo=Zone("Europe/Berlin")))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="before, pathlib.Path could not be inherited from")
def test_a_path_of_any_kind() -> None:
    class Place(pathlib.Path):
        pass

    values = Values([("a", Place)])
    assert values.read(values.write(Place("a/b")), empty=None) == Place("a/b")
