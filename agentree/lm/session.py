"""An open runtime: one engine with its tokenizer and template, and how calls wait for it."""

import itertools
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from agentree.errors import ContextOverflow, RuntimeClosed
from agentree.events import Bus
from agentree.lm.drift import TemplateReport, check_template
from agentree.lm.generation import Stats
from agentree.lm.inbox import Inbox, Inboxes
from agentree.lm.monitor import Monitor
from agentree.lm.prompt import Prompts, TextTokens
from agentree.lm.waits import Waits
from agentree.runtime.request import Hold, Request, Result, Sink, Ticket

if TYPE_CHECKING:
    from agentree.lm.target import Target
    from agentree.runtime.constraint import Vocabulary


class Recall(Protocol):
    """What was generated in a run before, so that it is not generated again."""

    def known(self, request: Request) -> Result | None:
        """What the next request of this content came to, if that is known."""
        ...

    async def keep(self, made: Sequence[tuple[Request, Result]]) -> None:
        """Store what was generated. Returns once it is safe."""
        ...


class EngineLike(Protocol):
    """What a runtime asks of an engine. Sinks are called on a thread of the engine's own, or at once."""

    def submit_all(self, requests: list[tuple[Request, Sink]]) -> list[Ticket]: ...
    def abort(self, ticket: Ticket) -> None: ...
    def hold(self, hold: Hold, ids: Sequence[int], namespace: Hashable) -> None: ...
    def expect(self, owner: str, seconds: float) -> None: ...
    def release(self, owner: str, *, last_use: bool = True, start: int = 0) -> None: ...
    def release_run(self, run: str) -> None: ...
    def acknowledge(self, done: Callable[[], None]) -> None: ...
    def stats(self) -> Any: ...
    def close(self) -> None: ...


class ModelTokens(TextTokens, Protocol):
    """What a runtime asks of a tokenizer."""

    @property
    def end_ids(self) -> frozenset[int]: ...
    def vocabulary(self) -> "Vocabulary": ...


class Running:
    """Requests of one wave that were submitted. Its state changes on the event loop only."""

    def __init__(
        self, inbox: Inbox, engine: EngineLike, *, changed: Callable[[], None] | None = None
    ) -> None:
        self._inbox = inbox
        self._engine = engine
        self._changed = changed
        self._over = anyio.Event()
        self._tickets: dict[int, Ticket] = {}
        """Of requests that are not over, by their place in the wave."""
        self._results: list[Result | None] = []
        self._errors: dict[int, BaseException] = {}
        self.pieces: list[str] = []
        """Text that came and was not taken yet, where progress was asked for."""

    def submit(self, requests: Sequence[Request], *, progress: bool = False) -> None:
        """Hand the wave to the engine, to be admitted in one step in this order."""
        self._results = [None] * len(requests)
        wave = [(request, self._sink(i, progress)) for i, request in enumerate(requests)]
        self._tickets = dict(enumerate(self._engine.submit_all(wave)))

    @property
    def over(self) -> bool:
        """Whether all are done or one has failed."""
        return self._over.is_set()

    @property
    def fine(self) -> bool:
        """Whether all are done and none has failed."""
        return self.over and not self._errors

    def results(self) -> list[Result]:
        """Results in order, once it is over. Raises the error of the first request that failed."""
        for _, error in sorted(self._errors.items()):
            raise error
        return [r for r in self._results if r is not None]

    async def wait(self) -> list[Result]:
        """Wait for all; if one fails or the caller is cancelled, the others are aborted, as by `stop`."""
        try:
            await self._over.wait()
            return self.results()
        except GeneratorExit:  # whoever waited is thrown away: nothing can be awaited any more
            self.abort()
            raise
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Abort what still runs, and wait for the engine to have given back what it held: a step at most.

        Whatever the engine says afterwards goes nowhere.
        """
        if self._tickets:
            self.abort()
            await settled(self._engine, self._inbox)

    def abort(self) -> None:
        """Abort what still runs, without waiting."""
        for ticket in self._tickets.values():
            self._engine.abort(ticket)
        self._tickets.clear()

    def _sink(self, index: int, progress: bool) -> Sink:
        return Sink(
            progress=(lambda p: self._inbox.put(lambda: self._tell(p.text))) if progress else None,
            done=lambda result: self._inbox.put(lambda: self._done(index, result)),
            failed=lambda error: self._inbox.put(lambda: self._failed(index, error)),
        )

    def _tell(self, text: str) -> None:
        self.pieces.append(text)
        self._notify()

    def _done(self, index: int, result: Result) -> None:
        self._tickets.pop(index, None)
        self._results[index] = result
        if None not in self._results:
            self._over.set()
            self._notify()

    def _failed(self, index: int, error: BaseException) -> None:
        self._tickets.pop(index, None)
        self._errors[index] = error
        self._over.set()
        self._notify()

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed()


async def settled(engine: EngineLike, inbox: Inbox) -> None:
    """Wait until an engine has done what was asked of it before, whatever is cancelled around.

    It does so between two steps. A task that asyncio cancels once more, as by a second Ctrl-C, waits no more.
    """
    done = anyio.Event()
    with anyio.CancelScope(shield=True):
        engine.acknowledge(lambda: inbox.put(done.set))
        await done.wait()


class Session:
    """One opened model. Transcripts belong to a session; when it is closed they can still be read."""

    def __init__(
        self,
        *,
        name: str,
        engine: EngineLike,
        tokenizer: ModelTokens,
        template: str | None,
        bus: Bus,
        context: int,
        pool: int,
        inboxes: Inboxes | None = None,
    ) -> None:
        self.name = name
        self.tokenizer = tokenizer
        self.prompts = Prompts(template, tokenizer)
        self.bus = bus
        self.inboxes = inboxes or Inboxes()
        self.targets: dict[object, Target] = {}
        """Bound constraints of the types asked for so far."""
        self.held_runs: set[str] = set()
        """Runs whose transcripts are leased from turn to turn."""
        self.recalls: dict[str, Recall] = {}
        """By run, what is known of its generations."""
        self.waits = Waits()
        self.monitor: Monitor | None = None
        """Where other processes may look into the engine."""
        self._numbers = itertools.count(1)
        self._sizes = (("the model's context", context), ("the KV pool", pool))
        self._lock = threading.Lock()
        self._engine: EngineLike | None = engine
        self._last: Stats | None = None
        self._report: TemplateReport | None = None

    def start(
        self,
        requests: Sequence[Request],
        *,
        progress: bool = False,
        changed: Callable[[], None] | None = None,
    ) -> Running:
        """Submit a wave of requests from an event loop. Raises RuntimeClosed and ContextOverflow."""
        running = Running(self.inboxes.current(), self.engine(), changed=changed)
        for request in requests:
            if request.hold is not None:
                self.waits.back(request.hold.owner)
        running.submit(requests, progress=progress)
        return running

    async def run(self, requests: Sequence[Request]) -> list[Result]:
        """Results of a wave, in order. What is known of a run from before is not generated again."""
        recall = self.recalls.get(requests[0].scope.run) if requests else None
        if recall is None:
            return await self.start(requests).wait() if requests else []
        known = [recall.known(request) for request in requests]
        new = [request for request, found in zip(requests, known, strict=True) if found is None]
        made = await self.start(new).wait() if new else []
        await recall.keep(list(zip(new, made, strict=True)))
        rest = iter(made)
        return [next(rest) if found is None else found for found in known]

    def refuse_overflow(self, prompt: int, new: int) -> None:
        """Raise ContextOverflow if so many tokens can never fit."""
        for what, size in self._sizes:
            if prompt + new > size:
                sizes = " and ".join(f"{name} holds {limit}" for name, limit in self._sizes)
                raise ContextOverflow(
                    f"{prompt} prompt tokens and up to {new} new ones don't fit {what}: {sizes}; "
                    "shorten the transcript or ask for fewer tokens",
                    needed=prompt + new,
                    limit=size,
                    prompt=prompt,
                    max_tokens=new,
                )

    def number(self) -> int:
        """A number that no other owner of this session has."""
        return next(self._numbers)

    def hold(self, hold: Hold, ids: Sequence[int], namespace: Hashable) -> None:
        """Lease as much of a transcript as is cached. Harmless when closed."""
        with suppress(RuntimeClosed):
            self.engine().hold(hold, ids, namespace)

    def leave(self, owner: str, what: Sequence[str]) -> None:
        """An owner does something else before it goes on: its lease says for how long, by the means."""
        seconds = self.waits.leave(owner, what)
        with suppress(RuntimeClosed):
            self.engine().expect(owner, seconds)

    def release(self, owner: str, *, last_use: bool, start: int = 0) -> None:
        """End a lease. Harmless when closed, as is ending one twice."""
        self.waits.forget(owner)
        with suppress(RuntimeClosed):
            self.engine().release(owner, last_use=last_use, start=start)

    def begin_run(self, run: str) -> None:
        """From now on the transcript of this run is leased from turn to turn."""
        self.held_runs.add(run)

    def end_run(self, run: str) -> None:
        """End all leases of a run."""
        self.held_runs.discard(run)
        self.waits.forget_run(run)
        with suppress(RuntimeClosed):
            self.engine().release_run(run)

    async def settled(self) -> None:
        """Wait until the engine has done what was asked of it. At once when closed."""
        with suppress(RuntimeClosed):
            await settled(self.engine(), self.inboxes.current())

    def engine(self) -> EngineLike:
        """The engine. Raises RuntimeClosed once it is closed."""
        with self._lock:
            if self._engine is None:
                raise RuntimeClosed(
                    "the runtime is closed: a transcript generates inside the block that made it, "
                    "`async with Runtime(...) as lm:`"
                )
            return self._engine

    def stats(self) -> Stats:
        """What the engine counts; after closing, what it counted last."""
        with self._lock:
            engine, last = self._engine, self._last
        if engine is not None:
            return Stats.of(engine.stats())
        if last is None:
            raise RuntimeClosed("the runtime was closed before it counted anything")
        return last

    def template_report(self) -> TemplateReport:
        """What the model's chat template can't do, and where re-rendering would break a prefix."""
        if self._report is None:
            self._report = check_template(self.prompts)
        return self._report

    def close(self) -> None:
        """Close the engine: whatever waits fails with RuntimeClosed. Blocks until its thread has ended."""
        with self._lock:
            engine, self._engine = self._engine, None
        if self.monitor is not None:
            self.monitor.close()
        if engine is not None:
            engine.close()
            self._last = Stats.of(engine.stats())
