"""Python types: what compiles is exact, and what a JSON Schema can't say is refused by its place."""

import datetime as dt
import enum
import ipaddress
import json
import pathlib
import random
import re
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple

import annotated_types as at
import pydantic as p
import pytest
from constraint_tools import any_token, play, small_vocabulary, stubborn
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from typing_extensions import TypedDict

from agentree.errors import ConstraintError
from agentree.runtime.constraint import output_of


class Odd(enum.Enum):
    PAIR = (1, 2)
    TEXT = "x"


class Huge(enum.IntEnum):
    HUGE = 10**30
    ONE = 1


class Mixed(enum.Enum):
    HALF = 1.5
    TEXT = "x"
    NOTHING = None


class Names(enum.Enum):
    A = "a"
    B = "b"


class Pair(NamedTuple):
    left: int
    right: str = "x"


class Fields(TypedDict, total=False):
    count: int
    name: str


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int


class Tight(BaseModel):
    model_config = ConfigDict(str_min_length=2, str_max_length=5, str_strip_whitespace=True)
    a: str
    b: Annotated[str, Field(pattern=r"^[a-c ]+$")]


class Searching(BaseModel):
    model_config = ConfigDict(regex_engine="python-re")
    code: Annotated[str, Field(pattern=r"^(?!ab)[a-c]{2,4}$")]


class Renamed(BaseModel):
    n: int = Field(validation_alias=p.AliasChoices("number", "n"))
    m: int = Field(alias="other")


class Hidden(BaseModel):
    n: int = Field(validation_alias=p.AliasPath("list", 0))


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    n: int


class FrozenList(BaseModel):
    model_config = ConfigDict(frozen=True)
    n: list[int]


@dataclass(frozen=True)
class Point:
    x: float
    y: int = 0


class Recursive(BaseModel):
    when: dt.date
    below: list["Recursive"] = []


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: p.PositiveFloat


class Square(BaseModel):
    kind: Literal["square"]
    side: p.PositiveInt


def limited(kind: Any, **limits: Any) -> Any:
    return Annotated[kind, Field(**limits)]


DAY, HOUR = dt.date(2020, 2, 29), dt.time(12)

EXACT: dict[str, tuple[Any, list[Any]]] = {
    "int": (limited(int, gt=-5, le=40, multiple_of=5), [0, 40]),
    "int beyond 64 bits": (limited(int, ge=10**20), [10**20]),
    "float": (float, [1.5, -2]),
    "float in steps": (limited(float, multiple_of=0.1), [0.3, -7.7]),
    "finite float": (p.FiniteFloat, [1.5]),
    "bool": (bool, [True]),
    "Decimal": (Decimal, [1.5, 3]),
    "Decimal of 5 digits": (limited(Decimal, max_digits=5), [12345, 0.0012, -123.45]),
    "Decimal of 2 places": (limited(Decimal, decimal_places=2), [0.25, 100]),
    "Decimal of both": (limited(Decimal, max_digits=4, decimal_places=2, ge=0), [99.99, 0]),
    "Decimal of many digits": (limited(Decimal, max_digits=20, decimal_places=3), [0.125]),
    "Decimal in steps": (limited(Decimal, multiple_of=Decimal("0.05"), lt=3), [2.95]),
    "Fraction": (Fraction, [0.5]),
    "str": (limited(str, min_length=1, max_length=3), ["é", "😀😀😀"]),
    "stripped": (p.constr(strip_whitespace=True, min_length=1), ["a", "a b"]),
    "stripped with a pattern": (p.constr(strip_whitespace=True, pattern="^[a ]+$"), ["a a"]),
    "lower": (p.constr(to_lower=True, min_length=1), ["A"]),
    "pattern": (limited(str, pattern=r"^\d{2}-\w+$"), ["12-Zürich", "٣٤-x"]),
    "compiled pattern": (limited(str, pattern=re.compile(r"(?=.*x)^[a-z]{1,4}$")), ["ax"]),
    "bytes": (p.conbytes(min_length=1, max_length=3), ["abc"]),
    "secret": (p.SecretStr, ["x"]),
    "path": (pathlib.Path, ["/a/b"]),
    "date": (dt.date, ["2024-02-29"]),
    "date from": (limited(dt.date, ge=DAY), ["2020-02-29", "9999-12-31"]),
    "date after": (limited(dt.date, gt=DAY), ["2020-03-01"]),
    "date until": (limited(dt.date, le=DAY), ["2020-02-29", "0001-01-01"]),
    "date between": (
        limited(dt.date, gt=dt.date(2019, 12, 30), lt=dt.date(2021, 3, 2)),
        ["2019-12-31", "2021-03-01"],
    ),
    "condate": (p.condate(ge=DAY, le=DAY), ["2020-02-29"]),
    "datetime": (dt.datetime, ["2024-02-29T10:00:00Z"]),
    "naive datetime": (p.NaiveDatetime, ["2024-02-29T10:00:00.5"]),
    "aware datetime": (p.AwareDatetime, ["2024-02-29T10:00:00+01:00"]),
    "time": (dt.time, ["10:00:00Z"]),
    "timedelta": (dt.timedelta, ["P1DT2H3M4.5S", "P3W"]),
    "uuid": (uuid.UUID, ["8c2d4c80-b3a6-47df-a769-af56dfe64191"]),
    **{
        f"uuid{v}": (kind, [text])
        for v, kind, text in (
            (1, p.UUID1, "8c2d4c80-b3a6-17df-a769-af56dfe64191"),
            (3, p.UUID3, "8c2d4c80-b3a6-37df-a769-af56dfe64191"),
            (4, p.UUID4, "8C2D4C80-b3a6-47df-A769-af56dfe64191"),
            (5, p.UUID5, "8c2d4c80-b3a6-57df-b769-af56dfe64191"),
        )
    },
    "IPv4": (ipaddress.IPv4Address, ["127.0.0.1"]),
    "IPv6": (ipaddress.IPv6Address, ["::1", "1:2:3:4:5:6:7:8"]),
    "IPv4 interface": (ipaddress.IPv4Interface, ["10.0.0.1/8"]),
    "any IP": (p.IPvAnyAddress, ["::1", "10.0.0.1"]),
    "http": (p.HttpUrl, ["https://example.com/a?b=c#d", "http://a-b.example:8080"]),
    "any URL": (p.AnyUrl, ["ftp://example.com/x"]),
    "web socket": (p.AnyWebsocketUrl, ["wss://example.com/x"]),
    "bytes as a number": (p.ByteSize, [1024]),
    "literals": (Literal["a", 1, True, None], ["a", 1, True, None]),
    "huge literal": (Literal[10**30], [10**30]),
    "enum": (Mixed, [1.5, "x", None]),
    "flag": (enum.IntFlag("Flags", "A B"), [1, 2]),
    "list": (limited(list[int], min_length=1, max_length=2), [[1]]),
    "set": (set[str], [["a", "b"]]),
    "set of two": (limited(set[str], min_length=2, max_length=3), [["a", "b"]]),
    "set of frozen models": (set[Frozen | Point], [[{"n": 1}, {"x": 1.5}]]),
    "frozen set": (frozenset[tuple[int, str]], [[[1, "a"]]]),
    "deque": (deque[int], [[1, 2]]),
    "tuple": (tuple[int, str], [[1, "a"]]),
    "tuple of any length": (tuple[int, ...], [[1, 2, 3]]),
    "named tuple": (Pair, [[1], [1, "a"]]),
    "iterable": (Iterable[int], [[1]]),
    "sequence": (Sequence[bool], [[True]]),
    "typed dict": (Fields, [{}, {"count": 1, "name": "x"}]),
    "dict": (dict[str, int], [{"": 1, "b c": 2}]),
    "dict by int": (dict[int, str], [{"0": "a", "-12": "b"}]),
    "dict by positive int": (dict[p.PositiveInt, bool], [{"7": True}]),
    "dict by non-negative int": (dict[p.NonNegativeInt, bool], [{"0": True}]),
    "dict by bool": (dict[bool, int], [{"true": 1}]),
    "dict by short text": (dict[limited(str, max_length=2), int], [{"ab": 1}]),
    "dict by pattern": (dict[limited(str, pattern=r"^\w+-x"), int], [{"é-xyz": 1}]),
    "dict by enum": (dict[Names, int], [{"a": 1, "b": 2}]),
    "dict by literal": (dict[Literal["a", "b"], int], [{"b": 2}]),
    "dict by uuid": (dict[uuid.UUID, int], [{"8c2d4c80-b3a6-47df-a769-af56dfe64191": 1}]),
    "dict by date": (dict[dt.date, int], [{"2020-01-01": 1}]),
    "dict by int or date": (dict[int | dt.date, int], [{"2020-01-01": 1, "3": 4}]),
    "dict of two": (limited(dict[str, bool], min_length=2, max_length=2), [{"a": True, "b": False}]),
    "dict of anything": (dict[str, Any], [{"a": [1, {"b": None}]}]),
    "mapping": (Mapping[int, int], [{"1": 2}]),
    "ordered dict": (OrderedDict[int, int], [{"1": 2}]),
    "default dict": (defaultdict[int, list[int]], [{"1": [2]}]),
    "counter": (Counter[str], [{"a": 2}]),
    "union": (int | dt.date | None, [1, "2020-01-01", None]),
    "tagged union": (
        Annotated[Circle | Square, Field(discriminator="kind")],
        [{"kind": "circle", "radius": 0.5}, {"kind": "square", "side": 2}],
    ),
    "open model": (Open, [{"n": 1, "more": "x"}]),
    "model with settings": (Tight, [{"a": "ab", "b": "a b"}]),
    "model of Python patterns": (Searching, [{"code": "aabb"}]),
    "model with aliases": (Renamed, [{"number": 1, "other": 2}]),
    "dataclass": (Point, [{"x": 1.5, "y": 2}, {"x": 0.5}]),
    "recursive model": (Recursive, [{"when": "2020-01-01", "below": [{"when": "2021-01-01", "below": []}]}]),
    "anything": (Any, [1, "x", [None], {"a": True}]),
}  # fmt: skip
"""Types, and instances that must be accepted."""

REFUSED: dict[str, tuple[Any, str]] = {
    "Decimal past a float": (limited(Decimal, ge=Decimal("0.12345678901234567891")), "no float"),
    "date before today": (p.PastDate, "Field(le="),
    "date after today": (p.FutureDate, "Field(le="),
    "no such day": (limited(dt.date, ge=DAY, lt=DAY), "no day"),
    "moment before now": (p.PastDatetime, "validator"),
    "moment after now": (p.FutureDatetime, "validator"),
    "datetime from": (limited(dt.datetime, ge=dt.datetime(2020, 1, 1)), "a date with"),
    "time from": (limited(dt.time, ge=HOUR), "a time without"),
    "timedelta from": (limited(dt.timedelta, ge=dt.timedelta(1)), "seconds"),
    "network": (ipaddress.IPv4Network, "IPv4Interface"),
    "network 6": (ipaddress.IPv6Network, "IPv6Address"),
    "interface 6": (ipaddress.IPv6Interface, "IPv6Address"),
    "any network": (p.IPvAnyNetwork, "IPv4Interface"),
    "any interface": (p.IPvAnyInterface, "IPv4Interface"),
    "JSON in a text": (p.Json[list[int]], "type of the value"),
    "pattern": (re.Pattern[str], "write str"),
    "compiled pattern with flags": (limited(str, pattern=re.compile("a", re.IGNORECASE)), "(?i)"),
    "lower with a pattern": (p.constr(to_lower=True, pattern="^a$"), "without to_lower"),
    "upper with a length": (p.constr(to_upper=True, max_length=3), "without to_upper"),
    "several hosts": (p.PostgresDsn, "AnyUrl"),
    "base64 bytes": (p.Base64Bytes, "bytes or str"),
    "base64 text": (p.Base64Str, "bytes or str"),
    "base64 of URLs": (p.Base64UrlStr, "bytes or str"),
    "file": (p.FilePath, "pathlib.Path"),
    "folder": (p.DirectoryPath, "pathlib.Path"),
    "new file": (p.NewPath, "pathlib.Path"),
    "import": (p.ImportString, "Literal"),
    "class": (type[int], "Literal"),
    "complex": (complex, "two floats"),
    "bytes literal": (Literal[b"x"], "b'x'"),
    "enum of tuples": (Odd, "(1, 2)"),
    "huge enum": (Huge, str(10**30)),
    "zone": (zoneinfo.ZoneInfo, "Literal"),
    "set of lists": (set[tuple[list[int], int]], "write a list"),
    "set of models": (set[Circle], "write a list"),
    "set of frozen models with lists": (set[FrozenList], "write a list"),
    "set of two numbers": (limited(set[float], min_length=2), "write a list"),
    "set of two uuids": (limited(set[uuid.UUID], min_length=2), "write a list"),
    "dict by float": (dict[float, int], "list of pairs"),
    "dict by tuple": (dict[tuple[int, int], int], "list of pairs"),
    "dict by number enum": (dict[Literal[1, 2], int], "list of pairs"),
    "dict by bounded int": (dict[limited(int, ge=3), int], "list of pairs"),
    "dict of two uuids": (limited(dict[uuid.UUID, int], min_length=2), "dict[str, ...]"),
    "field on a path": (Hidden, "one name"),
    "callable": (Annotated[Any, p.PlainValidator(len, json_schema_input_type=type[int])], "Literal"),
}  # fmt: skip
"""Types, and words of what to write instead."""


@pytest.mark.parametrize("name", EXACT)
def test_whatever_a_type_lets_happen_is_read(name: str) -> None:
    kind, instances = EXACT[name]
    constraint = output_of(kind, longest=12).constraint
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    assert constraint is not None
    for value in instances:
        text = json.dumps(value, ensure_ascii=False)
        adapter.validate_json(text)
        assert constraint.accepts(text), text
    vocabulary = small_vocabulary()
    least = constraint.bind(vocabulary).min_tokens
    for seed in range(12):
        rng = random.Random(seed)
        liked = (b"0aA", b"9zZ", b"-.", b"\x80\xbf\xc3")[seed % 4]
        for pick in (any_token(rng), stubborn(rng, liked)):
            text, _ = play(constraint, vocabulary, least + (0, 3, 12, 30)[seed // 3], pick)
            adapter.validate_json(text)


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_schema_says_is_refused(name: str) -> None:
    kind, words = REFUSED[name]
    with pytest.raises(ConstraintError, match=re.escape(words)):
        output_of(kind)

    class Inner(BaseModel):
        one: dict[str, list[kind]]  # type: ignore[valid-type]

    class Outer(BaseModel):
        inner: Inner | None

    with pytest.raises(ConstraintError, match=re.escape(words)) as caught:
        output_of(Outer)
    assert str(caught.value).startswith(("Inner.one{}[]", "Hidden.n", "Odd", "Huge"))


def test_validators_of_the_user_run_afterwards() -> None:
    kind = Annotated[int, at.Predicate(lambda n: n > 0), p.AfterValidator(lambda n: n + 1)]
    output = output_of(kind)
    assert output.constraint is not None and output.constraint.accepts("-1")
    assert output.parse("1") == 2


_days = st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))


@settings(max_examples=60, deadline=None)
@given(_days, _days, st.lists(_days, max_size=8), st.integers(-2, 2))
def test_days_between_two_days(a: dt.date, b: dt.date, days: list[dt.date], beside: int) -> None:
    low, high = min(a, b), max(a, b)
    constraint = output_of(Annotated[dt.date, Field(ge=low, le=high)]).constraint
    assert constraint is not None
    near = [d.toordinal() + beside for d in (low, high)]
    for day in (*days, *(dt.date.fromordinal(n) for n in near if 1 <= n <= 3652059)):
        assert constraint.accepts(f'"{day}"') == (low <= day <= high)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 8),
    st.one_of(st.none(), st.integers(0, 8)),
    st.lists(st.decimals(-3000, 3000, places=4), max_size=9),
)
def test_decimal_digits_are_those_of_the_validator(
    digits: int, places: int | None, values: list[Decimal]
) -> None:
    places = None if places is None else min(places, digits)
    kind = Annotated[Decimal, Field(max_digits=digits, decimal_places=places)]
    constraint = output_of(kind).constraint
    adapter: TypeAdapter[Decimal] = TypeAdapter(kind)
    assert constraint is not None
    for value in values:
        text = format(value.normalize(), "f") if value else "0"
        try:
            adapter.validate_json(text)
        except p.ValidationError:
            assert not constraint.accepts(text), text
        else:
            assert constraint.accepts(text), text
