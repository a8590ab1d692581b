"""Signature -> schema and arguments: what is emitted, what is refused, and that both sides agree."""

import datetime
import enum
import functools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, cast

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from agentree.errors import ToolDefinitionError
from agentree.runtime.constraint import JSONSchema, compile_constraint
from agentree.tools import ArgumentError, Tool, tool, tools_by_name
from agentree.tools.schema import FORMATS, KEYWORDS


class Unit(enum.Enum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class Branch(BaseModel):
    """A part of a tree."""

    label: str
    below: list["Branch"] = []


@dataclass
class Point:
    x: float
    y: float = 0.0


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: float


class Square(BaseModel):
    kind: Literal["square"]
    title: str


class Pair(TypedDict):
    key: str
    value: int


class Size(NamedTuple):
    width: int
    height: int = 1


def props(made: Tool[..., Any]) -> dict[str, Any]:
    found: Any = made.schema["properties"]
    return found


def call(made: Tool[..., Any], **arguments: object) -> object:
    return made.bind(arguments)()


FORECAST = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where."},
        "days": {"type": "integer", "description": "How long.", "default": 3},
    },
    "required": ["city"],
    "additionalProperties": False,
}


def google(city: str, days: int = 3) -> str:
    """Tell the weather.

    Args:
        city: Where.
        days: How long.

    Returns:
        Words.
    """
    return f"{city} {days}"


def google_tight(city: str, days: int = 3) -> str:
    """Tell the weather.
    Args:
        city (str): Where.
        days (int, optional): How long.
    """
    return f"{city} {days}"


def numpy(city: str, days: int = 3) -> str:
    """Tell the weather.

    Parameters
    ----------
    city : str
        Where.
    days : int
        How long.
    """
    return f"{city} {days}"


def sphinx(city: str, days: int = 3) -> str:
    """Tell the weather.

    :param city: Where.
    :param days: How long.
    """
    return f"{city} {days}"


@pytest.mark.parametrize("fn", [google, google_tight, numpy, sphinx])
def test_docstring_styles_give_one_schema(fn: Callable[..., str]) -> None:
    made = tool(fn)
    assert made.schema == FORECAST
    assert json.dumps(made.schema) == json.dumps(FORECAST)  # the order too
    assert made.description == "Tell the weather."
    assert call(made, city="Oslo") == "Oslo 3"
    assert call(made, city="Oslo", days=1) == "Oslo 1"


def test_without_docstring() -> None:
    def bare(city: str) -> str:
        return city

    made = tool(bare)
    assert made.description == ""
    assert made.schema == {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }


def test_optional_enum_and_date() -> None:
    def weather(city: str, unit: Unit | None = None, when: datetime.date | None = None) -> object:
        return city, unit, when

    made = tool(weather)
    assert made.schema["required"] == ["city"]
    assert props(made)["unit"] == {"anyOf": [{"$ref": "#/$defs/Unit"}, {"type": "null"}]}
    assert props(made)["when"] == {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}
    assert made.schema["$defs"] == {"Unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}
    got = call(made, city="Oslo", unit="celsius", when="2026-01-31")
    assert got == ("Oslo", Unit.CELSIUS, datetime.date(2026, 1, 31))
    assert call(made, city="Oslo", unit=None) == ("Oslo", None, None)


def test_recursive_model_is_a_reference() -> None:
    def walk(tree: Branch) -> Branch:
        """Walk.

        Args:
            tree: Where to start.
        """
        return tree

    made = tool(walk)
    assert props(made)["tree"] == {"$ref": "#/$defs/Branch", "description": "Where to start."}
    branch: Any = made.schema["$defs"]
    assert branch["Branch"]["properties"]["below"]["items"] == {"$ref": "#/$defs/Branch"}
    assert branch["Branch"]["additionalProperties"] is False
    got = call(made, tree={"label": "a", "below": [{"label": "b"}]})
    assert got == Branch(label="a", below=[Branch(label="b")])


def test_dataclass_is_built_and_a_free_dict_refused() -> None:
    def move(p: Point) -> Point:
        return p

    made = tool(move)
    assert call(made, p={"x": 1}) == Point(1.0, 0.0)

    def bag(p: Point, extra: dict[str, Any]) -> None: ...

    with pytest.raises(
        ToolDefinitionError, match=r"'extra' of tool 'bag' is a dict of anything.*dict\[str, int\]"
    ):
        tool(bag)


def test_dicts_with_typed_values_and_multiples() -> None:
    def count(
        of: dict[str, int], at: dict[int, list[Point]], step: Annotated[int, Field(multiple_of=5)]
    ) -> str:
        return f"{of} {at} {step}"

    made = tool(count)
    properties = cast("dict[str, dict[str, Any]]", made.schema["properties"])
    assert properties["of"] == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert properties["at"]["additionalProperties"]["items"] == {"$ref": "#/$defs/Point"}
    assert properties["step"]["multipleOf"] == 5
    forced = compile_constraint(JSONSchema(made.schema, spacing="compact"))
    assert forced.accepts('{"of":{"a":1},"at":{"7":[{"x":1}]},"step":10}')
    assert not forced.accepts('{"of":{"a":"1"},"at":{},"step":10}')
    assert not forced.accepts('{"of":{},"at":{"x":[]},"step":10}')
    assert not forced.accepts('{"of":{},"at":{},"step":11}')
    assert (
        call(made, of={"a": 1}, at={"7": [{"x": 1}]}, step=10)
        == f"{ {'a': 1} } { {7: [Point(1.0, 0.0)]} } 10"
    )


def test_mixed_literal_and_set() -> None:
    def open_(mode: Literal["r", "w", 1], tags: frozenset[str] = frozenset()) -> object:
        return mode, tags

    made = tool(open_)
    assert props(made)["mode"] == {"enum": ["r", "w", 1]}
    assert props(made)["tags"] == {"type": "array", "items": {"type": "string"}, "default": []}
    assert call(made, mode=1, tags=["a", "a"]) == (1, frozenset({"a"}))
    assert call(made, mode="r") == ("r", frozenset())


def test_star_arguments() -> None:
    def join(*paths: str, sep: str = ",") -> str:
        """Join.

        Args:
            *paths: The paths.
            sep: Between them.
        """
        return sep.join(paths)

    made = tool(join)
    assert made.schema.get("required") is None
    assert props(made)["paths"] == {"type": "array", "description": "The paths.", "items": {"type": "string"}}
    assert call(made, paths=["a", "b"], sep="/") == "a/b"
    assert call(made) == ""

    def more(*paths: str, **kw: int) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"takes \*\*kw.*name each argument"):
        tool(more)


def test_star_arguments_after_ones_left_out() -> None:
    def f(a: int = 1, b: int = 2, /, c: int = 3, *rest: str, d: str = "x") -> object:
        return a, b, c, rest, d

    made = tool(f)
    assert list(props(made)) == ["a", "b", "c", "rest", "d"]
    assert call(made) == (1, 2, 3, (), "x")
    assert call(made, b=5) == (1, 5, 3, (), "x")
    assert call(made, rest=["p"], d="y") == (1, 2, 3, ("p",), "y")
    assert call(made, c=7, rest=[]) == (1, 2, 7, (), "x")


def test_annotated_constraints_and_tuple() -> None:
    def pick(
        n: Annotated[int, Field(ge=1, le=9, description="One digit.")], t: tuple[int, str] = (1, "a")
    ) -> object:
        return n, t

    made = tool(pick)
    assert props(made)["n"] == {"type": "integer", "description": "One digit.", "minimum": 1, "maximum": 9}
    assert props(made)["t"]["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert call(made, n=2, t=[3, "b"]) == (2, (3, "b"))
    with pytest.raises(ArgumentError, match=r"n: .*less than or equal to 9, not 10"):
        made.bind({"n": 10})


def test_annotated_text_is_a_description() -> None:
    def f(a: Annotated[str, "What to do."]) -> str:
        """Do.

        Args:
            a: Less particular.
        """
        return a

    assert props(tool(f))["a"] == {"type": "string", "description": "What to do."}


def test_positional_only_keeps_its_order() -> None:
    def sub(a: int, /, b: int) -> int:
        """Subtract.

        Args:
            a: From.
            b: What.
        """
        return a - b

    made = tool(sub)
    assert list(props(made)) == ["a", "b"]
    assert made.schema["required"] == ["a", "b"]
    assert call(made, b=2, a=5) == 3


class Hooked(BaseModel):
    call: Callable[[int], int]


class Shop:
    rate = 3

    @tool
    def price(self, item: str) -> int:
        """Look up a price.

        Args:
            item: What.
        """
        return self.rate * len(item)

    @tool
    @classmethod
    def count(cls, item: str) -> int:
        return cls.rate

    @tool
    @staticmethod
    def shout(item: str) -> str:
        return item.upper()

    @staticmethod
    @tool
    def whisper(item: str) -> str:
        return item.lower()

    @tool
    def typed(self: "Shop", n: int) -> int:
        return n + self.rate

    def plain(self, item: str) -> int:
        return self.rate + len(item)

    async def __call__(self, item: str) -> str:
        """Ask the shop.

        Args:
            item: What for.
        """
        return item


def test_methods_bind_their_object() -> None:
    cheap, dear = Shop(), Shop()
    dear.rate = 100
    assert Shop.price.schema == {
        "type": "object",
        "properties": {"item": {"type": "string", "description": "What."}},
        "required": ["item"],
        "additionalProperties": False,
    }
    assert (cheap.price("ab"), dear.price("ab"), Shop.price(cheap, "ab")) == (6, 200, 6)
    assert (call(cheap.price, item="ab"), call(dear.price, item="ab")) == (6, 200)
    assert call(cheap.typed, n=1) == 4
    assert cheap.price.name == "price"
    with pytest.raises(ToolDefinitionError, match="method without its object"):
        Shop.price.bind({"item": "ab"})
    with pytest.raises(ToolDefinitionError, match="method without its object"):
        tools_by_name([Shop.price])


def test_class_and_static_methods() -> None:
    for owner in (Shop, Shop()):
        made: list[Any] = [owner.count, owner.shout, owner.whisper]
        assert [list(props(t)) for t in made] == [["item"]] * 3
        assert [call(t, item="Ab") for t in made] == [3, "AB", "ab"]
        assert list(tools_by_name(made)) == ["count", "shout", "whisper"]


def test_bound_method_and_callable_object() -> None:
    assert call(tool(Shop().plain), item="ab") == 5
    made = tool(Shop())
    assert (made.name, made.description, made.is_async) == ("Shop", "Ask the shop.", True)
    assert props(made)["item"]["description"] == "What for."


def test_partial_needs_a_name_and_hides_what_it_fixes() -> None:
    short = functools.partial(google, days=1)
    with pytest.raises(ToolDefinitionError, match=r"no name of its own: write tool\(name="):
        tool(short)
    made = tool(name="today")(short)
    assert (made.name, made.description) == ("today", "Tell the weather.")
    assert list(props(made)) == ["city"]
    assert call(made, city="Oslo") == "Oslo 1"
    with pytest.raises(ArgumentError, match="days: no such argument"):
        made.bind({"city": "Oslo", "days": 2})


def test_lambda() -> None:
    with pytest.raises(ToolDefinitionError, match="a lambda has no name"):
        tool(lambda: 1)
    assert tool(name="one")(lambda: 1).bind({})() == 1


def no_hint(city, days=3):  # pyright: ignore
    ...


@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        (Any, "may be anything"),
        (object, "may be anything"),
        (list[Any], "an item of parameter 'x' of tool 'f' may be anything"),
        (list, "an item of parameter 'x'"),
        (dict, r"is a dict of anything.*dict\[str, int\]"),
        (dict[str, Any], "is a dict of anything"),
        (dict[str, list[Any]], "an item of a value of parameter 'x' of tool 'f' may be anything"),
        (list[dict], "an item of .* is a dict"),  # pyright: ignore[reportMissingTypeArgument]
        (Callable[[int], int], "has no JSON form"),
        (Hooked, r"is Hooked, which has no JSON form \(Hooked\.call is a function"),
        (Shop, "has no JSON form"),
        ("Missing", "can't be resolved.*module level"),
        (Annotated[int, Field(alias="y")], "has an alias"),
    ],
)
def test_refused_types(hint: Any, reason: str) -> None:
    def f(x: str) -> None: ...

    f.__annotations__["x"] = hint
    with pytest.raises(ToolDefinitionError, match=reason) as caught:
        tool(f)
    assert "'x'" in str(caught.value) and "'f'" in str(caught.value) and len(str(caught.value)) < 500


def test_refused_deep_inside_of_a_model() -> None:
    class Inner(BaseModel):
        anything: Any

    class Outer(BaseModel):
        inner: list[Inner]

    def f(x: Outer) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"field 'anything' of type 'Inner'.*may be anything"):
        tool(f)


def test_refused_callables() -> None:
    def counting(n: int) -> Any:
        yield n

    with pytest.raises(
        ToolDefinitionError, match=r"parameter 'city' of tool 'f' has no annotation: .*`city: str`"
    ):
        tool(name="f")(no_hint)  # pyright: ignore
    with pytest.raises(ToolDefinitionError, match="is a generator: return a list"):
        tool(counting)
    with pytest.raises(ToolDefinitionError, match="is a class"):
        tool(Point)
    with pytest.raises(ToolDefinitionError, match="is a tool already"):
        tool(tool(google))
    wrong: Any = 3
    with pytest.raises(ToolDefinitionError, match="can't be called"):
        tool(wrong)
    with pytest.raises(ToolDefinitionError):
        tool(math.sqrt)
    with pytest.raises(ToolDefinitionError, match="Field as its default"):

        @tool
        def misused(n: int = Field(1, ge=0)) -> None: ...


@pytest.mark.parametrize("name", ["a", "_", "math.factorial", "get-weather_2", "x" * 64])
def test_names(name: str) -> None:
    assert tool(name=name)(google).name == name


@pytest.mark.parametrize("name", ["", "1a", "a b", "é", "x" * 65, ".a", "a\n", "a/b", "final_answer"])
def test_refused_names(name: str) -> None:
    with pytest.raises(ToolDefinitionError):
        tool(name=name)(google)


@pytest.mark.parametrize(
    "options", [{"retries": -1}, {"timeout": 0}, {"timeout": math.nan}, {"max_calls": 0}]
)
def test_refused_options(options: dict[str, Any]) -> None:
    with pytest.raises(ToolDefinitionError, match=next(iter(options))):
        tool(**options)(google)


def test_duplicate_names() -> None:
    with pytest.raises(ToolDefinitionError, match="two tools are called 'google'"):
        tools_by_name([tool(google), tool(google)])
    with pytest.raises(ToolDefinitionError, match="decorate it with @tool"):
        tools_by_name([google])  # pyright: ignore[reportArgumentType]
    assert list(tools_by_name([tool(numpy), tool(google)])) == ["numpy", "google"]


def test_parameter_names_that_models_stumble_over() -> None:
    def f(copy: int, json: str, schema: str, model_config: int, _x: int, validate: int, cls: int) -> object:
        return copy, json, schema, model_config, _x, validate, cls

    made = tool(f)
    names = ["copy", "json", "schema", "model_config", "_x", "validate", "cls"]
    assert list(props(made)) == names
    assert made.bind(dict(zip(names, [1, "a", "b", 2, 3, 4, 5], strict=True)))() == (1, "a", "b", 2, 3, 4, 5)


def test_tagged_union_and_property_called_title() -> None:
    def draw(
        shape: Annotated[Circle | Square, Field(discriminator="kind")], pair: Pair, size: Size
    ) -> object:
        return shape, pair, size

    made = tool(draw)
    assert props(made)["shape"] == {"anyOf": [{"$ref": "#/$defs/Circle"}, {"$ref": "#/$defs/Square"}]}
    defs: Any = made.schema["$defs"]
    assert list(defs["Square"]["properties"]) == ["kind", "title"]
    got = call(made, shape={"kind": "square", "title": "t"}, pair={"key": "k", "value": 1}, size=[2])
    assert got == (Square(kind="square", title="t"), {"key": "k", "value": 1}, Size(2))


def test_validation_is_strict_and_names_each_argument() -> None:
    def f(n: int, x: float, flag: bool = False, tree: Branch | None = None) -> object:
        return n, x, flag, tree

    made = tool(f)
    assert call(made, n=1, x=2) == (1, 2.0, False, None)
    with pytest.raises(ArgumentError) as caught:
        made.bind({"n": True, "flag": 1, "tree": {"label": 5}, "extra": None})
    text = str(caught.value)
    for part in (
        "n: ",
        "x: missing",
        "flag: ",
        "tree.label: ",
        "extra: no such argument",
        "not true",
        "not 1",
        "not 5",
    ):
        assert part in text
    with pytest.raises(ArgumentError, match=r"valid integer, not 3\.0"):
        made.bind({"n": 3.0, "x": 1})


@pytest.mark.parametrize("arguments", [None, "", "null", [], 5, [1]])
def test_arguments_that_are_no_object(arguments: object) -> None:
    with pytest.raises(ArgumentError, match="must be a JSON object"):
        tool(google).bind(arguments)


@pytest.mark.parametrize("city", ["\ud800", "\0", "💶", "x" * 100_000])
def test_odd_strings_never_crash(city: str) -> None:
    made = tool(google)
    try:
        assert call(made, city=city) == f"{city} 3"
    except ArgumentError as e:
        str(e).encode()


def test_arguments_that_are_no_json() -> None:
    ring: list[object] = []
    ring.append(ring)
    for bad in (ring, 10**5000):
        with pytest.raises(ArgumentError):
            tool(google).bind({"city": bad})


def test_mutable_defaults_are_the_functions_own() -> None:
    default: list[str] = ["a"]

    def f(tags: list[str] = default) -> list[str]:
        return tags

    made = tool(f)
    assert call(made) is default
    assert props(made)["tags"]["default"] == ["a"]


def test_wrapped_functions_keep_their_signature() -> None:
    @functools.wraps(google)
    def wrapper(*args: Any, **kwargs: Any) -> str:
        return google(*args, **kwargs).upper()

    made = tool(wrapper)
    assert made.schema == FORECAST
    assert call(made, city="Oslo") == "OSLO 3"


def test_schemas_are_the_same_in_every_process() -> None:
    code = (
        "import json, typing; from agentree.tools import calculator, result_text, tool\n"
        "S = {'p', 'q', 'r', 's'}\n"
        "def f(a: typing.Literal['x', 'y'], *b: str, c: set[str] | None = S, d: set[str] = S): return None\n"
        "print(json.dumps([calculator.schema, tool(f).schema]), result_text({'p', 'q', 'r'}))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1


# What the schema allows, the function takes; what it doesn't, is refused.

TYPES: list[Any] = [
    str, int, float, bool, None, Unit, Point, Circle, Pair, Branch, Size,
    list[int], tuple[int, str], int | str, Point | None, Literal["a", 1], list[Literal["a"] | None],
    Annotated[int, Field(ge=-2, lt=3)], Annotated[str, Field(min_length=1, max_length=2)],
    Annotated[list[bool], Field(min_length=1, max_length=2)],
]  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-4, 4)
    | st.sampled_from([0.5, -2.25, "", "a", "abc", "circle", "celsius", "x"])
)
KEYS = st.sampled_from(["x", "y", "kind", "radius", "label", "below", "key", "value"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"v": VALUES}, optional={"w": SCALARS, "z": SCALARS}
)


@settings(max_examples=300)
@given(st.sampled_from(TYPES), st.data())
def test_schema_and_validation_agree(hint: Any, data: st.DataObject) -> None:
    def f(v: str, w: str = "") -> object:
        return v

    f.__annotations__["v"] = hint
    made = tool(f)
    _check_subset(made.schema)
    jsonschema.Draft202012Validator.check_schema(made.schema)
    arguments: dict[str, Any] = data.draw(ARGUMENTS)
    lenient = hint == Literal["a", 1] and arguments["v"] is True  # pydantic compares literals with ==
    legal = jsonschema.Draft202012Validator(made.schema).is_valid(arguments)
    try:
        made.bind(arguments)
    except ArgumentError:
        assert not legal
    else:
        assert legal or _only_closed(made.schema, arguments) or lenient


def _only_closed(schema: Any, arguments: Any) -> bool:
    """Whether all that a schema minds is a superfluous key in a nested object, which a model may ignore."""
    opened = json.loads(json.dumps(schema).replace('"additionalProperties": false', '"deprecated": false'))
    opened["additionalProperties"] = False
    return jsonschema.Draft202012Validator(opened).is_valid(arguments)


def _check_subset(schema: Any) -> None:
    assert set(schema) <= {*KEYWORDS, "$defs"}
    assert list(schema) == [k for k in (*KEYWORDS, "$defs") if k in schema]
    assert schema.get("format", "date") in FORMATS
    children = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    children += [*schema.get("anyOf", []), *schema.get("prefixItems", [])]
    children += [schema["items"]] if "items" in schema else []
    for child in children:
        _check_subset(child)
