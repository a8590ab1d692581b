"""Values come back from a journal exactly as they were, or are refused by name: many kinds of types."""

import collections
import datetime
import enum
import functools
import ipaddress
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import sys
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Protocol, TypedDict, TypeVar

import pydantic
import pydantic.dataclasses
import pytest
from exactly import difference
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, computed_field
from pydantic_core import core_schema
from typing_extensions import TypeAliasType

from agentree.graph.journal.unstorable import Unstorable
from agentree.graph.journal.values import Values
from agentree.messages import user
from agentree.tools import ToolCall, ToolCalls, ToolResult

T = TypeVar("T")


def with_attributes(value: Any, attributes: dict[str, Any]) -> Any:
    value.__dict__.update(attributes)
    return value


class Text(str):
    """A string with more to it."""


class Whole(int):
    pass


class Real(float):
    pass


class Items(list[Any]):
    pass


class Table(dict[Any, Any]):
    def __missing__(self, key: Any) -> Any:
        return key


class Bag(set[Any]):
    pass


class Ring(deque[Any]):
    pass


class Point(NamedTuple):
    x: float
    y: Any


Old: Any = collections.namedtuple("Old", "a b")  # pyright: ignore[reportUntypedNamedTuple]  the old way as well


class Color(enum.Enum):
    RED = "red"
    PAIR = (1, 2)
    ALSO_RED = "red"  # noqa: PIE796  another name of the same member


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Name(enum.StrEnum):
    A = "a"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Mode(enum.IntFlag):
    R = 4
    W = 2


@dataclass
class Bare:
    a: Any = None
    b: Any = None


@dataclass(frozen=True, eq=False, slots=True)
class Slim:
    a: Any
    __hidden: int = 0  # pyright: ignore[reportGeneralTypeIssues]  its slot has another name
    c: Any = field(init=False)


@dataclass
class Derived(Bare):
    made: InitVar[int] = 0
    number: float = 1.0

    def __post_init__(self, made: int) -> None:
        self.counted = made

    @functools.cached_property
    def doubled(self) -> list[Any]:
        return [self.a, self.a]


@dataclass
class Box(Generic[T]):
    item: T


class Shape(Protocol):
    def area(self) -> float: ...


class Model(BaseModel):
    model_config = ConfigDict(extra="allow", validate_assignment=False)
    number: float = 0.0
    label: str = Field(default="", alias="theLabel")
    hidden: Any = Field(default=None, exclude=True)
    _private: Any = PrivateAttr(default=None)

    @computed_field
    @property
    def size(self) -> int:
        return len(self.label)


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int | float | str | bool | None = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    friends: "list[Pet]" = Field(default_factory=lambda: list[Pet]())


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
Dog.model_rebuild()


class Root(pydantic.RootModel[list[int]]):
    pass


@pydantic.dataclasses.dataclass
class Checked:
    at: datetime.datetime
    many: dict[int, list[Color]] = field(default_factory=dict[int, list[Color]])


class Options(TypedDict, total=False):
    name: str
    level: Level


Id = NewType("Id", int)
Tree = TypeAliasType("Tree", "list[Tree] | Level | None")
Named = TypeAliasType("Named", dict[str, T], type_params=(T,))


class Loose(BaseModel):
    json_value: pydantic.JsonValue = None
    tree: Tree = None


class Place:
    """A class that only its own schema knows."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Place({self.name!r})"

    @functools.cached_property
    def loud(self) -> str:
        return self.name.upper()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        make = core_schema.no_info_plain_validator_function(lambda v: v if isinstance(v, cls) else cls(v))
        make["serialization"] = core_schema.plain_serializer_function_ser_schema(lambda place: place.name)
        return make


def place(name: str, **attributes: Any) -> Place:
    made = Place(name)
    assert made.loud
    return with_attributes(made, attributes)


@dataclass
class Problem(ValueError):
    text: str = ""


FORMS: list[Any] = [
    *(Text, Whole, Real, Items, Table, Bag, Ring, Point, Old, Color, Level, Name, Right, Mode),
    *(Bare, Slim, Derived, Box[Point], Shape, Model, Pet, Root, Checked, Options, Id),
    *(Sequence[Annotated[int, Field(ge=1)]], Hashable, ipaddress.IPv4Address, pydantic.AnyUrl),
    *(pydantic.JsonValue, Tree, Named[Bare], Loose, Place, datetime.tzinfo, pathlib.Path, enum.Enum),
]
VALUES = Values([(f"form {i}", form) for i, form in enumerate(FORMS)])
ZONES: st.SearchStrategy[Any] = (
    st.none()
    | st.just(datetime.UTC)
    | st.sampled_from(["Europe/Berlin", "America/St_Johns", "UTC"]).map(zoneinfo.ZoneInfo)
    | st.integers(-1439, 1439).map(lambda m: datetime.timezone(datetime.timedelta(minutes=m)))
    | st.text(max_size=3).map(lambda name: datetime.timezone(datetime.timedelta(seconds=7), name))
    | st.just(pydantic.TypeAdapter(datetime.datetime).validate_json('"2026-01-01T00:00:00+01:00"').tzinfo)
)
FLOATS = st.floats() | st.binary(min_size=8, max_size=8).map(lambda bits: struct.unpack(">d", bits)[0])
STRINGS = st.text(st.characters(exclude_categories=()), max_size=4) | st.just("\ud83d\ude00")
PLAIN: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(4090, 4100).map(lambda bits: -(1 << bits))
    | FLOATS
    | STRINGS
    | st.binary(max_size=4)
)


def zoned(at: Any, zone: datetime.tzinfo | None, fold: int) -> Any:
    return at.replace(tzinfo=zone, fold=fold)


KEYS: st.SearchStrategy[Any] = (
    PLAIN
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.sampled_from([*Color, *Level, *Name, Mode.R, pathlib.PurePosixPath("a/../b"), Text("k"), Whole(3)])
    | st.tuples(STRINGS, st.integers())
    | st.uuids().map(lambda value: uuid.UUID(int=value.int))
)
MOMENTS = st.datetimes(min_value=datetime.datetime(1, 1, 2), max_value=datetime.datetime(9999, 12, 30))
LEAVES: st.SearchStrategy[Any] = (
    KEYS
    | st.builds(zoned, MOMENTS, ZONES, st.sampled_from([0, 1]))
    | st.builds(zoned, st.times(), ZONES, st.sampled_from([0, 1]))
    | st.timedeltas()
    | st.sampled_from(["NaN", "-NaN12", "sNaN7", "-Infinity", "-0E+7", "1.00", "1E-999999"]).map(Decimal)
    | st.fractions()
    | st.builds(complex, FLOATS, FLOATS)
    | st.just(uuid.uuid1())
    | st.just(uuid.UUID(int=5, is_safe=uuid.SafeUUID.unsafe))
    | STRINGS.filter(lambda text: "\0" not in text).map(pathlib.Path)
    | st.sampled_from(
        [pathlib.PureWindowsPath("c:/a"), range(1, 9, 2), re.compile("a", re.I), re.compile(rb"\d")]
    )
    | st.sampled_from([*Right, Right.READ | Right.WRITE, Right(0), Mode.R | Mode.W, Mode(0)])
    | st.builds(ToolCall, STRINGS, STRINGS, st.dictionaries(STRINGS, FLOATS | STRINGS, max_size=2))
    | STRINGS.map(user)
    | st.just(ToolCalls((ToolCall("a", "b", {}),)))
    | st.just(ToolResult(ToolCall("a", "b", {}), "text", error=True))
    | st.just(ipaddress.IPv4Address("10.0.0.1"))
    | st.just(pydantic.AnyUrl("https://example.org/a?b#c"))
    | st.just(Loose(json_value={"a": [1, None, {"b": 1.5}]}, tree=[[Level.LOW], None]))
    | st.text(max_size=3).map(Place)
    | st.just(zoneinfo.ZoneInfo("Europe/Berlin"))
)


def slim(a: Any, c: Any) -> Slim:
    made = Slim(a)
    if c is not None:
        object.__setattr__(made, "c", c)
    return made


def model(number: Any, label: Any, hidden: Any, extra: dict[str, Any]) -> Model:
    made = Model(theLabel="a", **extra)
    made.number, made.label, made.hidden, made._private = number, label, hidden, hidden
    return made


def derived(a: Any, number: Any) -> Derived:
    made = Derived(a, made=3, number=number)
    assert len(made.doubled) == 2
    return made


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=3)
    dicts = st.dictionaries(KEYS, inner, max_size=3)
    named = st.dictionaries(st.sampled_from(["one", "two", "a b"]), inner, max_size=2)
    keys = st.lists(KEYS, max_size=3)
    filled = st.builds(with_attributes, st.builds(Items, lists) | st.builds(Table, dicts), named)
    return st.one_of(
        lists,
        lists.map(tuple),
        dicts,
        keys.map(set),
        keys.map(frozenset),
        st.binary(max_size=3).map(bytearray),
        st.builds(deque[Any], lists, st.none() | st.integers(0, 4)),
        st.builds(defaultdict[Any, Any], st.sampled_from([None, list, int, Bare, Items]), dicts),
        dicts.map(OrderedDict),
        st.dictionaries(STRINGS, st.integers(), max_size=3).map(Counter),
        filled,
        st.builds(with_attributes, STRINGS.map(Text) | FLOATS.map(Real) | st.integers().map(Whole), named),
        st.builds(with_attributes, keys.map(Bag) | st.builds(Ring, lists, st.just(3)), named),
        st.builds(Point, FLOATS, inner),
        st.builds(Old, inner, inner),
        st.builds(with_attributes, st.builds(Bare, inner, inner), named),
        st.builds(slim, inner, inner),
        st.builds(derived, inner, inner),
        inner.map(Box),
        inner.map(Box[int]),
        inner.map(Box[dict[str, Point | None]]),
        inner.map(Box["list[Point]"]),
        dicts.map(OrderedDict[Any, Any]),
        st.builds(
            model, inner, inner, inner, st.dictionaries(st.sampled_from(["x", "y"]), inner, max_size=2)
        ),
        st.builds(Cat, lives=st.integers() | FLOATS | st.booleans() | st.none() | st.text(max_size=2)),
        st.just(Dog(friends=[Cat(), Dog()])),
        st.lists(st.integers(), max_size=2).map(Root),
        st.builds(Checked, st.datetimes(), st.just({1: [Color.RED, Color.PAIR]})),
        inner.map(lambda value: [value, value, (value,)]),
        st.tuples(inner, inner).map(lambda pair: Bare(pair[0], [pair[1], pair[0]])),
    )


ANY = st.recursive(LEAVES, grown, max_leaves=8)


def back(value: Any) -> Any:
    written = json.loads(json.dumps(VALUES.write(value)))
    return VALUES.read(written, empty=None)


@given(ANY)
@settings(max_examples=1000, deadline=None)
def test_every_value_comes_back_as_it_was(value: Any) -> None:
    assert difference(back(value), value) is None


SHARED: list[Any] = []
APART: list[tuple[Any, Any]] = [
    (datetime.datetime(2026, 10, 25, 2, fold=1), datetime.datetime(2026, 10, 25, 2)),
    (deque([1], 3), deque([1])),
    (defaultdict(list), defaultdict(int)),
    (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
    (Decimal("1.0"), Decimal("1.00")),
    (with_attributes(Bare(), {"x": 1}), Bare()),
    (Cat(lives=9), Cat()),
    (uuid.UUID(int=5, is_safe=uuid.SafeUUID.safe), uuid.UUID(int=5)),
    ([SHARED, SHARED], [[], []]),
    ([1, True, 1.0], [1, 1, 1.0]),
    (Text("a"), "a"),
    (-0.0, 0.0),
]


@pytest.mark.parametrize(("a", "b"), APART)
def test_the_reference_tells_values_apart(a: Any, b: Any) -> None:
    assert difference(a, b) is not None
    assert difference(back(a), b) is not None


def ring() -> Any:
    made = Bare()
    made.a = made
    made.b = [made, {"again": made}, (made,)]
    return made


def test_what_leads_back_to_itself_comes_back_so() -> None:
    made = back(ring())
    assert made.a is made
    assert made.b[0] is made
    assert made.b[1]["again"] is made
    assert made.b[2] == (made,)


class Zone(datetime.tzinfo):
    pass


class Lying(BaseModel):
    secret: pydantic.SecretStr


class Undeclared(str):
    pass


class Client:
    pass


class Wild(enum.Enum):
    @classmethod
    def _missing_(cls, value: object) -> Any:
        made = object.__new__(cls)
        made._value_ = value
        made._name_ = "MADE"
        return made

    A = 1


def anything(value: Any) -> Any:
    return value


def deep(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


REFUSED: list[tuple[Any, str]] = [
    (
        Bare(a=[{"k": Undeclared("x")}]),
        r"type Undeclared, which no type .* names, at Bare\.a\[0\]\['k'\]: annotate what holds it with "
        "Undeclared, or make it a plain str",
    ),
    (Bare(b=Client()), r"a value of type Client, at Bare\.b: use a dataclass"),
    (
        Bare(a=datetime.datetime(2026, 1, 1, tzinfo=Zone())),
        r"in the zone .*Zone.*at Bare\.a: use datetime\.timezone",
    ),
    (defaultdict(lambda: 5, {"a": 1}), "a defaultdict that is filled by .*lambda.*: give it a class"),
    (memoryview(b"a"), "type memoryview"),
    ([len], "type builtin_function_or_method"),
    (Bare(a=Wild(7)), "MADE.*no member of Wild"),
    (Bare(a=Bare), "a value of type type, at Bare.a: use a dataclass"),
    (with_attributes(Bare(), {"lock": Client()}), r"at Bare\.lock"),
    (Model(hidden=Client()), r"at Model\.hidden"),
    (model(1, 2, Client(), {}), r"at Model\.hidden"),
    (deep(5000), "nested more than"),
    (iter([1]), "type list_iterator"),
    (
        Box[Client](anything(1)),
        r"an instance of .*Box\[.*Client\], at Box\.__orig_class__: make it of the class itself",
    ),
    ({"k" * 1000: Client()}, r"at dict\['kkkkk[^ ]{1,90}…: use"),
    (place("x", more=1), "a value of type Place: it would come back from JSON as another one"),
]


@pytest.mark.parametrize(("value", "why"), REFUSED, ids=[why[:30] for _, why in REFUSED])
def test_what_would_not_come_back_is_refused_by_name(value: Any, why: str) -> None:
    values = Values([("a", Bare), ("b", Model), ("c", Wild), ("d", Place), ("e", Box)])
    with pytest.raises(Unstorable, match=why):
        values.write(value)


class Inner:
    pass


@dataclass
class Outer:
    good: int
    many: list[dict[str, Inner]]


@dataclass
class Maybe:
    call: Callable[[], int] | None = None


@dataclass
class Perhaps:
    maybe: "list[Only] | None" = None


@dataclass
class Only:
    inner: Inner | None = None


class Keeps(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    _inner: Inner = PrivateAttr(default_factory=Inner)


class Pairs(list[Inner]):
    pass


class Config(TypedDict):
    inner: Inner


@pytest.mark.parametrize(
    ("form", "where"),
    [
        (Outer, r"values of Inner \(many\)"),
        (list[Annotated[Outer, "x"]], r"values of Inner \(many\)"),
        (Keeps, r"values of Inner \(_inner\)"),
        (Pairs, "values of Inner"),
        (Config, r"values of Inner \(inner\)"),
        (Point | Inner, "values of Inner"),
        (Annotated[Callable[[int], str], "x"], "values of Callable"),
        (type[int], "values of type"),
        (list[Problem], "values of Problem: it inherits from ValueError"),
        (Maybe, r"values of Callable \(call\)"),
        (Perhaps | None, r"values of Inner \(maybe\.inner\)"),
        (Lying, r"values of SecretStr \(secret\): a file is no place for secrets"),
    ],
)
def test_types_are_refused_with_the_field(form: Any, where: str) -> None:
    with pytest.raises(Unstorable, match=f"node 'a' has the type .*, and a journal can't store .*{where}"):
        Values([("node 'a'", form)])


def test_classes_of_one_name_are_told_apart_or_refused() -> None:
    def made(base: type) -> type:
        @dataclass
        class Same(base):  # pyright: ignore[reportUntypedBaseClass]
            x: int = 0

        return Same

    first, second = made(object), made(object)
    values = Values([("a", first), ("b", second)])
    for cls in (first, second):
        assert type(values.read(values.write(cls()), empty=None)) is cls
    below = [made(Bare), made(Bare)]
    with pytest.raises(Unstorable, match="Same, of which there are several"):
        Values([("a", Bare)]).write(below[0]())


def test_integers_of_any_length() -> None:
    for value in (10**5000, -(10**5000)):
        assert back([value]) == [value]


def test_what_is_only_remembered_needs_no_place() -> None:
    assert back(place("x")) == Place("x")


def test_nan_and_zero() -> None:
    negative = struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]
    assert difference([negative], [math.nan]) is not None
    assert difference([-0.0], [0.0]) is not None
    assert difference(back([negative, -0.0]), [negative, -0.0]) is None
    assert difference(Fraction(1, 2), Fraction(2, 4)) is None


ORDER = """
from agentree.graph.journal.values import Values
from pydantic import BaseModel
class Model(BaseModel):
    alpha: int
    beta: int
    gamma: int
model = Model(alpha=1, beta=2, gamma=3)
print(Values([("a", Model)]).write([{"one", "two", "three", "four"}, frozenset("abcdef"), model]))
"""


def test_a_value_has_the_same_text_in_every_process() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", ORDER],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(texts) == 1
