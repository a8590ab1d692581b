"""Values of a journal as `agentree runs show` tells them: without the program's classes."""

import datetime
import json
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from test_journal_exact import ANY, VALUES, Bare, Color, Level, Model, Point, Text

from agentree.graph.journal.telling import told
from agentree.messages import user
from agentree.tools import ToolCall, ToolCalls

SHARED = [1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (user("hello"), {"role": "user", "text": "hello"}),
        (ToolCalls((ToolCall("c", "f", {"x": 1}),)), {"calls": [{"id": "c", "name": "f", "args": {"x": 1}}]}),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({1: b"a", (2,): None}, {"1": "b'a'", "[2]": None}),
        (Bare(datetime.date(2026, 1, 2), Decimal("1.50")), {"a": "2026-01-02", "b": "1.50"}),
        ([Color.RED, Level.LOW, Text("t"), PurePosixPath("p")], ["RED", "LOW", "t", "p"]),
        (Point(1.0, [2]), [1.0, [2]]),
        ([SHARED, SHARED], [[1], "<the same as before>"]),
        (Model(theLabel="x").model_copy(), {"number": 0.0, "label": "x", "hidden": None}),
        ("\ud800", "\ud800"),
    ],
)
def test_what_is_told(value: Any, text: Any) -> None:
    assert told(VALUES.write(value)) == text


@given(ANY)
@settings(max_examples=200, deadline=None)
def test_everything_can_be_told(value: Any) -> None:
    json.dumps(told(VALUES.write(value)))
