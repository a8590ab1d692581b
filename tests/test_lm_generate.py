"""gen, call, score, prefill: what is asked of the engine, what is refused, and what the answers mean."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
from lm_scripted import decoded, result, scripted, tokenizer
from pydantic import BaseModel, field_validator

from agentree.errors import (
    ConstraintError,
    ContextOverflow,
    InvalidArgument,
    InvalidValue,
    RuntimeClosed,
    ToolDefinitionError,
)
from agentree.lm import seeds
from agentree.lm.generation import Usage
from agentree.messages import user
from agentree.runtime.constraint import Choice, Regex
from agentree.runtime.request import Request, Result, TokenCounts
from agentree.tools import ToolCall, ToolCalls, tool

pytestmark = pytest.mark.asyncio


class City(BaseModel):
    name: str
    size: int

    @field_validator("name")
    @classmethod
    def no_atlantis(cls, name: str) -> str:
        if name == "Atlantis":
            raise ValueError("sunk")
        return name


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def now() -> str:
    """Tell the time."""
    return "noon"


PARIS = '{"name": "Paris", "size": 3}'


async def test_free_text() -> None:
    made = scripted("Hello!")
    made_of = await (made.empty + user("Hi")).gen(
        str, max_tokens=9, temperature=0.5, top_p=0.9, stop=["\n"], seed=3
    )
    assert (made_of.value, made_of.text, made_of.seed, made_of.finish_reason) == (
        "Hello!",
        "Hello!",
        3,
        "stop",
    )
    (request,) = made.engine.requests
    assert (request.max_tokens, request.stop, request.constraint) == (9, ("\n",), None)
    assert request.end_ids == tokenizer().end_ids
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.seed) == (0.5, 0.9, 3)
    assert made_of.usage.output_tokens == len(tokenizer().encode("Hello!"))
    assert made_of.logprob == -0.5 * made_of.usage.output_tokens


@pytest.mark.parametrize(
    ("types", "text", "value"),
    [
        ((City,), PARIS, City(name="Paris", size=3)),
        ((int,), "42", 42),
        ((Literal["yes", "no"],), "yes", "yes"),
        ((Regex("[ab]+"),), "abba", "abba"),
        ((Choice(["left", "right"]),), "left", "left"),
        ((list[int],), "[1, 2]", [1, 2]),
        ((City, bool), "true", True),
    ],
)
async def test_forced_values(types: tuple[Any, ...], text: str, value: object) -> None:
    made = scripted(text)
    generation = await (made.empty + user("Go")).gen(*types)
    assert generation.value == value and type(generation.value) is type(value)
    assert generation.text == text
    assert made.engine.requests[0].constraint is not None


async def test_equal_types_share_one_constraint() -> None:
    answers = iter(["1", "1", "1", "true"])
    made = scripted(lambda _request: next(answers))
    for kind in (int, int, Literal[1], Literal[True]):
        await (made.empty + user("Go")).gen(kind)
    a, b, c, d = (r.constraint for r in made.engine.requests)
    assert a is b and len({b, c, d}) == 3


async def test_a_value_that_its_type_refuses() -> None:
    text = '{"name": "Atlantis", "size": 1}'
    made = scripted(text)
    with pytest.raises(InvalidValue, match="sunk") as caught:
        await (made.empty + user("Go")).gen(City)
    assert caught.value.text == text
    assert caught.value.transcript.text.endswith(f"assistant\n{text}")
    again = caught.value.transcript + user("Another.")  # pyright: ignore[reportOperatorIssue, reportUnknownVariableType]
    assert len(again) > len(caught.value.transcript.token_ids)  # pyright: ignore[reportUnknownArgumentType]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"top_p": 0.0}, r"top_p=0\.0"),
        ({"top_p": 1.5}, r"top_p=1\.5"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**63}, "seed="),
        ({"think": -1}, "think=-1"),
        ({"think": 5}, r"gen\(str\) is free text"),
        ({"stop": [""]}, "empty string"),
        ({"stop": "END"}, r"stop=\['END'\]"),
    ],
)
async def test_arguments_out_of_range(options: dict[str, Any], words: str) -> None:
    made = scripted()
    with pytest.raises(InvalidArgument, match=words):
        await (made.empty + user("Go")).gen(str, **options)
    assert not made.engine.waves


async def test_stop_goes_with_free_text_only() -> None:
    made = scripted(PARIS)
    with pytest.raises(ValueError, match="City: a forced value ends by itself"):
        await (made.empty + user("Go")).gen(City, stop=["\n"])
    assert not made.engine.waves


async def test_a_budget_below_the_shortest_value() -> None:
    made = scripted(PARIS)
    with pytest.raises(ConstraintError, match=r"max_tokens=3 .*City.* takes (\d+) tokens"):
        await (made.empty + user("Go")).gen(City, max_tokens=3)
    assert not made.engine.waves


async def test_a_type_is_needed() -> None:
    with pytest.raises(InvalidArgument, match=r"t\.gen\(str\)"):
        await scripted().empty.gen()  # pyright: ignore[reportCallIssue]


def thinking(thought: str) -> Callable[[Request], str]:
    return lambda request: PARIS if request.constraint is not None else thought


async def test_thought_comes_first_in_the_same_turn() -> None:
    made = scripted(thinking("Hm, Paris."))
    generation = await (made.empty + user("Go")).gen(City, think=20, seed=5)
    free, forced = made.engine.requests
    assert (free.max_tokens, free.constraint, free.end_ids) == (20, None, tokenizer().end_ids)
    assert decoded(forced).endswith("<|im_start|>assistant\nHm, Paris.\n")
    assert generation.transcript.text.endswith(f"assistant\nHm, Paris.\n{PARIS}")
    assert generation.text == PARIS and generation.seed == forced.sampling.seed == 5
    assert free.sampling.seed == seeds.derive(5, "think")
    usage = generation.usage
    assert usage.cached_tokens is not None and usage.computed_tokens is not None
    assert usage.prompt_tokens == len(free.prompt) + len(forced.prompt)
    assert usage.prompt_tokens == usage.cached_tokens + usage.computed_tokens
    next_turn = (generation.transcript + user("x")).text
    assert next_turn.endswith(f"{PARIS}<|im_end|>\n<|im_start|>user\nx<|im_end|>\n")


@pytest.mark.parametrize(("thought", "shown"), [("", ""), ("line\n", "line\n")])
async def test_thought_is_separated_where_it_must_be(thought: str, shown: str) -> None:
    made = scripted(thinking(thought))
    await (made.empty + user("Go")).gen(City, think=20)
    assert decoded(made.engine.requests[1]).endswith(f"<|im_start|>assistant\n{shown}")


async def test_thought_counts_before_anything_is_computed() -> None:
    made = scripted(thinking("x"))
    with pytest.raises(ContextOverflow, match=r"model's context.* holds 2048 and the KV") as caught:
        await (made.empty + user("Go")).gen(City, think=1900, max_tokens=200)
    assert caught.value.limit == 2048 < caught.value.needed and not made.engine.waves


async def test_seeds_are_drawn_and_recorded() -> None:
    made, same = scripted(), scripted()
    drawn = [(await (made.empty + user("Go")).gen(str)).seed for _ in range(3)]
    assert drawn == [(await (same.empty + user("Go")).gen(str)).seed for _ in range(3)]
    assert len(set(drawn)) == 3 and all(0 <= seed < 2**63 for seed in drawn)
    assert [r.sampling.seed for r in made.engine.requests] == drawn


async def test_a_scope_draws_seeds_of_its_own() -> None:
    from agentree.runtime.request import Scope

    async def drawn(path: str, seed: int) -> list[int]:
        made = scripted()
        await made.empty.gen(str)
        here = made.empty._at(Scope("r", path), seed=seed)
        return [(await (here + user("Go")).gen(str)).seed for _ in range(2)]

    first = await drawn("a", 1)
    assert first == await drawn("a", 1)
    assert len({*first, *(await drawn("b", 1)), *(await drawn("a", 2))}) == 6


@pytest.mark.parametrize("error", [RuntimeError("kernel"), RuntimeClosed("closed")])
async def test_errors_of_the_engine_reach_the_caller(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        await scripted(lambda _request: error).empty.gen(str)


async def test_a_closed_session_says_so() -> None:
    made = scripted()
    start = made.empty + user("Go")
    made.session.close()
    assert made.engine.closed and made.session.stats().pool == 4096
    with pytest.raises(RuntimeClosed, match=r"async with Runtime"):
        await start.gen(str)
    assert (start + user("still a value")).text


async def test_calls_of_tools() -> None:
    made = scripted('{"name": "add", "arguments": {"a": 1, "b": 2}}')
    first = await (made.empty + user("1+2?")).call([add, now], output=str)
    assert first.value == ToolCalls((ToolCall("call_1", "add", {"a": 1, "b": 2}),))
    second = await (first.transcript + user("again")).call([add, now], output=str)
    assert isinstance(second.value, ToolCalls) and second.value.calls[0].id == "call_2"
    branch = await (first.transcript + user("again")).call([add], output=str)
    assert branch.value == second.value


async def test_several_calls_in_one_turn() -> None:
    text = '[{"name": "now", "arguments": {}}, {"name": "add", "arguments": {"a": 1, "b": 2}}]'
    made = scripted(text)
    turn = await (made.empty + user("Go")).call([add, now], output=str, parallel=True)
    assert isinstance(turn.value, ToolCalls)
    assert [(c.id, c.name) for c in turn.value.calls] == [("call_1", "now"), ("call_2", "add")]


@pytest.mark.parametrize(
    ("output", "arguments", "value"),
    [
        (str, '{"answer": "noon"}', "noon"),
        (City, PARIS, City(name="Paris", size=3)),
        (int, '{"answer": 4}', 4),
    ],
)
@pytest.mark.parametrize("tools", [(now,), ()])
async def test_the_final_answer(output: Any, arguments: str, value: object, tools: Any) -> None:
    made = scripted(f'{{"name": "final_answer", "arguments": {arguments}}}')
    turn = await (made.empty + user("Go")).call(tools, output=output)
    assert turn.value == value


async def test_tools_must_be_tools_with_names_of_their_own() -> None:
    start = scripted().empty
    with pytest.raises(ToolDefinitionError, match="two tools are called 'now'"):
        await start.call([now, now], output=str)


async def test_score() -> None:
    made = scripted()
    start = made.empty + user("Yes or no?")
    assert await start.score([]) == [] and not made.engine.waves
    assert await start.score([""]) == [0.0] and not made.engine.waves
    scores = await start.score(["Yes", "", " no"])
    yes, no = (len(tokenizer().encode(t)) for t in ("Yes", " no"))
    assert scores == [-sum(range(1, yes + 1)), 0.0, -sum(range(1, no + 1))]
    (wave,) = made.engine.waves
    assert [
        decoded(r).endswith(f"<|im_start|>assistant\n{t}") for r, t in zip(wave, ("Yes", " no"), strict=True)
    ]
    assert {(r.score_from, r.max_tokens) for r in wave} == {(len(start._opened()), 0)}


async def test_score_goes_on_from_a_generation() -> None:
    made = scripted("The sea")
    said = (await (made.empty + user("A line.")).gen(str)).transcript
    await said.score([" is blue"])
    assert decoded(made.engine.requests[-1]) == said.text + " is blue"


async def test_prefill() -> None:
    def script(request: Request) -> Result:
        counts = TokenCounts(len(request.prompt), 3, len(request.prompt) - 3, 0, 0, 1)
        return replace(result("", request), counts=counts)

    made = scripted(script)
    start = made.empty + user("Go")
    assert await start.prefill() == Usage(len(start), 3, len(start) - 3, 0, 0, 1)
    assert made.engine.requests[0].max_tokens == 0
