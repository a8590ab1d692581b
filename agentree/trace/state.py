"""Folds events into a picture of what the agents did: a tree by task paths, with the tokens of each."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from agentree import events as ev
from agentree.trace.history import History
from agentree.trace.places import Places
from agentree.trace.tree import KEPT_TEXT, Branch, Call, Forming, RunView, Status, Tokens, Writing

RATE_WINDOW = 2.0
"""Seconds over which the present rate is measured."""
_NOTICES = 8
"""Losses that are remembered one by one."""
_BURST = 1.0
"""Seconds within which losses of one kind to one path are one."""
_MOMENT = 0.125
"""Seconds between two tokens of one generation that are told as one."""

Loss = ev.Evicted | ev.LeaseRevoked | ev.Preempted


@dataclass
class Pressure:
    """What the pool took away, and what the reader of the events missed."""

    evicted: int = 0
    revoked: int = 0
    preempted: int = 0
    dropped: int = 0
    facts: int = 0
    """Of the dropped events, those that no later one says again."""
    latest: deque[Loss] = field(default_factory=lambda: deque[Loss](maxlen=_NOTICES))
    """The last losses, a burst of one kind to one path as one."""

    def note(self, event: Loss) -> None:
        """Count a loss."""
        match event:
            case ev.Evicted():
                self.evicted += event.tokens
            case ev.LeaseRevoked():
                self.revoked += event.tokens
            case ev.Preempted():
                self.preempted += 1
        last = self.latest[-1] if self.latest else None
        if last and _kin(last, event):
            self.latest[-1] = replace(event, tokens=last.tokens + event.tokens)
        else:
            self.latest.append(event)


def _kin(a: Loss, b: Loss) -> bool:
    same = type(a) is type(b) and (a.run, a.path) == (b.run, b.path) and b.time - a.time < _BURST
    return same and getattr(a, "owner", "") == getattr(b, "owner", "")


class Picture:
    """The state of a trace. Feed it events in order; read its fields at any time from the same thread."""

    def __init__(self) -> None:
        self.runs: dict[str, RunView] = {}
        self.loading: ev.ModelLoading | None = None
        self.model: ev.ModelReady | None = None
        self.pool: ev.PoolState | None = None
        self.pressure = Pressure()
        self.totals = Tokens()
        self.passes = 0
        self.generations = 0
        self.writing: dict[int, Writing] = {}
        self.last: Writing | None = None
        self.began = 0.0
        self.now = 0.0
        self.working: tuple[float, float] | None = None
        """When the first generation started and the last one ended, so far."""
        self._places: dict[str, Places] = {}
        self._calls: dict[tuple[str, str], list[tuple[Call, Branch]]] = {}
        self.history = History(3)
        """Output, cached and prompt tokens over time."""
        self._rate: deque[tuple[float, int]] = deque()
        self._passes_before: int | None = None

    @property
    def seconds(self) -> float:
        """Time between the first event and the last."""
        return self.now - self.began

    def mean_rate(self) -> float:
        """Generated tokens per second from the first generation's start to the last one's end."""
        span = self.working[1] - self.working[0] if self.working else 0.0
        return self.totals.output / span if span > 0 else 0.0

    def hit_rate(self) -> tuple[int, int]:
        """(cached, all) prompt tokens of the generations seen so far."""
        return self.totals.cached, self.totals.prompt

    def rate(self, now: float) -> float:
        """Generated tokens per second over the last moments before `now`, in seconds since the epoch."""
        while self._rate and self._rate[0][0] < now - RATE_WINDOW:
            self._rate.popleft()
        if not self._rate:
            return 0.0
        span = max(min(now - self.began, RATE_WINDOW), 0.25)
        return sum(tokens for _, tokens in self._rate) / span

    def label(self, run: RunView, path: str) -> str:
        """Name of a path outside of its tree: "answer", or "2:answer" for the second run's."""
        name = path or run.program or run.id or "transcripts"
        return name if run.number == 1 else f"{run.number}:{name}"

    def named(self, run: str, path: str) -> str:
        """Name of a path of a run that may not be known."""
        view = self.runs.get(run)
        return (path or run or "transcripts") if view is None else self.label(view, path)

    def owner(self, lease: str) -> str:
        """Name of who has a lease: a run, or what a path of it holds."""
        run, _, path = lease.partition("/")
        return self.named(run, path)

    def calls(self) -> Iterator[tuple[Branch, Call]]:
        """All tool calls with the branch that made each."""
        for run in self.runs.values():
            for branch in run.root.walk():
                for call in branch.calls:
                    yield branch, call

    def feed(self, batch: Iterable[ev.Event]) -> None:
        """Fold events in. An event kind that a picture has no place for changes nothing."""
        for event in _merged(batch):
            if event.time:
                self.began = self.began or event.time
                self.now = max(self.now, event.time)
            self._fold(event)

    def _run(self, run: str) -> RunView:
        view = self.runs.get(run)
        if view is None:
            places = self._places[run] = Places()
            view = self.runs[run] = RunView(run, len(self.runs) + 1, places.root)
        return view

    def _branch(self, event: ev.Event) -> Branch:
        places = self._places.get(event.run)
        if places is None:
            self._run(event.run)
            places = self._places[event.run]
        return places.at(event)

    def _fold(self, event: ev.Event) -> None:
        match event:
            case ev.GenerationStarted() | ev.TextGenerated() | ev.GenerationEnded():
                self._fold_generation(event)
            case ev.ToolCallNamed() | ev.ToolCallWritten():
                written = isinstance(event, ev.ToolCallWritten)
                self._branch(event).forming[event.request, event.index] = Forming(event.tool, written)
            case ev.ToolStarted() | ev.ToolEnded():
                self._fold_call(event)
            case ev.RunStarted() | ev.RunEnded():
                self._fold_run(event)
            case ev.NodeStarted() | ev.NodeEnded() | ev.NodeRestored():
                self._fold_node(event)
            case ev.QuestionAsked():
                self._branch(event).status = "waiting"
            case ev.Forked():
                self._fold_fork(event)
            case ev.ModelLoading():
                self.loading = event
            case ev.ModelReady():
                self.loading, self.model = None, event
            case ev.PoolState():
                self._fold_pool(event)
            case ev.Evicted() | ev.LeaseRevoked() | ev.Preempted():
                self.pressure.note(event)
            case ev.Dropped():
                self.pressure.dropped += event.count
                self.pressure.facts += event.facts
            case _:
                pass

    def _fold_fork(self, event: ev.Forked) -> None:
        branch = self._branch(event)
        branch.forks.append((event.n, event.shared_tokens))
        if branch.parent is not None and not branch.open:  # an open visit is a step that forks by itself
            branch.parent.forked = branch.forks[-1]

    def _fold_pool(self, event: ev.PoolState) -> None:
        self.pool = event
        if self._passes_before is None:
            # A trace that saw no model load began in the middle of the engine's life.
            self._passes_before = 0 if self.model is not None else event.forward_passes
        self.passes = event.forward_passes - self._passes_before

    def _fold_generation(self, event: ev.GenerationStarted | ev.TextGenerated | ev.GenerationEnded) -> None:
        branch = self._branch(event)
        writing = self.writing.get(event.request)
        if writing is None:
            prompt = 0 if isinstance(event, ev.TextGenerated) else event.prompt_tokens
            writing = self.writing[event.request] = Writing(
                self.named(event.run, branch.path), event.request, prompt
            )
            branch.running += 1
            branch.status = "running"
        writing.touched = event.seq
        self.last = writing
        self.working = (self.working[0] if self.working else event.time, event.time)
        if isinstance(event, ev.TextGenerated):
            writing.text = (writing.text + event.text)[-KEPT_TEXT:]
        if not isinstance(event, ev.GenerationStarted):
            self._count(event, branch, writing)
        if isinstance(event, ev.GenerationEnded):
            self._end_generation(event, branch, self.writing.pop(event.request))

    def _count(self, event: ev.TextGenerated | ev.GenerationEnded, branch: Branch, writing: Writing) -> None:
        """Add what a generation has done since it was last heard of."""
        tokens = Tokens(event.cached_tokens, event.computed_tokens, event.forced_tokens, event.sampled_tokens)
        more = tokens.since(writing.counted)
        writing.counted = tokens
        branch.count(more)
        self.totals.add(more)
        if more.total:
            self.history.add(event.time, (more.output, more.cached, more.prompt))
        if more.output:
            self._rate.append((event.time, more.output))

    def _end_generation(self, event: ev.GenerationEnded, branch: Branch, writing: Writing) -> None:
        branch.passes += event.forward_passes
        branch.generations += 1
        self.generations += 1
        branch.miss = event.miss or branch.miss
        branch.running = max(branch.running - 1, 0)
        branch.forming = {key: call for key, call in branch.forming.items() if key[0] != event.request}
        ends: dict[str, Status] = {"aborted": "cancelled", "failed": "failed"}
        writing.status = ends.get(event.finish, "done")
        writing.text = event.text[-KEPT_TEXT:]
        if not branch.running and not branch.open:
            branch.status = writing.status

    def _fold_call(self, event: ev.ToolStarted | ev.ToolEnded) -> None:
        waiting = self._calls.setdefault((event.run, event.call), [])
        if isinstance(event, ev.ToolStarted):
            branch = self._branch(event)
            call = Call(event.call, event.tool, event.arguments[:KEPT_TEXT])
            branch.calls.append(call)
            waiting.append((call, branch))
            return
        match = next((i for i, (_, b) in enumerate(waiting) if b.path == self._branch(event).path), 0)
        if waiting:
            call, branch = waiting.pop(match)
        else:
            branch = self._branch(event)
            call = Call(event.call, event.tool, "")
            branch.calls.append(call)
        call.status = "failed" if event.error else "done"
        call.content = event.content[:KEPT_TEXT]
        call.seconds = event.seconds

    def _fold_run(self, event: ev.RunStarted | ev.RunEnded) -> None:
        run = self._run(event.run)
        if isinstance(event, ev.RunStarted):
            run.program, run.input = event.program, event.input[:KEPT_TEXT]
            return
        run.status, run.error = event.status, event.error[:KEPT_TEXT]
        run.output = event.output[:KEPT_TEXT]
        for branch in run.root.walk():
            if branch.status == "running":
                branch.status = event.status

    def _fold_node(self, event: ev.NodeStarted | ev.NodeEnded | ev.NodeRestored) -> None:
        branch = self._branch(event)
        match event:
            case ev.NodeStarted():
                branch.open, branch.status = True, "running"
            case ev.NodeEnded():
                branch.open = False
                branch.forming.clear()
                branch.error = event.error[:KEPT_TEXT]
                branch.status = _ended_as(event.error)
            case ev.NodeRestored():
                branch.status = "done"


def _ended_as(error: str) -> Status:
    if error == "cancelled":
        return "cancelled"
    if error.startswith(ev.STOPPED):
        return "limit"
    if error.startswith(ev.WAITS):
        return "waiting"
    return "failed" if error else "done"


def _merged(batch: Iterable[ev.Event]) -> Iterator[ev.Event]:
    """The events, with those about the text of one generation and one moment as one: they are the most."""
    held: dict[int, tuple[ev.TextGenerated, list[str]]] = {}
    for event in batch:
        if isinstance(event, ev.TextGenerated):
            before = held.get(event.request)
            texts = [event.text]
            if before is not None and event.time - before[0].time < _MOMENT:
                texts = before[1]
                texts.append(event.text)
            elif before is not None:
                yield _joined(*before)
            held[event.request] = (event, texts)
            continue
        if isinstance(event, ev.GenerationEnded):
            held.pop(event.request, None)  # its text and counts are all there are
        yield event
    for last in held.values():
        yield _joined(*last)


def _joined(event: ev.TextGenerated, texts: list[str]) -> ev.TextGenerated:
    return event if len(texts) == 1 else replace(event, text="".join(texts))
