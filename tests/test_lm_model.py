"""Transcripts on the embedded model: its own template, real answers, real forks."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from pydantic import BaseModel, Field

from agentree.lm import Runtime
from agentree.messages import Message, assistant, system, user
from agentree.runtime.model.config import read_config
from agentree.runtime.model.tokenizer import read_template, read_tokenizer
from agentree.tools import ToolCalls, tool, tool_call, tool_result
from agentree.tools.calls import ToolCall, ToolResult

pytestmark = pytest.mark.model

TALKS: list[list[Message]] = [
    [user("Hello there.")],
    [
        system("You are brief."),
        user("What is the capital of France?"),
        assistant("Paris."),
        user("Of Spain?"),
    ],
    [user("  spaces \n\n and lines\n"), assistant("\n"), user("Zwölf Boxkämpfer 東京 🙂"), assistant("ok")],
    [
        system("s"),
        user("1234567 + 890"),
        assistant('{"name": "add"}'),
        Message("tool", "1235457"),
        user("Thanks"),
    ],
]


def test_tokens_equal_the_templates_own(smollm2: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    from agentree.lm.prompt import Prompts

    prompts = Prompts(read_template(smollm2), read_tokenizer(smollm2, read_config(smollm2)))
    theirs = cast("Any", PreTrainedTokenizerFast).from_pretrained(smollm2)
    for talk in TALKS:
        ids = list(prompts.opening(talk[:1], ()).ids) + [i for m in talk[1:] for i in prompts.delta(m).ids]
        shown = [{"role": m.role, "content": m.text} for m in talk]
        assert ids == theirs.apply_chat_template(shown, return_dict=False)
        opened = theirs.apply_chat_template(shown, add_generation_prompt=True, return_dict=False)
        assert ids + list(prompts.turn_opening.ids) == opened


class City(BaseModel):
    name: str = Field(max_length=20)
    country: str = Field(max_length=20)


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lm(smollm2: Path) -> AsyncGenerator[Runtime]:
    async with Runtime(smollm2, kv_tokens=8192) as opened:
        yield opened


@pytest.mark.asyncio(loop_scope="module")
async def test_the_template_never_drifts(lm: Runtime) -> None:
    assert lm.template_report.drifts == ()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_conversation(lm: Runtime) -> None:
    first = await lm.transcript(user("What is the capital of France?")).gen(str, max_tokens=24)
    assert "Paris" in first.text and first.finish_reason == "stop"
    second = await (first.transcript + user("And of Italy?")).gen(str, max_tokens=24)
    assert "Rome" in second.text
    assert (second.usage.cached_tokens or 0) >= len(first.transcript) - 1


@pytest.mark.asyncio(loop_scope="module")
async def test_forced_values_in_a_fork(lm: Runtime) -> None:
    start = lm.transcript(system("You know geography."), user("Describe Paris as JSON."))
    async with start.fork(3) as kids:
        cities = await kids.gen(City, max_tokens=48, seed=1)
    assert all(isinstance(c.value, City) for c in cities)
    assert all((c.usage.forced_tokens or 0) > 0 for c in cities)
    alone = await start.gen(City, max_tokens=48, temperature=1.0, seed=cities[2].seed)
    assert alone.value == cities[2].value
    thought = await start.gen(City, max_tokens=48, think=16)
    assert thought.transcript.text.endswith(thought.text) and isinstance(thought.value, City)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_tool_is_called(lm: Runtime) -> None:
    call = ToolCall("call_1", "multiply", {"a": 3, "b": 4})
    shown = [user("What is 3*4?"), tool_call(call), tool_result(ToolResult(call, "12"))]
    said = tool_call(ToolCall("", "final_answer", {"answer": "12"}))
    t = lm.transcript(system("Use the tools."), *shown, said, user("What is 17*23?"), tools=[multiply])
    turn = await t.call([multiply], output=str, max_tokens=64)
    assert isinstance(turn.value, ToolCalls)
    (made,) = turn.value.calls
    assert (made.id, made.name, made.args) == ("call_1", "multiply", {"a": 17, "b": 23})


@pytest.mark.asyncio(loop_scope="module")
async def test_scores_tell_right_from_wrong(lm: Runtime) -> None:
    asked = lm.transcript(user("What is the capital of France?"))
    names = ["Berlin", "Paris", "Madrid"]
    scores = await asked.score([f"The capital of France is {name}." for name in names])
    assert max(scores) == scores[1]
