"""What a program can hold without a journal it can hold with one: types of outputs, states and answers."""

import enum
import re
import sys
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from exactly import difference
from journal_harness import Stop, echo, once
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, computed_field

from agentree.errors import GraphError, JournalError
from agentree.graph import Ctx, Graph, Program
from agentree.graph.journal.unstorable import Unstorable
from agentree.graph.journal.values import Values
from agentree.graph.journal.writing import DEEPEST
from agentree.messages import Message, user
from agentree.testing import ScriptedRuntime

pytestmark = pytest.mark.anyio


class Pair(enum.Enum):
    ONE = (1, "one")
    TWO = (2, "two")


class Options(TypedDict):
    name: str
    levels: list[int]


class Reading(BaseModel):
    value: float = 0.0
    raw: bytes = b""
    text: str = ""
    pair: Pair = Pair.ONE
    exact: Decimal = Decimal(0)


@dataclass
class Gauge:
    value: float = 0.0
    limits: tuple[float, float] = (0.0, 1.0)


class Answer(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    place: str = Field(alias="where-it-is")
    price: Annotated[int, Field(ge=0, validation_alias="cost")] = 0

    @computed_field
    @property
    def loud(self) -> str:
        return self.place.upper()


def checked(value: int) -> int:
    return value


def relay(form: Any, value: Any, seen: list[Any], state: Any = None) -> Program[Any, str, str]:
    """One step gives a value, the next one takes it; the run can be stopped between them."""
    g: Any = Graph("relay", state=state, input=str, output=str)

    async def give(ctx: Ctx[Any], text: str) -> Any:
        return value() if callable(value) else value

    async def take(ctx: Ctx[Any], given: Any) -> str:
        seen.append(given)
        if len(seen) == 1:
            raise Stop
        return "taken"

    give.__annotations__["return"] = take.__annotations__["given"] = form
    first, last = g.step(give), g.step(take)
    g.edge(g.start, first)
    g.edge(first, last)
    g.edge(last, g.end)
    return g.compile()


def surprising() -> Reading:
    made = Reading(raw=b"\xff\xfe", text="\ud800", pair=Pair.TWO)
    made.value, made.exact = 3, Decimal("NaN")
    return made


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (Annotated[int, Field(ge=1)], 3),
        (list[Annotated[str, Field(max_length=3)]], ["a", "b"]),
        (
            dict[str, Annotated[list[Annotated[int, AfterValidator(checked)]], Field(min_length=1)]],
            {"a": [1]},
        ),
        (Options, {"name": "a", "levels": [1]}),
        (list[Options] | None, [{"name": "a", "levels": [1]}]),
        (Reading, surprising()),
        (Gauge, Gauge(3, (0, 1))),
        (Pair, Pair.TWO),
        (Answer, Answer.model_validate({"place": "here", "cost": 3})),
        (float | Decimal | int, Decimal("sNaN")),
    ],
    ids=lambda one: re.sub(r" at 0x[0-9a-f]+", "", str(one)),  # the same in every process
)
async def test_outputs_of_any_type_survive(journal: Path, form: Any, value: Any) -> None:
    seen: list[Any] = []
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(Stop):
            await relay(form, value, seen).run("x", lm=lm, journal=journal, run_id="a")
        assert await relay(form, value, seen).resume("a", lm=lm, journal=journal) == "taken"
    assert difference(seen[1], seen[0]) is None


async def test_a_typed_dict_is_a_state(journal: Path) -> None:
    stop = once()
    g = Graph("dicts", state=Options, input=str, output=str)

    @g.step
    async def change(ctx: Ctx[Options], text: str) -> str:
        ctx.state["levels"].append(2)
        return text

    @g.step
    async def look(ctx: Ctx[Options], text: str) -> str:
        stop()
        return f"{ctx.state}"

    g.edge(g.start, change)
    g.edge(change, look)
    g.edge(look, g.end)
    program, state = g.compile(), Options(name="a", levels=[1])
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(Stop):
            await program.run("x", lm=lm, state=state, journal=journal, run_id="a")
        assert await program.resume("a", lm=lm, journal=journal) == "{'name': 'a', 'levels': [1, 2]}"
        with pytest.raises(GraphError, match="has state Options, not list"):
            await program.run("x", lm=lm, state=[])  # pyright: ignore[reportArgumentType]
        with pytest.raises(GraphError, match=r"has state Options, .*'levels'"):
            await program.run("x", lm=lm, state={"name": "a"})  # pyright: ignore[reportArgumentType]


async def test_a_model_with_aliases_answers(journal: Path) -> None:
    stop, said = once(), list[Answer]()
    g = Graph("answers", input=str, output=str)

    @g.llm(Answer, max_tokens=100)
    def ask(ctx: Ctx, text: str) -> Message:
        return user(text)

    @g.step
    async def tell(ctx: Ctx, answer: Answer) -> str:
        said.append(answer)
        stop()
        return f"{answer.loud} {answer.price}"

    g.edge(g.start, ask)
    g.edge(ask, tell)
    g.edge(tell, g.end)
    program = g.compile()
    async with ScriptedRuntime({"ask": '{"where-it-is": "there", "cost": 3}'}) as lm:
        with pytest.raises(Stop):
            await program.run("x", lm=lm, journal=journal, run_id="a")
        assert await program.resume("a", lm=lm, journal=journal) == "THERE 3"
    assert difference(said[1], said[0]) is None


async def test_the_field_is_named_that_can_not_be_stored(journal: Path) -> None:
    @dataclass
    class Loose:
        parts: dict[str, Any] = field(default_factory=dict[str, Any])

    program = relay(Loose, lambda: Loose({"a": [1, object()]}), [])
    async with ScriptedRuntime({}) as lm:
        why = r"node 'give' gave what a journal can't store: .* type object, .*at Loose\.parts\['a'\]\[1\]: "
        with pytest.raises(JournalError, match=why):
            await program.run("x", lm=lm, journal=journal)


# --------------------------------------------------------------------------------- changed programs


def boxes(name: str, **fields: Any) -> Any:
    made = type(name, (), {"__annotations__": {k: v[0] for k, v in fields.items()}, "__qualname__": name})
    for key, (_, *default) in fields.items():
        if default:
            setattr(made, key, default[0])
    return dataclass(made)


async def test_types_that_changed_are_read_as_far_as_they_fit(journal: Path) -> None:
    before = boxes("Box", x=(int,), gone=(str, "a"))
    async with ScriptedRuntime({}) as lm:
        for run in ("a", "b", "c", "d"):
            with pytest.raises(Stop):
                await relay(before, before(1, "b"), []).run("x", lm=lm, journal=journal, run_id=run)

        async def resumed(run: str, form: Any, **how: Any) -> Any:
            seen: list[Any] = [None]
            await relay(form, None, seen).resume(run, lm=lm, journal=journal, **how)
            return seen[1]

        after = boxes("Box", x=(int,), new=(list[int], field(default_factory=list[int])))
        with pytest.raises(JournalError, match="has changed since run 'a' began"):
            await resumed("a", after)
        assert await resumed("a", after, changed="accept") == after(1)
        with pytest.raises(JournalError, match=r"type Box that was written before it had 'new': .*default"):
            await resumed("b", boxes("Box", x=(int,), new=(int,)), changed="accept")
        with pytest.raises(JournalError, match=r"type Box whose 'x' .*now"):
            await resumed("c", boxes("Box", x=(str,)), changed="accept")
        assert (await resumed("d", boxes("Box", x=(float,)), changed="accept")).x == 1


@dataclass
class Deep:
    inner: Any = None


async def test_the_deepest_values_are_read_wherever_they_were_written(journal: Path) -> None:
    def nested(levels: int, wrap: Callable[[Any], Any]) -> Any:
        found: Any = 1
        for _ in range(levels):
            found = wrap(found)
        return found

    wraps: list[Callable[[Any], Any]] = [
        Deep,
        lambda value: [value],
        lambda value: {"a": value},
        lambda value: {1: value},
        lambda value: (value,),
        lambda value: OrderedDict({"a": value}),
        lambda value: deque([value]),
    ]
    async with ScriptedRuntime({}) as lm:
        for i, wrap in enumerate(wraps):
            seen: list[Any] = []
            value = nested(DEEPEST, wrap)
            with pytest.raises(Stop):
                await relay(Any | Deep, value, seen).run("x", lm=lm, journal=journal, run_id=f"r{i}")
            await relay(Any | Deep, value, seen).resume(f"r{i}", lm=lm, journal=journal)
            assert type(seen[1]) is type(value)
            deeper = nested(DEEPEST + 1, wrap)
            with pytest.raises(JournalError, match=f"nested more than {DEEPEST} levels deep"):
                await relay(Any | Deep, deeper, seen).run("x", lm=lm, journal=journal)


async def test_where_the_stack_ends_a_value_is_refused(journal: Path) -> None:
    def called_deep(levels: int, call: Callable[[], Any]) -> Any:
        return call() if levels == 0 else called_deep(levels - 1, call)

    values = Values([("a", Deep)])
    value: Any = Deep()
    for _ in range(90):
        value = Deep(value)
    written = values.write(value)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(500)
    try:
        with pytest.raises(Unstorable, match="a deep value of type Deep: little is left"):
            called_deep(200, lambda: values.write(value))
        with pytest.raises(Unstorable, match="a deep value: little is left"):
            called_deep(200, lambda: values.read(written, empty=None))
    finally:
        sys.setrecursionlimit(limit)


@dataclass
class Shape:
    sides: int = 0


@dataclass
class Square(Shape):
    length: float = 1.0


@dataclass
class Drawing:
    shape: Shape | None = None


async def test_classes_that_only_values_name_do_not_change_the_program(journal: Path) -> None:
    seen: list[Any] = []
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(Stop):
            program = relay(Shape, Square(4, 2.0), seen, Drawing)
            await program.run("x", lm=lm, state=Drawing(Square(4)), journal=journal, run_id="a")
        await relay(Shape, Square(4, 2.0), seen, Drawing).resume("a", lm=lm, journal=journal)
    assert seen == [Square(4, 2.0)] * 2


class Plain:
    """A class that says nothing of what is in it."""


@dataclass
class Holds:
    plain: Plain | None = None


@dataclass
class Sealed:
    secret: SecretStr | None = None


class Account(BaseModel):
    key: SecretStr = SecretStr("")


class Accounts(BaseModel):
    by_name: dict[str, list[Account | None]] = Field(default_factory=dict[str, list[Account | None]])


@dataclass
class Nested:
    accounts: "Accounts | None" = None


class Given(TypedDict, total=False):
    many: list[tuple[int, Plain | None]]


class Base(ABC):
    @abstractmethod
    def act(self) -> None: ...


@dataclass
class Partial(Base):
    plain: Plain | None = None


@dataclass
class HoldsPartial:
    part: Partial | None = None


class Annotations(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    plain: Annotated[Plain | None, Field(description="x")] = None
    _hidden: int = 0


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, SecretStr]  # pyright: ignore[reportIncompatibleVariableOverride]


SECRET = "a file is no place for secrets: let functions get it from where it is kept"
PLAIN = "use a dataclass or a pydantic model of plain values"


@pytest.mark.parametrize(
    ("form", "why"),
    [
        (Holds, rf"type Holds, and a journal can't store values of Plain \(plain\): {PLAIN}"),
        (Sealed, rf"type Sealed, and a journal can't store values of SecretStr \(secret\): {SECRET}"),
        (Account, rf"type Account, and .* values of SecretStr \(key\): {SECRET}"),
        (Accounts, rf"type Accounts, and .* values of SecretStr \(by_name\.key\): {SECRET}"),
        (Nested, rf"type Nested, and .* values of SecretStr \(accounts\.by_name\.key\): {SECRET}"),
        (Given, rf"type Given, and .* values of Plain \(many\): {PLAIN}"),
        (HoldsPartial, rf"type HoldsPartial, and .* values of Plain \(part\.plain\): {PLAIN}"),
        (Extra, rf"type Extra, and .* values of SecretStr \(__pydantic_extra__\): {SECRET}"),
        (Annotations, rf"type Annotations, and .* values of Plain \(plain\): {PLAIN}"),
    ],
)
async def test_no_step_runs_where_a_type_can_not_be_stored(journal: Path, form: Any, why: str) -> None:
    effects: list[str] = []

    def act(ctx: Ctx[Any], text: str) -> Any:
        effects.append(text)
        return form()

    programs: list[tuple[str, Program[Any, str, Any]]] = [
        ("the state of program 'echo'", echo(state=form, fn=act)),
        ("node 'say'", echo(out=form | None, fn=act)),
    ]
    async with ScriptedRuntime({}) as lm:
        for place, program in programs:
            told = why if place.startswith("the state") else why.replace(f"type {form.__name__},", "type .*,")
            with pytest.raises(JournalError, match=f"{place} has the {told}"):
                await program.run("x", lm=lm, journal=journal)
    assert not effects
    assert not journal.exists()
