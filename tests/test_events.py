"""The bus: one order, bounded queues, and what a reader who is too slow loses."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from agentree.events import Bus, Dropped, Event, Forked, Subscription, TextGenerated, now


def nothing() -> None:
    """Wakes nobody."""


def _event(run: str, i: int, *, fact: bool) -> Event:
    return Forked(run=run, n=i, shared_tokens=0) if fact else TextGenerated(run=run, request=i, text="")


def emitted(bus: Bus, kinds: Sequence[bool], run: str = "r") -> list[Event]:
    """Facts where True, passing events where False."""
    return [bus.emit(_event(run, i, fact=fact)) for i, fact in enumerate(kinds)]


def kept(events: Sequence[Event], capacity: int) -> list[Event]:
    """The plain reference: when it is full, the oldest passing event goes, else the oldest."""
    queue: list[Event] = []
    for event in events:
        queue.append(event)
        if len(queue) > capacity:
            passing = [e for e in queue if e.passing]
            queue.remove(passing[0] if passing else queue[0])
    return queue


@given(st.lists(st.lists(st.booleans(), max_size=20), max_size=5), st.integers(1, 8))
def test_a_slow_reader_keeps_what_no_later_event_says(rounds: list[list[bool]], capacity: int) -> None:
    bus = Bus()
    reader = bus.subscribe(nothing, capacity=capacity)
    for kinds in rounds:
        events = emitted(bus, kinds)
        got = reader.take()
        left = kept(events, capacity)
        if len(left) == len(events):
            assert got == events
            continue
        facts = sum(not e.passing for e in events) - sum(not e.passing for e in left)
        lost = got[0]
        assert isinstance(lost, Dropped)
        assert (lost.count, lost.facts, lost.seq) == (len(events) - len(left), facts, left[0].seq - 1)
        assert got[1:] == left
    assert reader.take() == []


def test_an_absent_reader_holds_no_more_than_its_capacity() -> None:
    bus = Bus()
    reader = bus.subscribe(nothing, capacity=100)
    emitted(bus, [True, False] * 5000)
    assert len(reader._facts) + len(reader._passing) == 100
    assert len(reader.take()) == 101


def test_a_reader_of_one_run_loses_nothing_to_others() -> None:
    bus = Bus()
    mine = bus.subscribe(nothing, capacity=3, run="mine")
    emitted(bus, [True] * 50, run="other")
    events = emitted(bus, [True, False, True], run="mine")
    emitted(bus, [True] * 50, run="")
    assert mine.take() == events


def test_every_reader_sees_one_order() -> None:
    bus = Bus()
    readers: list[Subscription] = [bus.subscribe(nothing) for _ in range(3)]
    events = emitted(bus, [True, False, False, True])
    assert [reader.take() for reader in readers] == [events] * 3
    assert [event.seq for event in events] == [1, 2, 3, 4]


def test_dates_never_go_back() -> None:
    before = now()
    events = emitted(Bus(), [True] * 100)
    dates = [before, *(event.time for event in events), now()]
    assert dates == sorted(dates)
