"""Arguments that are none: each is refused by name, with what to write, before anything is computed."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
from lm_scripted import Scripted, scripted
from pydantic import BaseModel

from agentree.errors import ConstraintError, InvalidArgument
from agentree.lm import Runtime
from agentree.lm.arguments import shown
from agentree.messages import Message, raw, user
from agentree.runtime.constraint import Choice, JSONSchema, Regex

NAN, INFINITE = float("nan"), float("inf")

GENERATING: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": 0}, r"max_tokens=0 .* at least 1"),
    ({"max_tokens": -3}, "max_tokens=-3"),
    ({"max_tokens": 1.5}, r"max_tokens=1\.5 is no whole number"),
    ({"max_tokens": 8.0}, r"max_tokens=8\.0 is no whole number"),
    ({"max_tokens": "10"}, "max_tokens='10' is no whole number"),
    ({"max_tokens": True}, "max_tokens=True is no whole number"),
    ({"max_tokens": None}, "max_tokens=None"),
    ({"temperature": NAN}, "temperature=nan is no finite number"),
    ({"temperature": INFINITE}, "temperature=inf is no finite number"),
    ({"temperature": 10**400}, "temperature=1000.*… is no finite number"),
    ({"temperature": -0.1}, r"temperature=-0\.1 is below 0: 0 is greedy"),
    ({"temperature": "hot"}, "temperature='hot'"),
    ({"temperature": None}, "temperature=None"),
    ({"temperature": True}, "temperature=True"),
    ({"temperature": 1j}, "temperature=1j"),
    ({"top_p": 0.0}, r"top_p=0\.0 is out of range: it must lie above 0"),
    ({"top_p": -1}, r"top_p=-1\.0"),
    ({"top_p": 1.001}, r"top_p=1\.001"),
    ({"top_p": NAN}, "top_p=nan"),
    ({"top_p": "all"}, "top_p='all'"),
    ({"stop": "END"}, r"stop='END' is no list: write stop=\['END'\]"),
    ({"stop": b"END"}, r"stop=b'END' is no list: write stop=\['END'\]"),
    ({"stop": None}, r"stop=None is no list: write stop="),
    ({"stop": 5}, r"stop=5 is no list"),
    ({"stop": [1]}, r"stop\[0\]=1 is no string"),
    ({"stop": ["x", b"a"]}, r"stop\[1\]=b'a' is no string: write stop=\['a'\]"),
    ({"stop": ["x", ""]}, r"stop\[1\] is an empty string"),
    ({"stop": ["\ud800"]}, r"stop\[0\]='\\ud800' has a lone surrogate"),
    ({"seed": 1.5}, r"seed=1\.5 is no whole number"),
    ({"seed": "x"}, "seed='x' is no whole number"),
    ({"seed": -1}, r"seed=-1 is out of range: .*2\*\*63"),
    ({"seed": 2**63}, "seed=9223372036854775808 is out of range"),
    ({"seed": 10**5000}, "seed=<int> is out of range"),
    ({"seed": True}, "seed=True"),
]
"""What `gen` and `stream` are given, and what is said."""


@pytest.mark.parametrize(("options", "words"), GENERATING)
@pytest.mark.asyncio
async def test_gen_refuses(options: dict[str, Any], words: str) -> None:
    made = scripted()
    start = made.empty + user("Go")
    with pytest.raises(InvalidArgument, match=words):
        await start.gen(str, **options)
    if "top_p" not in options:
        with pytest.raises(InvalidArgument, match=words):
            start.stream(str, **options)
    async with start.fork(2) as kids:
        with pytest.raises(InvalidArgument, match=words):
            await kids.gen(str, **options)
    if options.keys() <= {"max_tokens", "temperature"}:
        with pytest.raises(InvalidArgument, match=words):
            await start.call([], output=str, **options)
    assert not made.engine.waves


@pytest.mark.parametrize("think", [-1, 1.5, "10", None, True])
@pytest.mark.asyncio
async def test_think_refuses(think: Any) -> None:
    made = scripted()
    with pytest.raises(InvalidArgument, match=rf"think={think!r} .* tokens before the value"):
        await (made.empty + user("Go")).gen(int, think=think)
    assert not made.engine.waves


@pytest.mark.asyncio
async def test_numbers_of_other_kinds_are_taken_as_what_they_are() -> None:
    made = scripted()
    start: Any = made.empty + user("Go")
    said = await start.gen(
        str, max_tokens=np.int64(9), temperature=np.float32(0.5), top_p=Fraction(1, 2), seed=np.uint8(3)
    )
    (request,) = made.engine.requests
    sampling = request.sampling
    given = (request.max_tokens, sampling.temperature, sampling.top_p, sampling.seed)
    assert given == (9, 0.5, 0.5, 3) and [type(n) for n in given] == [int, float, float, int]
    assert type(said.seed) is int
    with pytest.raises(InvalidArgument, match=r"Decimal\('0.5'\)"):
        await start.gen(str, temperature=Decimal("0.5"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kv_tokens": "4096"}, "kv_tokens='4096' is no whole number: .* leave it out"),
        ({"kv_tokens": 0}, "kv_tokens=0 is out of range"),
        ({"kv_tokens": 4096.0}, r"kv_tokens=4096\.0"),
        ({"kv_tokens": True}, "kv_tokens=True"),
        ({"max_batch_tokens": "512"}, "max_batch_tokens='512'"),
        ({"max_batch_tokens": 0}, "max_batch_tokens=0"),
        ({"max_batch_tokens": -5}, "max_batch_tokens=-5"),
        ({"max_batch_tokens": 1.5}, r"max_batch_tokens=1\.5"),
        ({"seed": "x"}, "seed='x'"),
        ({"seed": 1.5}, r"seed=1\.5"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**63}, "seed="),
        ({"seed": None}, "seed=None"),
        ({"gpu_memory_fraction": "0.9"}, "gpu_memory_fraction='0.9'"),
        ({"gpu_memory_fraction": NAN}, "gpu_memory_fraction=nan"),
        ({"gpu_memory_fraction": 0}, r"gpu_memory_fraction=0\.0"),
        ({"gpu_memory_fraction": 1.1}, r"gpu_memory_fraction=1\.1"),
        ({"eviction": "fifo"}, "eviction='fifo' must be 'plan' or 'lru'"),
        ({"eviction": ["lru"]}, r"eviction=\['lru'\]"),
        ({"jump_forward": "no"}, "jump_forward='no' must be True or False"),
        ({"model": 5}, "model=5 names no model: give a catalogue name"),
        ({"model": ""}, "model='' names no model"),
        ({"model": None}, "model=None"),
    ],
)
def test_runtime_refuses(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Runtime(**options)


@pytest.mark.parametrize(
    ("role", "text", "words"),
    [
        ("user", 5, r"text=5 is no string: .* str\(\.\.\.\)"),
        ("user", None, "text=None"),
        ("user", b"x", "text=b'x'"),
        ("user", ["x"], r"text=\['x'\]"),
        ("bogus", "x", "role='bogus' is none: it is one of 'system', 'user', 'assistant', 'tool', 'raw'"),
        (["user"], "x", r"role=\['user'\]"),
        (None, "x", "role=None"),
    ],
)
def test_a_message_refuses(role: Any, text: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Message(role, text)
    if role == "user":
        with pytest.raises(InvalidArgument, match=words):
            user(text)


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ("hello", r"'hello' is no message: write user\('hello'\)"),
        ("", r"write user\(''\)"),
        (["hello"], r"'hello' is no message: write user\('hello'\)"),
        (None, r"None is no message: write user\(\.\.\.\)"),
        (5, "5 is no message"),
        (b"hello", "104 is no message"),
        ([user("a"), 5], "5 is no message"),
        ([[user("a")]], r"is no message: pass its members"),
    ],
)
def test_what_is_added_must_be_messages(added: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        _ = scripted().empty + added


@pytest.mark.asyncio
async def test_a_generation_or_a_transcript_is_no_message() -> None:
    start: Any = scripted().empty + user("Go")
    for added in (await start.gen(str), start):
        with pytest.raises(InvalidArgument, match=r"is no message: go on from a generation's transcript"):
            _ = start + added


async def _score(made: Scripted, value: Any) -> None:
    await (made.empty + user("Go")).score(value)


async def _fork(made: Scripted, value: Any) -> None:
    async with made.empty.fork(value):
        pass


async def _fork_each(_made: Scripted, value: Any) -> None:
    async with Runtime().fork([], each=value):
        pass


async def _fork_beam(_made: Scripted, value: Any) -> None:
    async with Runtime().fork(value):
        pass


async def _keep(made: Scripted, value: Any) -> None:
    async with (made.empty + user("Go")).fork(2) as kids:
        kids.keep(value)


async def _salt(_made: Scripted, value: Any) -> None:
    Runtime().transcript(salt=value)


@pytest.mark.parametrize(
    ("call", "value", "words"),
    [
        (_score, "yes", r"continuations='yes' is no list: write t\.score\(\[\"yes\", \"no\"\]\)"),
        (_score, b"yes", "continuations=b'yes' is no list"),
        (_score, None, "continuations=None"),
        (_score, ["yes", 5], r"continuations\[1\]=5 is no string"),
        (_score, [["yes"]], r"continuations\[0\]=\['yes'\]"),
        (_fork, -1, "n=-1 is out of range: a number of branches"),
        (_fork, "2", "n='2' is no whole number"),
        (_fork, 2.0, r"n=2\.0"),
        (_fork, True, "n=True"),
        (_fork, None, "n=None"),
        (_fork_each, -1, "each=-1"),
        (_fork_each, "2", "each='2'"),
        (_fork_beam, [0], r"beam\[0\]=0 is no transcript: write lm\.fork\(\[t1, t2\]"),
        (_fork_beam, None, "beam=None is no list"),
        (_keep, [0], r"survivors\[0\]=0 is no transcript: write kids\.keep\(\[winner\]\)"),
        (_keep, 0, "survivors=0 is no list"),
        (_keep, "ab", "survivors='ab' is no list"),
        (_salt, 5, "salt=5 is no string: it names the tenant"),
        (_salt, None, "salt=None"),
    ],
)
@pytest.mark.asyncio
async def test_refused(call: Callable[[Scripted, Any], Any], value: Any, words: str) -> None:
    made = scripted()
    with pytest.raises(InvalidArgument, match=words):
        await call(made, value)
    assert not made.engine.waves


@pytest.mark.asyncio
async def test_one_transcript_is_no_list_of_them() -> None:
    t = scripted().empty + user("Go")
    with pytest.raises(InvalidArgument, match=r"beam=<Transcript of .* is no list: write lm\.fork\(\["):
        Runtime().fork(t)  # pyright: ignore[reportArgumentType]
    async with t.fork(2) as kids:
        with pytest.raises(InvalidArgument, match=r"survivors=<Transcript of .* kids\.keep\(\[winner\]\)"):
            kids.keep(kids[0])  # pyright: ignore[reportArgumentType]


@pytest.mark.asyncio
async def test_keep_keeps_nothing_where_one_is_refused() -> None:
    made = scripted()
    start = made.empty + user("Go")
    async with start.fork(1) as outer, outer[0].fork(2) as kids:
        await kids.gen(str)
        before = dict(made.engine.held)
        with pytest.raises(InvalidArgument, match="does not continue a branch"):
            kids.keep([kids[0], start])
        assert made.engine.held == before


class City(BaseModel):
    name: str


@dataclass
class Point:
    x: int


class Color(Enum):
    RED = "red"


class Opaque:
    pass


TYPES: list[tuple[Any, str]] = [
    ({"type": "object"}, r"\{'type': 'object'\} is no type of output: .*write JSONSchema\(\{\.\.\.\}\)"),
    ({}, "write JSONSchema"),
    (City.model_json_schema(), "… is no type of output: .*write JSONSchema"),
    (City(name="x"), r"City\(name='x'\) is no type of output: pass the type itself, City"),
    (Point(1), "pass the type itself, Point"),
    (Color.RED, "pass the type itself, Color"),
    (5, "pass the type itself, int"),
    (True, "pass the type itself, bool"),
    (b"x", "pass the type itself, bytes"),
    ("str", r"'str' is no type of output: write str for free text, Choice\(\[\.\.\.\]\)"),
    ("yes", "write str for free text"),
    (["a", "b"], r"write Choice\(\[\.\.\.\]\)"),
    ({"a", "b"}, r"write Choice"),
    (re.compile("[ab]+"), r"write Regex\('\[ab\]\+'\)"),
    (shown, "a function is called as a tool"),
    (lambda: 3, "a function is called as a tool"),
    (Opaque, "Opaque can't be generated .*make it of pydantic models"),
    (Opaque(), "can't be generated .*make it of pydantic models"),
    (list[Opaque], r"list\[.*Opaque\] can't be generated .*class .*Opaque.*make it of"),
]


@pytest.mark.parametrize(("kind", "words"), TYPES)
@pytest.mark.asyncio
async def test_what_is_no_type(kind: Any, words: str) -> None:
    made = scripted()
    start = made.empty + user("Go")
    for generating in (
        start.gen(kind),
        start.gen(str, kind),
        start.call([], output=kind),
        start.stream(kind).__aenter__(),
    ):
        with pytest.raises(ConstraintError, match=words):
            await generating
    assert not made.engine.waves


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Choice("yes"), r"Choice\('yes'\): write a list of texts"),
        (lambda: Choice(cast("Any", 5)), r"Choice\(5\)"),
        (lambda: Choice(cast("Any", ["a", 1])), r"1 is no string; for other values write Literal"),
        (lambda: Regex(cast("Any", 5)), r"Regex\(5\): a pattern is a string"),
        (lambda: Regex(cast("Any", re.compile("a+"))), r"write Regex\('a\+'\)"),
        (lambda: JSONSchema({}, spacing=cast("Any", "wide")), "spacing='wide' must be 'template'"),
    ],
)
def test_specs_refuse(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        make()


BLOCKS: list[tuple[Callable[[Any], Any], str, str]] = [
    (lambda t: t.fork(2), r"t\.fork\(2\)", "kids"),
    (lambda _t: Runtime().fork([]), r"lm\.fork\(\.\.\.\)", "kids"),
    (lambda t: t.stream(str), r"t\.stream\(\.\.\.\)", "stream"),
    (lambda _t: Runtime().events(), r"lm\.events\(\)", "events"),
]


@pytest.mark.parametrize(("make", "call", "name"), BLOCKS)
@pytest.mark.asyncio
async def test_a_block_that_is_used_without_async_with(
    make: Callable[[Any], Any], call: str, name: str
) -> None:
    made = scripted()
    t = made.empty + user("Go")
    words = f"{call} opens a block: write `async with {call} as {name}:` and use {name}"
    with pytest.raises(InvalidArgument, match=words), make(t):
        pass
    with pytest.raises(InvalidArgument, match=words):
        await make(t)
    with pytest.raises(InvalidArgument, match=words):
        list(make(t))
    with pytest.raises(InvalidArgument, match=words):
        async for _ in make(t):
            pass
    with pytest.raises(InvalidArgument, match=words):
        make(t)[0]
    assert not hasattr(make(t), "__rich__") and not hasattr(make(t), "nothing_of_that_name")
    assert "async with" in repr(make(t))
    assert not made.engine.waves


def test_what_a_block_gives_is_named_where_it_is_used_too_early() -> None:
    t: Any = scripted().empty + user("Go")
    with pytest.raises(InvalidArgument, match=r"and use kids\.gen inside of it"):
        t.fork(2).gen(str)
    with pytest.raises(InvalidArgument, match=r"and use kids\.keep inside of it"):
        t.fork(2).keep([])
    with pytest.raises(InvalidArgument, match=r"and use kids\[0\] inside of it"):
        t.fork(2)[0]
    with pytest.raises(InvalidArgument, match=r"and use stream\.generation inside of it"):
        _ = t.stream(str).generation


def test_values_are_shown_short_and_whatever_they_are() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert shown("x" * 500) == f"'{'x' * 78}…"
    assert shown(Broken()) == "<Broken>"
    assert shown(raw("x")) == repr(raw("x"))
