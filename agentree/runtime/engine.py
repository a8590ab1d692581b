"""The engine: one thread that owns the model, the pool and the tree, and turns requests into tokens."""

import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from agentree.errors import RuntimeClosed
from agentree.events import Bus
from agentree.runtime.batching import batch_of
from agentree.runtime.cache import Cache
from agentree.runtime.commit import End, append_forced, commit
from agentree.runtime.fit import refuse_unfit
from agentree.runtime.leases import Leases
from agentree.runtime.model.load import LoadedModel
from agentree.runtime.reporter import Reporter
from agentree.runtime.request import Hold, Progress, Request, Sink, Ticket
from agentree.runtime.scheduler import Chunk, Scheduler, Step
from agentree.runtime.sequence import Sequence as Live
from agentree.runtime.snapshot import snapshot
from agentree.runtime.speculate import Speculator
from agentree.runtime.stats import EngineStats
from agentree.runtime.text import TextStream

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Engine:
    """Continuous batching over one model. All methods may be called from any thread."""

    def __init__(
        self,
        model: LoadedModel,
        *,
        bus: Bus,
        eviction: Literal["plan", "lru"] = "plan",
        max_batch_tokens: int = 512,
        jump_forward: bool = True,
        speculate: bool = True,
    ) -> None:
        self._model = model
        self._jump_forward = jump_forward
        self._cache = Cache(model.kv.slots, policy=eviction)
        self._leases = Leases(self._cache)
        self._speculator = Speculator(self._cache, jump_forward=jump_forward) if speculate else None
        # On the CPU others may hold up a forward for any time; what it uses itself tells what it costs.
        self._clock = time.process_time if model.kv.kv[0].device.type == "cpu" else time.perf_counter
        self._scheduler = Scheduler(
            self._cache,
            scratch=model.kv.scratch,
            max_batch_tokens=max_batch_tokens,
            speculator=self._speculator,
        )
        self._check_every_step = os.environ.get("AGENTREE_CHECK") == "1"
        self._numbers = itertools.count(1)
        self._wake = threading.Condition()
        self._todo: list[Callable[[], None]] = []
        self._doing: deque[Callable[[], None]] = deque()
        self._sequences: dict[int, Live] = {}
        self._deliveries: list[Callable[[], None]] = []
        self._closing = False
        self._failure: BaseException | None = None
        self._reporter = Reporter(bus, self._cache, self._scheduler)
        self._stats = EngineStats(pool=model.kv.slots, free=model.kv.slots)
        self._thread = threading.Thread(target=self._run, name="agentree-engine", daemon=True)
        self._launch()

    def _launch(self) -> None:
        self._thread.start()

    # ------------------------------------------------------------------------- from any thread

    def submit(self, request: Request, sink: Sink) -> Ticket:
        """Queue a request; the sink is called on the engine thread.

        Raises:
            ContextOverflow: Prompt and output can never fit the model's context or the pool.
            RuntimeClosed: The engine is closed or has failed.
        """
        self._refuse_unfit(request)
        ticket = Ticket(next(self._numbers), request, sink)
        self.post(lambda: self._start(ticket))
        return ticket

    def submit_all(self, requests: list[tuple[Request, Sink]]) -> list[Ticket]:
        """Queue requests as one wave: they are admitted in the same step, in this order."""
        for request, _ in requests:
            self._refuse_unfit(request)
        tickets = [Ticket(next(self._numbers), request, sink) for request, sink in requests]

        def start() -> None:
            for ticket in tickets:
                self._start(ticket)

        self.post(start)
        return tickets

    def abort(self, ticket: Ticket) -> None:
        """Stop a request and free what it holds; its sink hears nothing more. Harmless when it is over."""
        self._post_quietly(lambda: self._abort(ticket))

    def hold(self, hold: Hold, ids: Sequence[int], namespace: Hashable) -> None:
        """Lease as much of a transcript as is cached. Harmless when the engine is closed."""
        self._post_quietly(lambda: self._leases.hold_ids(hold.owner, ids, namespace, hold.seconds))

    def expect(self, owner: str, seconds: float) -> None:
        """Say anew how long until an owner uses what it holds. Harmless where it holds nothing."""
        self._post_quietly(lambda: self._leases.expect(owner, seconds))

    def release(self, owner: str, *, last_use: bool = True, start: int = 0) -> None:
        """End an owner's lease. With `last_use` its tokens from `start` on are the next to be evicted."""
        self._post_quietly(lambda: self._leases.release(owner, last_use=last_use, start=start))

    def release_run(self, run: str) -> None:
        """The run is over: end the leases of all owners named `run` or `run/...`."""
        self._post_quietly(lambda: self._forget(run))

    def acknowledge(self, done: Callable[[], None]) -> None:
        """Have `done` called once everything that was asked for before is done and counted.

        Between two steps, on the engine thread; at once where the engine is closed.
        """
        try:
            self.post(lambda: self._acknowledge(done))
        except RuntimeClosed:
            done()

    def stats(self) -> EngineStats:
        """Counters and pool as of the last step."""
        return self._stats

    def snapshot(self, reply: Callable[[dict[str, Any]], None]) -> None:
        """Have `reply` called on the engine thread with what `snapshot.snapshot` tells of this moment.

        Raises:
            RuntimeClosed: The engine is closed or has failed.
        """
        self.post(lambda: reply(snapshot(self._stats, self._cache, self._scheduler)))

    def close(self) -> None:
        """Stop after the step that is running. Requests that are not over fail with RuntimeClosed."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def post(self, action: Callable[[], None]) -> None:
        """Run an action on the engine thread between two steps. Raises RuntimeClosed like `submit`."""
        with self._wake:
            if self._closing or self._failure is not None:
                raise self._closed()
            self._todo.append(action)
            self._wake.notify()

    def _post_quietly(self, action: Callable[[], None]) -> None:
        with suppress(RuntimeClosed):
            self.post(action)

    def _closed(self) -> RuntimeClosed:
        if self._failure is None:
            return RuntimeClosed("the runtime is closed: open a new one with `async with Runtime(...) as lm`")
        error = RuntimeClosed(f"the engine stopped: {self._failure!r}; open a new runtime")
        error.__cause__ = self._failure
        return error

    def _refuse_unfit(self, request: Request) -> None:
        config = self._model.config
        refuse_unfit(request, context=config.context, slots=self._model.kv.slots, vocab=config.vocab_size)

    # ---------------------------------------------------------------------- on the engine thread

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:
            with self._wake:
                self._failure = error
        finally:
            self._end()

    def _turn(self) -> bool:
        """Do what was asked for and one step; False once the engine is closing."""
        with self._wake:
            while not (self._todo or self._closing or self._busy):
                self._wake.wait()
            self._doing.extend(self._todo)
            self._todo.clear()
            closing = self._closing
        while self._doing:
            self._doing.popleft()()
        if closing:
            return False
        if self._busy:
            self._step()
        self._stats = self._reporter.after_step(idle=not self._busy)
        self._flush()
        return True

    def _end(self) -> None:
        with self._wake:
            closed = self._closed()
            self._closing = True
            self._doing.extend(self._todo)
            self._todo.clear()
        # Requests that were submitted and not taken up wait for an answer as well.
        for action in self._doing:
            with suppress(Exception):
                action()
        for sequence in tuple(self._sequences.values()):
            # After a failure cache and counters may be in any state; whoever waits is told all the same.
            with suppress(Exception):
                self._scheduler.remove(sequence)
                self._reporter.ended(sequence, "failed")
            self._hear(sequence.ticket.sink.failed, closed)
        self._sequences.clear()
        with suppress(Exception):
            self._stats = self._reporter.after_step(idle=True)
        self._flush()

    @property
    def _busy(self) -> bool:
        return bool(self._sequences)

    def _start(self, ticket: Ticket) -> None:
        request = ticket.request
        try:
            sequence = Live.of(ticket, TextStream(self._model.tokenizer.token_bytes, request.stop))
            if self._jump_forward and request.jump_forward:
                sequence.complete = append_forced(sequence, None)
                sequence.static = sequence.length
        except Exception as error:
            self._hear(ticket.sink.failed, error)
            return
        self._sequences[ticket.number] = sequence
        self._scheduler.add(sequence)
        self._reporter.started(sequence)

    def _abort(self, ticket: Ticket) -> None:
        sequence = self._sequences.pop(ticket.number, None)
        if sequence is not None:
            self._scheduler.remove(sequence)
            self._reporter.ended(sequence, "aborted")

    def _step(self) -> None:
        mark = self._cache.mark()
        step = self._scheduler.plan()
        for sequence, lost in step.preempted:
            self._reporter.preempted(sequence, lost)
        for sequence, error in step.failed:
            self._fail(sequence, error)
        for sequence in step.ready:
            self._finish(sequence, End("stop"))
        if step.chunks:
            try:
                batch, row_of = batch_of(step)
                began = self._clock()
                logits = self._model.decoder.forward(batch, self._model.kv).cpu().numpy()
                if self._speculator is not None:
                    self._speculator.costs.observe(len(batch.rows), step.queries, self._clock() - began)
                self._reporter.counters.forward_passes += 1
            except Exception as error:
                # A running request outside this batch may stand on nodes that were published for it.
                for sequence in tuple(self._scheduler.running):
                    self._fail(sequence, error)
                self._cache.discard_since(mark)
            else:
                self._commit(step, logits, row_of)
        if self._check_every_step:
            self._scheduler.check()

    def _commit(self, step: Step, logits: NDArray[np.float32], row_of: dict[int, int]) -> None:
        for chunk in step.chunks:
            sequence = chunk.sequence
            prompt = sequence.prompt_length
            self._reporter.counters.computed_tokens += min(chunk.stop, prompt) - min(chunk.start, prompt)
            try:
                rows = [logits[row_of[query]] for _, query in chunk.wanted]
                end = commit(chunk, rows, jump_forward=self._jump_forward and sequence.request.jump_forward)
                if self._speculator is not None and chunk.guessed:
                    self._settle(chunk, self._speculator)
                if end is not None:
                    self._finish(sequence, end)
                elif sequence.generated and self._reporter.heard(sequence):
                    self._report(sequence, sequence.text.take())
            except Exception as error:
                self._fail(sequence, error)

    def _acknowledge(self, done: Callable[[], None]) -> None:
        try:
            self._stats = self._reporter.after_step(idle=not self._busy)
        finally:
            done()

    def _settle(self, chunk: Chunk, speculator: Speculator) -> None:
        self._reporter.counters.guessed_tokens += chunk.guessed
        self._reporter.counters.confirmed_tokens += chunk.sequence.cursor - (chunk.stop - chunk.guessed)
        self._scheduler.forget_guesses(chunk)
        speculator.learn(chunk.sequence, chunk.right, chunk.wrong)

    def _forget(self, run: str) -> None:
        self._leases.release_run(run)
        self._scheduler.waiting.forget(run)

    def _finish(self, sequence: Live, end: End) -> None:
        kept, fragment = sequence.text.kept()
        tail = tuple(self._model.tokenizer.encode(fragment.decode(errors="replace"))) if fragment else ()
        self._report(sequence, sequence.text.take() + sequence.text.rest())
        del self._sequences[sequence.ticket.number]
        self._scheduler.publish(sequence, min(sequence.prompt_length + kept, sequence.have))
        hold = sequence.request.hold
        if hold is not None and sequence.lock is not None:
            self._leases.hold(hold.owner, sequence.lock.node, hold.seconds)
        self._scheduler.remove(sequence)
        self._reporter.ended(sequence, end.finish)
        result = sequence.result(finish=end.finish, end_token=end.end_token, tail=tail)
        self._hear(sequence.ticket.sink.done, result)

    def _fail(self, sequence: Live, error: Exception) -> None:
        self._sequences.pop(sequence.ticket.number, None)
        self._scheduler.remove(sequence)
        self._reporter.ended(sequence, "failed")
        self._hear(sequence.ticket.sink.failed, error)

    def _report(self, sequence: Live, text: str) -> None:
        if text and sequence.ticket.sink.progress is not None:
            self._hear(sequence.ticket.sink.progress, Progress(text, sequence.generated))
        if text:
            self._reporter.text(sequence, text)
        self._reporter.calls(sequence)

    def _hear(self, call: Callable[[T], None], what: T) -> None:
        """Call a sink at the end of the step, when the stats already tell of what it says."""
        self._deliveries.append(lambda: call(what))

    def _flush(self) -> None:
        deliveries, self._deliveries = self._deliveries, []
        for deliver in deliveries:
            try:
                deliver()
            except Exception:
                # A sink that fails can't be told so; everybody else goes on.
                _log.exception("a sink raised")
