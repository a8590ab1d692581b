"""The engine tells of tool calls while they are written, and counts what it was made to compute."""

import json
from typing import Any

import pytest
from engine_steps import recall_model, stepped

from agentree.events import Bus, Event, GenerationEnded, ToolCallNamed, ToolCallWritten
from agentree.runtime.constraint import JSONSchema, compile_constraint, tool_calls
from agentree.runtime.request import Request, Sampling

TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("add", {"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}}, "required": ["a"]}),
    ("ask", {"type": "object", "properties": {"q": {"type": "string", "maxLength": 9}}, "required": ["q"]}),
]


@pytest.mark.parametrize("jump_forward", [True, False])
@pytest.mark.parametrize("parallel", [True, False])
def test_calls_are_told_as_they_are_written(jump_forward: bool, parallel: bool) -> None:
    vocabulary = recall_model(8).tokenizer.vocabulary()
    constraint = tool_calls(TOOLS, None, parallel).bind(vocabulary)
    bus = Bus()
    seen = bus.subscribe(lambda: None)
    requests = [
        Request((7, 8, 9 + i), 90, Sampling(1.0, 1.0, i), constraint, jump_forward=jump_forward)
        for i in range(6)
    ]
    with stepped(bus=bus) as engine:
        results = engine.answer(*requests)
    events = seen.take()
    for number, result in enumerate(results, 1):
        value: Any = json.loads(result.text)
        calls: list[Any] = [*value] if isinstance(value, list) else [value]
        mine: list[Event] = [e for e in events if getattr(e, "request", 0) == number]
        named = [(e.index, e.tool) for e in mine if isinstance(e, ToolCallNamed)]
        written = [(e.index, e.tool, json.loads(e.arguments)) for e in mine if isinstance(e, ToolCallWritten)]
        assert named == [(i, c["name"]) for i, c in enumerate(calls)]
        assert written == [(i, c["name"], c["arguments"]) for i, c in enumerate(calls)]
        assert isinstance(mine[-1], GenerationEnded) and mine[-1].engine == "fsm"


def test_other_values_are_no_calls() -> None:
    listed: list[Any] = [{"name": "add", "arguments": {}}]
    constraint = compile_constraint(JSONSchema({"enum": listed})).bind(recall_model(8).tokenizer.vocabulary())
    bus = Bus()
    seen = bus.subscribe(lambda: None)
    with stepped(bus=bus) as engine:
        engine.answer(Request((7, 8), 40, constraint=constraint), Request((7, 8), 4))
    events = seen.take()
    assert not [e for e in events if isinstance(e, ToolCallNamed | ToolCallWritten)]
    assert [e.engine for e in events if isinstance(e, GenerationEnded)] in (["fsm", ""], ["", "fsm"])


def test_what_a_stop_string_cuts_off_was_sampled_all_the_same() -> None:
    with stepped() as engine:
        (free,) = engine.answer(Request((7, 8, 9), 12))
        stop = next(c for c in free.text if c.isascii() and c.isprintable())
        (cut,) = engine.answer(Request((7, 8, 9), 12, stop=(stop,)))
    assert cut.finish == "stop" and stop not in cut.text
    assert cut.counts.sampled + cut.counts.forced > len(cut.output)
    assert cut.output == free.output[: len(cut.output)]


@pytest.mark.parametrize("jump_forward", [True, False])
def test_a_forced_value_is_counted_to_the_token(jump_forward: bool) -> None:
    constraint = compile_constraint(JSONSchema(TOOLS[1][1])).bind(recall_model(8).tokenizer.vocabulary())
    request = Request((7, 8), 60, constraint=constraint, jump_forward=jump_forward)
    with stepped() as engine:
        (result,) = engine.answer(request)
    # Nothing is appended before it is certain, so nothing is ever taken back.
    assert result.counts.sampled + result.counts.forced == len(result.output)
    assert bool(result.counts.forced) == jump_forward
