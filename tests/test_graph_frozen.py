"""What the branches of a fork see of a state: all of it, and nothing that they could change."""

import copy
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import pytest

from agentree.errors import GraphError
from agentree.graph import Ctx, Graph, collect
from agentree.graph.frozen import freeze
from agentree.graph.journal.values import Values
from agentree.testing import ScriptedRuntime


@dataclass(frozen=True, slots=True)
class Fixed:
    pages: list[str]
    title: str = field(init=False)


@dataclass(slots=True)
class Loose:
    pages: list[str]
    title: str = field(init=False)


@dataclass(slots=True)
class Hidden(Loose):
    __own: list[str] = field(default_factory=list[str])  # pyright: ignore[reportGeneralTypeIssues]

    def own(self) -> list[str]:
        return self.__own


class Pages(list[Any]):
    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = title
        self.notes: list[str] = []

    def last(self) -> Any:
        return self[-1]


class Names(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return f"<{key}>"


class Pair(NamedTuple):
    left: list[int]
    right: list[int]


@pytest.mark.parametrize("cls", [Fixed, Loose, Hidden])
def test_slots_that_are_not_set_stay_so(cls: Any) -> None:
    frozen = freeze(cls(["a"]))
    assert frozen.pages == ["a"]
    assert not hasattr(frozen, "title")
    with pytest.raises(GraphError, match="read-only inside a fork"):
        frozen.pages.append("b")
    with pytest.raises((GraphError, AttributeError)):
        frozen.title = "b"


def test_slots_of_hidden_names_are_read_only_too() -> None:
    made = Hidden(["a"])
    made.own().append("b")
    frozen = freeze(made)
    assert frozen.own() == ["b"]
    with pytest.raises(GraphError, match="read-only"):
        frozen.own().append("c")


@pytest.mark.anyio
async def test_a_branch_reads_a_state_with_a_field_that_is_not_set() -> None:
    g: Any = Graph("unset", state=Fixed, input=str, output=list[str])

    async def begin(ctx: Ctx[Any], text: str) -> str:
        return text

    async def look(ctx: Ctx[Any], text: str) -> str:
        return f"{ctx.state.pages} {hasattr(ctx.state, 'title')}"

    first, second = g.step(begin), g.step(look)
    g.edge(g.start, first)
    g.edge(g.join(g.fork(first, second), collect(str)), g.end)
    async with ScriptedRuntime({}) as lm:
        assert await g.compile().run("x", lm=lm, state=Fixed(["a"])) == ["['a'] False"]


def test_what_is_read_of_a_counter() -> None:
    frozen: Any = freeze(Counter("aab"))
    assert frozen["z"] == 0
    assert "z" not in frozen
    assert frozen.most_common(1) == [("a", 2)]
    assert (frozen + Counter("a"))["a"] == 3
    assert frozen == Counter("aab")
    assert isinstance(frozen, Counter)
    changed = cast("Any", frozen).copy()
    changed["z"] += 1
    assert "z" not in frozen


def test_what_is_read_of_a_defaultdict() -> None:
    frozen = freeze(defaultdict(list[int], {"a": [1]}))
    assert frozen["a"] == [1]
    assert frozen["z"] == []
    assert list(frozen) == ["a"], "reading keeps nothing"
    with pytest.raises(GraphError, match="read-only"):
        frozen["z"].append(1)
    with pytest.raises(KeyError):
        freeze(defaultdict(None, {"a": 1}))["z"]
    changed = frozen.copy()
    changed["z"].append(1)
    assert changed == {"a": [1], "z": [1]}


KINDS: list[Any] = [Counter("aab"), defaultdict(int, a=1), OrderedDict(a=1), deque([1], 3)]


def test_containers_of_a_class_of_their_own_keep_what_it_adds() -> None:
    pages = Pages("A book")
    pages += [["one"], ["two"]]
    frozen = freeze(pages)
    assert (frozen.last(), frozen.title, frozen.notes) == (["two"], "A book", [])
    with pytest.raises(GraphError, match="read-only"):
        frozen.title = "Another"
    with pytest.raises(GraphError, match="read-only"):
        frozen.notes.append("x")
    assert freeze(Names(a="b"))["z"] == "<z>"
    ordered = OrderedDict[str, int](a=1, b=2)
    ordered.move_to_end("a")
    assert list(freeze(ordered)) == ["b", "a"]
    assert freeze(deque([1, 2], 2)) == deque([1, 2])
    with pytest.raises(GraphError, match="read-only"):
        freeze(Pair([1], [2])).left.append(3)


CHANGES: list[tuple[Any, Callable[[Any], Any]]] = [
    (Counter("a"), lambda c: c.update("a")),
    (Counter("a"), lambda c: c.subtract("a")),
    (Counter("a"), lambda c: c.__iadd__(Counter("a"))),
    (Counter("a"), lambda c: c.__setitem__("a", 1)),
    (defaultdict(list[int]), lambda d: d.setdefault("a", [])),
    (OrderedDict(a=1, b=2), lambda d: d.move_to_end("a")),
    (OrderedDict(a=1, b=2), lambda d: d.popitem()),
    (deque([1]), lambda d: d.appendleft(1)),
    (deque([1]), lambda d: d.rotate(1)),
    (deque([1]), lambda d: d.__imul__(2)),
    (Pages("a"), lambda p: p.append("x")),
    (Pages("a"), lambda p: p.sort()),
]


@pytest.mark.parametrize(("value", "change"), CHANGES)
def test_nothing_changes_them(value: Any, change: Callable[[Any], Any]) -> None:
    frozen = freeze(value)
    with pytest.raises(GraphError, match="read-only"):
        change(frozen)
    assert frozen == value


@pytest.mark.parametrize("value", [*KINDS, Names(a="b"), Pages("a")])
def test_a_journal_has_them_as_what_they_are_copies_of(value: Any) -> None:
    values = Values([("a", Names), ("b", Pages)])
    assert values.write(freeze(value)) == values.write(value)
    back = values.read(values.write(freeze(value)), empty=None)
    assert type(back) is type(value)
    assert back == value


@pytest.mark.parametrize("value", KINDS)
def test_their_copies_can_be_changed(value: Any) -> None:
    made = copy.copy(freeze(value))
    assert type(made) is type(value)
    assert made == value
    made.clear()
    assert not made
