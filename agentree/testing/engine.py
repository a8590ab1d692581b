"""An engine without a model: the real scheduler and cache, and scripted answers in place of forwards."""

import itertools
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Literal

from agentree.errors import AgentreeError, ContextOverflow, RuntimeClosed
from agentree.events import Bus
from agentree.runtime.cache import Cache
from agentree.runtime.leases import Leases
from agentree.runtime.model.tokenizer import Tokenizer
from agentree.runtime.reporter import Reporter
from agentree.runtime.request import Hold, Progress, Request, Sink, Ticket
from agentree.runtime.scheduler import Chunk, Scheduler
from agentree.runtime.sequence import Sequence as Live
from agentree.runtime.stats import EngineStats
from agentree.runtime.text import TextStream
from agentree.testing.clock import later
from agentree.testing.pen import Pen, ids_by_bytes
from agentree.testing.script import Reply, ScriptedRequest, Teller, text_of

MAX_BATCH_TOKENS = 1 << 16
SCORE = -1.0
"""Log-probability that each scored token has."""


class ScriptedEngine:
    """Answers at once, or after the seconds of a `Reply`. Every token passes through slots and tree."""

    def __init__(
        self,
        teller: Teller,
        tokenizer: Tokenizer,
        *,
        bus: Bus,
        slots: int,
        eviction: Literal["plan", "lru"] = "plan",
        jump_forward: bool = True,
    ) -> None:
        self._teller = teller
        self._tokenizer = tokenizer
        self._slots = slots
        self._jump_forward = jump_forward
        self._cache = Cache(slots, policy=eviction)
        self._leases = Leases(self._cache)
        self._scheduler = Scheduler(self._cache, scratch=slots, max_batch_tokens=MAX_BATCH_TOKENS)
        self._reporter = Reporter(bus, self._cache, self._scheduler)
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._delayed: dict[int, tuple[Live, Callable[[], None]]] = {}
        self._pens: dict[int, Pen] = {}
        self._closed = False
        self._stats = EngineStats(pool=slots, free=slots)

    # ------------------------------------------------------------------------- what a session asks for

    def submit_all(self, requests: list[tuple[Request, Sink]]) -> list[Ticket]:
        """Answer a wave: those without delay are over when this returns."""
        with self._lock:
            if self._closed:
                raise RuntimeClosed("the runtime is closed: open a new one")
            tickets = [Ticket(next(self._numbers), request, sink) for request, sink in requests]
            waves: dict[float, list[Live]] = {}
            for ticket in tickets:
                self._refuse_unfit(ticket.request)
                started = self._start(ticket)
                if started is not None:
                    live, seconds = started
                    waves.setdefault(seconds, []).append(live)
            for seconds, wave in waves.items():
                if seconds > 0:
                    self._delay(seconds, wave)
                else:
                    self._process(wave)
            return tickets

    def abort(self, ticket: Ticket) -> None:
        """Stop a request that is delayed; its sink hears nothing more."""
        with self._lock:
            live, cancel = self._delayed.pop(ticket.number, (None, None))
            self._pens.pop(ticket.number, None)
            if live is not None and cancel is not None:
                self._reporter.ended(live, "aborted")
                if not any(other is cancel for _, other in self._delayed.values()):
                    cancel()

    def hold(self, hold: Hold, ids: Sequence[int], namespace: Hashable) -> None:
        """Lease as much of a transcript as is cached."""
        with self._lock:
            self._leases.hold_ids(hold.owner, ids, namespace, hold.seconds)
            self._settle()

    def expect(self, owner: str, seconds: float) -> None:
        """Say anew how long until an owner uses what it holds."""
        with self._lock:
            self._leases.expect(owner, seconds)

    def release(self, owner: str, *, last_use: bool = True, start: int = 0) -> None:
        """End an owner's lease."""
        with self._lock:
            self._leases.release(owner, last_use=last_use, start=start)
            self._settle()

    def release_run(self, run: str) -> None:
        """End all leases of a run."""
        with self._lock:
            self._leases.release_run(run)
            self._scheduler.waiting.forget(run)
            self._settle()

    def acknowledge(self, done: Callable[[], None]) -> None:
        """Everything is done at once."""
        done()

    def stats(self) -> EngineStats:
        """Counters and pool."""
        return self._stats

    def close(self) -> None:
        """Fail what is still delayed."""
        with self._lock:
            self._closed = True
            delayed, self._delayed = self._delayed, {}
            for live, _ in delayed.values():
                live.ticket.sink.failed(RuntimeClosed("the runtime was closed"))

    # -------------------------------------------------------------------------------- how it answers

    @cached_property
    def _by_bytes(self) -> dict[bytes, int]:
        return ids_by_bytes(self._tokenizer)

    def _start(self, ticket: Ticket) -> tuple[Live, float] | None:
        """Take a request up; its state and how long it takes, or None if it has failed already."""
        request = ticket.request
        live = Live.of(ticket, TextStream(self._tokenizer.token_bytes, request.stop))
        self._reporter.started(live)
        try:
            reply = self._reply(request)
            if isinstance(reply.value, BaseException):
                raise reply.value
            pen = Pen(live, text_of(reply.value).encode(), self._tokenizer, lambda: self._by_bytes)
            if request.max_tokens and self._jump_forward and request.jump_forward:
                live.complete = pen.forced(None)
                live.static = live.length
        except Exception as error:
            self._reporter.ended(live, "failed")
            ticket.sink.failed(error)
            return None
        self._pens[ticket.number] = pen
        return live, reply.seconds

    def _reply(self, request: Request) -> Reply:
        if request.max_tokens == 0:
            return Reply("")
        prompt = self._tokenizer.decode(request.prompt, special=True)
        return self._teller.answer(
            ScriptedRequest(request.scope.run, request.scope.path, prompt, request.max_tokens)
        )

    def _delay(self, seconds: float, wave: list[Live]) -> None:
        def act() -> None:
            with self._lock:
                due = [live for live in wave if self._delayed.pop(live.ticket.number, None) is not None]
                self._process(due)

        cancel = later(seconds, act)
        self._delayed |= {live.ticket.number: (live, cancel) for live in wave}

    def _process(self, wave: list[Live]) -> None:
        """Run the steps of a wave until all of it has ended."""
        for live in wave:
            self._scheduler.add(live)
        while self._scheduler.waiting or self._scheduler.running:
            step = self._scheduler.plan()
            for live, lost in step.preempted:
                self._reporter.preempted(live, lost)
            for live, error in step.failed:
                self._fail(live, error)
            for live in step.ready:
                self._finish(live, "stop")
            if step.chunks:
                self._reporter.counters.forward_passes += 1
            for chunk in step.chunks:
                self._commit(chunk)
        self._settle()

    def _commit(self, chunk: Chunk) -> None:
        live = chunk.sequence
        prompt = live.prompt_length
        self._reporter.counters.computed_tokens += min(chunk.stop, prompt) - min(chunk.start, prompt)
        known = live.cached + live.prompt_computed
        live.prompt_computed += max(0, min(chunk.stop, prompt) - known)
        live.cursor = chunk.stop
        live.passes += 1
        if live.request.score_from is not None:
            live.scores += [SCORE] * len(chunk.wanted)
        if live.cursor < live.length:
            return
        try:
            end = "stop"
            if live.request.max_tokens and not live.complete:
                jump = self._jump_forward and live.request.jump_forward
                end = self._pens[live.ticket.number].step(jump_forward=jump)
        except Exception as error:
            self._fail(live, error)
            return
        if end is not None:
            self._finish(live, "stop" if end == "stop" else "length")
        else:
            self._report(live, live.text.take())

    def _finish(self, live: Live, finish: Literal["stop", "length"]) -> None:
        kept, fragment = live.text.kept()
        tail = tuple(self._tokenizer.encode(fragment.decode(errors="replace"))) if fragment else ()
        self._report(live, live.text.take() + live.text.rest())
        self._scheduler.publish(live, min(live.prompt_length + kept, live.have))
        hold = live.request.hold
        if hold is not None and live.lock is not None:
            self._leases.hold(hold.owner, live.lock.node, hold.seconds)
        self._over(live, finish)
        live.ticket.sink.done(live.result(finish=finish, end_token=None, tail=tail))

    def _fail(self, live: Live, error: Exception) -> None:
        self._over(live, "failed")
        live.ticket.sink.failed(error)

    def _over(self, live: Live, finish: Literal["stop", "length", "failed"]) -> None:
        self._pens.pop(live.ticket.number, None)
        self._scheduler.remove(live)
        self._reporter.ended(live, finish)
        self._settle()

    def _settle(self) -> None:
        self._stats = self._reporter.after_step(idle=True)

    def _report(self, live: Live, text: str) -> None:
        if text:
            if live.ticket.sink.progress is not None:
                live.ticket.sink.progress(Progress(text, live.generated))
            self._reporter.text(live, text)

    def _refuse_unfit(self, request: Request) -> None:
        needed = len(request.prompt) + request.max_tokens
        if not request.prompt:
            raise AgentreeError(
                "a request needs at least one token of prompt: add a message or raw text first"
            )
        if needed > self._slots:
            raise ContextOverflow(
                f"{len(request.prompt)} prompt tokens and up to {request.max_tokens} new ones need {needed}, "
                f"but the scripted KV pool holds {self._slots}: open it with a larger kv_tokens",
                needed=needed,
                limit=self._slots,
                prompt=len(request.prompt),
                max_tokens=request.max_tokens,
            )

    def check(self) -> None:
        """Raise on any broken invariant of slots and tree."""
        with self._lock:
            self._scheduler.check()
