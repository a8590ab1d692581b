"""What the engine tells the world: counters after each step, and events for whoever reads them."""

import time
from dataclasses import fields
from typing import Literal

from agentree.events import (
    Bus,
    Evicted,
    GenerationEnded,
    GenerationStarted,
    LeaseRevoked,
    PoolState,
    Preempted,
    TextGenerated,
    ToolCallNamed,
    ToolCallWritten,
)
from agentree.runtime.cache import Cache, Eviction
from agentree.runtime.request import Scope
from agentree.runtime.scheduler import Scheduler
from agentree.runtime.sequence import Sequence
from agentree.runtime.stats import Counters, EngineStats

POOL_STATE_INTERVAL = 0.1
"""Seconds between two PoolState events while a trace is read."""

_SHARED = sorted({f.name for f in fields(PoolState)} & {f.name for f in fields(EngineStats)})


class Reporter:
    """Counters and events of one engine. The engine thread owns it."""

    def __init__(self, bus: Bus, cache: Cache, scheduler: Scheduler) -> None:
        self.counters = Counters()
        self._bus = bus
        self._cache = cache
        self._scheduler = scheduler
        self._pool_state_at = 0.0

    def started(self, sequence: Sequence) -> None:
        """A request was taken up."""
        scope = sequence.request.scope
        self._bus.emit(
            GenerationStarted(
                run=scope.run,
                path=scope.path,
                request=sequence.ticket.number,
                prompt_tokens=sequence.prompt_length,
            )
        )

    def heard(self, sequence: Sequence) -> bool:
        """Whether anybody reads what a sequence generates while it does."""
        return self._bus.watched or sequence.ticket.sink.progress is not None

    def text(self, sequence: Sequence, text: str) -> None:
        """Text was generated."""
        if self._bus.watched:
            scope = sequence.request.scope
            counts = sequence.counts()
            self._bus.emit(
                TextGenerated(
                    run=scope.run,
                    path=scope.path,
                    request=sequence.ticket.number,
                    text=text,
                    cached_tokens=counts.cached,
                    computed_tokens=counts.computed,
                    sampled_tokens=counts.sampled,
                    forced_tokens=counts.forced,
                )
            )

    def calls(self, sequence: Sequence) -> None:
        """Tell of tool calls as far as they are written."""
        if sequence.watch is None or not self._bus.watched:
            return
        from agentree.runtime.constraint import CallNamed

        scope, number = sequence.request.scope, sequence.ticket.number
        data = sequence.text.data_from(sequence.watched)
        sequence.watched += len(data)
        for news in sequence.watch.push(data):
            self._bus.emit(
                ToolCallNamed(
                    run=scope.run, path=scope.path, request=number, index=news.index, tool=news.tool
                )
                if isinstance(news, CallNamed)
                else ToolCallWritten(
                    run=scope.run,
                    path=scope.path,
                    request=number,
                    index=news.index,
                    tool=news.tool,
                    arguments=news.arguments,
                )
            )

    def preempted(self, sequence: Sequence, lost: int) -> None:
        """A request gave its slots back; `lost` private tokens have to be computed again."""
        self.counters.preempted_requests += 1
        scope = sequence.request.scope
        self._bus.emit(Preempted(run=scope.run, path=scope.path, request=sequence.ticket.number, tokens=lost))

    def ended(self, sequence: Sequence, finish: Literal["stop", "length", "aborted", "failed"]) -> None:
        """A request is over, one way or another."""
        scope, counts = sequence.request.scope, sequence.counts()
        self.counters.lookup_tokens += counts.cached + counts.computed
        self.counters.hit_tokens += counts.cached
        self.counters.sampled_tokens += counts.sampled
        self.counters.forced_tokens += counts.forced
        self.counters.near_ties += sequence.near_ties
        self._bus.emit(
            GenerationEnded(
                run=scope.run,
                path=scope.path,
                request=sequence.ticket.number,
                prompt_tokens=counts.prompt,
                cached_tokens=counts.cached,
                computed_tokens=counts.computed,
                sampled_tokens=counts.sampled,
                forced_tokens=counts.forced,
                forward_passes=counts.forward_passes,
                text=sequence.text.text(),
                finish=finish,
                seconds=time.monotonic() - sequence.started,
                miss=sequence.miss,
                engine=sequence.request.constraint.engine if sequence.request.constraint else "",
            )
        )

    def after_step(self, *, idle: bool) -> EngineStats:
        """Tell what the cache gave up in this step, and copy the counters and the pool's state."""
        cache, counters = self._cache, self.counters
        for report in cache.take_reports():
            by = Scope.named(report.by)
            if isinstance(report, Eviction):
                self._bus.emit(Evicted(run=by.run, path=by.path, tokens=report.tokens))
            else:
                self._bus.emit(
                    LeaseRevoked(run=by.run, path=by.path, owner=report.owner, tokens=report.tokens)
                )
        counters.evicted_tokens = cache.evicted_tokens
        counters.revoked_leases = cache.revoked_leases
        stats = EngineStats(
            pool=cache.size,
            free=cache.free,
            private=cache.private,
            tree=cache.tree,
            leased=cache.leased,
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            **vars(counters),
        )
        now = time.monotonic()
        if self._bus.watched and (idle or now - self._pool_state_at > POOL_STATE_INTERVAL):
            self._pool_state_at = now
            self._bus.emit(PoolState(**{name: getattr(stats, name) for name in _SHARED}))
        return stats
