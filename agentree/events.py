"""What happens, as values: one frozen dataclass per fact that a trace can show, and the bus they travel on.

Knows nothing of the layers below. Paths name who an event is about: segments joined by "/", where a
fork adds "[i]" for its i-th branch and a second visit of a node adds "#2": "solve/answer[3]#2".
"""

import threading
import time as clock
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import ClassVar, Final, Literal

STOPPED: Final = "stopped by a limit:"
"""Begins the `error` of a node or run that a limit stopped."""
WAITS: Final = "waits for an answer"
"""Begins the `error` of a node or run that goes on in a later process, once a person has answered."""

_EPOCH = clock.time() - clock.monotonic()


def now() -> float:
    """Seconds since the epoch, by the clock that dates all events of this process; it never goes back."""
    return _EPOCH + clock.monotonic()


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of every trace event."""

    passing: ClassVar[bool] = False
    """Whether a later event says it again, or more: a reader who is too slow loses these first."""

    seq: int = 0
    """Position in the runtime's stream; the bus assigns it."""
    time: float = 0.0
    """Seconds since the epoch, as `now()` gives them; the bus assigns it."""
    run: str = ""
    """Id of the run, "" for transcripts used outside a program."""
    path: str = ""
    """Task path inside the run."""


@dataclass(frozen=True, kw_only=True)
class ModelLoading(Event):
    """A model is being fetched, converted or read; `done` of `total` in `unit` (total 0: unknown)."""

    passing: ClassVar[bool] = True
    model: str
    stage: Literal["fetch", "unpack", "verify", "convert", "load"]
    done: int = 0
    total: int = 0
    unit: Literal["bytes", "tensors"] = "bytes"


@dataclass(frozen=True, kw_only=True)
class ModelReady(Event):
    """A model can generate."""

    model: str
    device: str
    weights: str
    pool: int
    """Slots of the KV pool, in tokens."""
    seconds: float
    kernels: str = ""
    """What computes: "compiled" or "torch"."""


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """A program began."""

    program: str
    input: str
    plan: str = ""
    """Its graph, as `agentree.graph.outline` writes it."""


@dataclass(frozen=True, kw_only=True)
class RunEnded(Event):
    """A program ended: with an output, or with why it has none."""

    output: str = ""
    error: str = ""
    """Type and text of an exception; what begins with `STOPPED` where a limit was hit and nothing failed, or
    with `WAITS` and names the questions."""
    status: Literal["done", "failed", "cancelled", "waiting", "limit"] = "done"
    """"limit": a limit of the program has stopped it."""


@dataclass(frozen=True, kw_only=True)
class NodeStarted(Event):
    """A node of a graph began a visit."""

    node: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class NodeEnded(Event):
    """A node of a graph ended a visit."""

    node: str
    output: str = ""
    error: str = ""
    """Why it has no output: type and text of an exception, "cancelled", what begins with `STOPPED` where a
    limit was hit and nothing failed, or `WAITS` and for which answers."""


@dataclass(frozen=True, kw_only=True)
class NodeRestored(Event):
    """A visit that ended before the run was resumed: its output comes from the journal."""

    node: str
    kind: str
    output: str = ""


@dataclass(frozen=True, kw_only=True)
class QuestionAsked(Event):
    """The run waits for a person: the event's path names the question."""

    text: str


@dataclass(frozen=True, kw_only=True)
class GenerationStarted(Event):
    """A request was taken up by the engine."""

    request: int
    prompt_tokens: int


@dataclass(frozen=True, kw_only=True)
class TextGenerated(Event):
    """Text of a running generation, as far as it forms whole characters, and its tokens so far."""

    passing: ClassVar[bool] = True
    request: int
    text: str
    cached_tokens: int = 0
    computed_tokens: int = 0
    sampled_tokens: int = 0
    forced_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class ToolCallNamed(Event):
    """The tool that a running generation calls is certain, perhaps before its name is written out."""

    request: int
    index: int
    """Which call of the turn, from 0."""
    tool: str


@dataclass(frozen=True, kw_only=True)
class ToolCallWritten(Event):
    """The arguments of a call are complete, while the generation may go on with more calls."""

    request: int
    index: int
    tool: str
    arguments: str
    """As JSON."""


@dataclass(frozen=True, kw_only=True)
class GenerationEnded(Event):
    """A request is over. Counts in tokens: `cached + computed = prompt`, `sampled + forced = output`."""

    request: int
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    sampled_tokens: int
    forced_tokens: int
    forward_passes: int
    text: str
    finish: Literal["stop", "length", "aborted", "failed"]
    seconds: float
    miss: str = ""
    """Why the computed part was not in the cache, in words; "" if only new text was computed."""
    engine: Literal["", "fsm", "llguidance"] = ""
    """Who forced the text; "" for free text."""


@dataclass(frozen=True, kw_only=True)
class Forked(Event):
    """A transcript was forked into `n` branches that share `shared_tokens`."""

    n: int
    shared_tokens: int


@dataclass(frozen=True, kw_only=True)
class ToolStarted(Event):
    """A tool call is about to run."""

    call: str
    tool: str
    arguments: str
    """The arguments as JSON."""


@dataclass(frozen=True, kw_only=True)
class ToolEnded(Event):
    """A tool call is over; `error` says whether `content` is an error."""

    call: str
    tool: str
    content: str
    error: bool
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Evicted(Event):
    """Tokens left the radix tree to make room; the event's path is whose request needed the room."""

    tokens: int


@dataclass(frozen=True, kw_only=True)
class LeaseRevoked(Event):
    """A lease was taken back under pressure: its agent's next turn computes `tokens` again."""

    owner: str
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Preempted(Event):
    """A running request gave its slots back and waits to be resumed."""

    request: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class PoolState(Event):
    """The KV pool after a step, in tokens, with the counters that rates are made of."""

    passing: ClassVar[bool] = True
    pool: int
    free: int
    private: int
    tree: int
    leased: int
    lookup_tokens: int
    hit_tokens: int
    computed_tokens: int
    sampled_tokens: int
    forced_tokens: int
    forward_passes: int = 0
    running: int = 0
    waiting: int = 0


@dataclass(frozen=True, kw_only=True)
class Dropped(Event):
    """The reader of this stream was too slow: `count` events are missing among those that follow it."""

    count: int
    facts: int = 0
    """How many of them no later event says again, such as the end of a tool call."""


def to_dict(event: Event) -> dict[str, object]:
    """The event as plain JSON values, its kind under "event"."""
    values: dict[str, object] = {f.name: getattr(event, f.name) for f in fields(event)}
    return {"event": type(event).__name__, **values}


@dataclass(eq=False)
class Subscription:
    """One reader's bounded queue. A full queue drops its oldest event and reports how many were lost.

    Events that are `passing` go first: of a long answer that nobody read, what is left says that it began,
    that it ended, and what it was.
    """

    wake: Callable[[], None]
    """Called from whatever thread emitted, after an event was queued. Must not block."""
    capacity: int = 10_000
    run: str | None = None
    """Only events of this run; None: of all."""
    _facts: deque[Event] = field(default_factory=deque[Event])
    _passing: deque[Event] = field(default_factory=deque[Event])
    _lost: int = 0
    _lost_facts: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, event: Event) -> None:
        """Queue an event. Never blocks for longer than a few appends."""
        if self.run is not None and event.run != self.run:
            return
        with self._lock:
            if len(self._facts) + len(self._passing) >= self.capacity:
                self._lost += 1
                if self._passing:
                    self._passing.popleft()
                elif event.passing:
                    return
                else:
                    self._facts.popleft()
                    self._lost_facts += 1
            (self._passing if event.passing else self._facts).append(event)
        self.wake()

    def take(self) -> list[Event]:
        """All queued events in the order of their numbers; a `Dropped` leads where some were lost."""
        with self._lock:
            events = [*self._facts, *self._passing]
            self._facts.clear()
            self._passing.clear()
            lost, facts = self._lost, self._lost_facts
            self._lost = self._lost_facts = 0
        events.sort(key=attrgetter("seq"))
        if lost:
            first = events[0]
            dropped = Dropped(seq=first.seq - 1, time=first.time, run=self.run or "", count=lost, facts=facts)
            events.insert(0, dropped)
        return events


class Bus:
    """Numbers events and hands them to every subscription. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seq = 0
        self._subscriptions: tuple[Subscription, ...] = ()

    @property
    def watched(self) -> bool:
        """Whether anybody reads: lets a hot path skip building events that nobody would see."""
        return bool(self._subscriptions)

    def emit(self, event: Event) -> Event:
        """Number, date and deliver an event; returns it as delivered."""
        with self._lock:
            self._seq += 1
            event = replace(event, seq=self._seq, time=now())
            for subscription in self._subscriptions:
                subscription.put(event)
        return event

    def subscribe(
        self, wake: Callable[[], None], *, capacity: int = 10_000, run: str | None = None
    ) -> Subscription:
        """A new reader, which sees what is emitted from now on: all of it, or what is about one run."""
        subscription = Subscription(wake, capacity, run)
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a reader. Ending one twice is harmless."""
        with self._lock:
            self._subscriptions = tuple(s for s in self._subscriptions if s is not subscription)
