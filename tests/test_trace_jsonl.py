"""Trace files: what is written is read back, and what is no trace is named."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, cast, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_events import forked_run, react_run

from agentree import events as ev
from agentree.errors import AgentreeError
from agentree.trace import JSONLWriter, read_trace
from agentree.trace.jsonl import OtherEvent

KINDS = [kind for kind in ev.Event.__subclasses__() if kind.__module__ == ev.__name__]


def values_of(type_: object) -> st.SearchStrategy[object]:
    """Values of a field's type."""
    if get_origin(type_) is Literal:
        return st.sampled_from(get_args(type_))
    plain: Mapping[object, st.SearchStrategy[object]] = {
        int: st.integers(),
        float: st.floats(allow_nan=False),
        bool: st.booleans(),
        str: st.text(st.characters(exclude_categories=())),
    }
    return plain[type_]


@st.composite
def any_event(draw: st.DrawFn) -> ev.Event:
    kind = draw(
        st.sampled_from([kind for kind in KINDS if kind is not OtherEvent and kind.__module__ == ev.__name__])
    )
    make = cast("Callable[..., ev.Event]", kind)
    return make(**{field.name: draw(values_of(field.type)) for field in fields(kind)})


@given(st.lists(any_event(), max_size=5))
def test_round_trip_of_any_events(tmp_path_factory: pytest.TempPathFactory, events: list[ev.Event]) -> None:
    path = tmp_path_factory.mktemp("trace") / "t.jsonl"
    writer = JSONLWriter(path)
    writer.feed(events)
    writer.close()
    assert list(read_trace(path)) == events
    assert path.read_bytes().isascii()


def test_each_batch_is_on_disk_at_once(tmp_path: Path) -> None:
    writer = JSONLWriter(tmp_path / "t.jsonl")
    events = react_run()
    writer.feed(events[:5])
    assert list(read_trace(writer.path)) == events[:5]
    writer.feed(events[5:])
    assert list(read_trace(writer.path)) == events
    writer.close()


def test_half_a_last_line_is_left_out(tmp_path: Path) -> None:
    writer = JSONLWriter(tmp_path / "t.jsonl")
    writer.feed(forked_run())
    writer.close()
    data = writer.path.read_bytes()
    writer.path.write_bytes(data[:-7])
    assert list(read_trace(writer.path)) == forked_run()[:-1]


@dataclass(frozen=True, kw_only=True)
class Weather(ev.Event):
    place: Path
    degrees: float


def test_events_of_ones_own_are_kept(tmp_path: Path) -> None:
    writer = JSONLWriter(tmp_path / "t.jsonl")
    writer.feed([Weather(seq=3, time=1.5, path="a", place=Path("oslo"), degrees=-3.5)])
    writer.close()
    data = {"place": "oslo", "degrees": -3.5}
    assert list(read_trace(writer.path)) == [OtherEvent(seq=3, time=1.5, path="a", kind="Weather", data=data)]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 2"),
        ("[]", "a JSON object"),
        ("{}", "no event kind"),
        ('{"event": "Evicted"}', "tokens"),
        ('{"event": "Evicted", "tokens": "many"}', "Evicted.tokens can't be 'many'"),
        ('{"event": "Evicted", "tokens": true}', "Evicted.tokens can't be True"),
        ('{"event": "Evicted", "tokens": 1, "more": 2}', "more"),
        ("\udcff", "line 2"),
    ],
)
def test_what_is_no_trace_is_named(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "t.jsonl"
    first = json.dumps(ev.to_dict(ev.Forked(n=2, shared_tokens=3)))
    path.write_text(f"{first}\n{line}\n", errors="surrogateescape")
    with pytest.raises(AgentreeError, match="line 2") as caught:
        list(read_trace(path))
    assert why in str(caught.value)
    assert str(path) in str(caught.value)
