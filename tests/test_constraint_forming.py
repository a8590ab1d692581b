"""Tool calls are told while they are written, by the automaton's states, however the text is cut."""

import json
import random
from typing import Any

import pytest
from constraint_tools import any_token, play, small_vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st

from agentree.runtime.constraint import CallNamed, CallWatch, CallWritten, output_of, tool_calls

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("search", {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}),
    ("search_all", {"type": "object", "properties": {"query": {"type": "string"}, "n": {"type": "integer"}}}),
    ("done", NOTHING),
    ("nested", {"type": "object", "properties": {"name": {"const": "done"}, "arguments": NOTHING}}),
]


def watch(parallel: bool, tools: Any = TOOLS) -> CallWatch:
    found = tool_calls(tools, output_of(int), parallel).bind(small_vocabulary()).watch()
    assert found is not None
    return found


def told(text: str, parallel: bool = False, size: int = 1) -> list[CallNamed | CallWritten]:
    watching, data = watch(parallel), text.encode()
    return [news for i in range(0, len(data), size) for news in watching.push(data[i : i + size])]


def test_the_tool_is_known_as_soon_as_no_other_is_possible() -> None:
    watching = watch(False)
    assert watching.push(b'{"name": "') == []
    assert watching.push(b"d") == [CallNamed(0, "done")]
    assert watching.push(b'one", "arguments": {') == []
    assert watching.push(b"}") == [CallWritten(0, "done", "{}")]
    assert watching.push(b"}") == []
    assert told('{"name": "search') == []
    assert told('{"name": "search"') == [CallNamed(0, "search")]
    assert watch(False, TOOLS[:1]).push(b"{") == []  # it may still be the final answer


def test_calls_are_counted_and_text_in_strings_is_no_call() -> None:
    tricky = '{"query": "\\"}, {\\"name\\": \\"done\\"ü"}'
    text = f'[{{"name": "search", "arguments": {tricky}}}, {{"name": "done", "arguments": {{}}}}]'
    assert told(text, parallel=True) == [
        CallNamed(0, "search"),
        CallWritten(0, "search", tricky),
        CallNamed(1, "done"),
        CallWritten(1, "done", "{}"),
    ]
    inner = '{"name": "done", "arguments": {}}'
    assert told(f'{{"name": "nested", "arguments": {inner}}}') == [
        CallNamed(0, "nested"),
        CallWritten(0, "nested", inner),
    ]


def test_the_final_answer_is_no_call() -> None:
    assert told('{"name": "final_answer", "arguments": {"answer": 3}}') == []


@pytest.mark.parametrize("parallel", [False, True])
@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 40))
def test_what_is_told_is_what_was_written(parallel: bool, seed: int, size: int) -> None:
    constraint = tool_calls(TOOLS, output_of(int), parallel)
    text, _ = play(constraint, small_vocabulary(), 120, any_token(random.Random(seed)))
    value: Any = json.loads(text)
    listed: list[Any] = [*value] if isinstance(value, list) else [value]
    calls = [c for c in listed if c["name"] != "final_answer"]
    news = told(text.decode(), parallel, size)
    assert news == told(text.decode(), parallel)
    assert [n.tool for n in news if isinstance(n, CallNamed)] == [c["name"] for c in calls]
    written = [(n.index, n.tool, json.loads(n.arguments)) for n in news if isinstance(n, CallWritten)]
    assert written == [(i, c["name"], c["arguments"]) for i, c in enumerate(calls)]
