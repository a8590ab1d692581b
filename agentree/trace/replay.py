"""A recorded trace, given out again at the pace it came, faster, slower, or event by event."""

import math
from collections.abc import Sequence
from dataclasses import fields

from agentree.events import Event
from agentree.trace.state import Picture
from agentree.trace.text import one_line

_BASE = frozenset(field.name for field in fields(Event))


class Player:
    """Where a replay stands: which events were given out, and the present by the clock of the trace."""

    def __init__(self, events: Sequence[Event], *, speed: float = 1.0, paused: bool = False) -> None:
        """Before the first event.

        Args:
            events: At least one, in order. One that is dated before its predecessor comes with it.
            speed: Seconds of the trace for each second of the viewer; inf gives out all at once.
            paused: Time stands still until `paused` is cleared.
        """
        self.events = events
        self.speed = speed
        self.paused = paused
        self.given = 0
        """How many events were given out."""
        self._times: list[float] = []
        for event in events:
            self._times.append(max(event.time, self._times[-1] if self._times else event.time))
        self.at = self._times[0]
        """The present, by the clock of the events."""

    @property
    def over(self) -> bool:
        """Whether all events were given out."""
        return self.given == len(self.events)

    @property
    def seconds(self) -> float:
        """Since the first event, by the clock of the trace."""
        return self.at - self._times[0]

    @property
    def last(self) -> Event | None:
        """The event that was given out last."""
        return self.events[self.given - 1] if self.given else None

    def advance(self, seconds: float) -> Sequence[Event]:
        """The events of the viewer's next so many seconds; none while it is paused."""
        if self.paused:
            return ()
        self.at = (
            self._times[-1]
            if math.isinf(self.speed)
            else min(self.at + seconds * self.speed, self._times[-1])
        )
        start = self.given
        while not self.over and self._times[self.given] <= self.at:
            self.given += 1
        return self.events[start : self.given]

    def next(self) -> Sequence[Event]:
        """The next event alone, if there is one; the present becomes its own."""
        if self.over:
            return ()
        self.at = self._times[self.given]
        self.given += 1
        return self.events[self.given - 1 : self.given]

    def back(self) -> Sequence[Event]:
        """Take the last event back; all that are given out still."""
        self.given = max(self.given - 1, 0)
        self.at = self._times[max(self.given - 1, 0)]
        return self.events[: self.given]


def described(event: Event, picture: Picture) -> str:
    """An event with all it says, on one line; the picture has it folded in, and names who it is about."""
    values = [
        f"{field.name}={one_line(str(getattr(event, field.name)), 200)}"
        for field in fields(event)
        if field.name not in _BASE and getattr(event, field.name) != ""
    ]
    who = [one_line(picture.named(event.run, event.path))] if event.run or event.path else []
    seconds = f"{max(event.time - picture.began, 0):.3f} s"
    return "  ".join([f"#{event.seq}", seconds, type(event).__name__, *who, *values])
