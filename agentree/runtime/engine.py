"""The engine: one thread that owns the model, the pool and the tree, and turns requests into tokens."""

import itertools
import os
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Literal

import numpy as np
import torch

from agentree.errors import AgentreeError, ContextOverflow, RuntimeClosed
from agentree.events import Bus
from agentree.runtime.cache import Cache
from agentree.runtime.commit import End, append_forced, commit
from agentree.runtime.leases import Leases
from agentree.runtime.model.batch import Batch, Row
from agentree.runtime.model.load import LoadedModel
from agentree.runtime.reporter import Reporter
from agentree.runtime.request import Hold, Progress, Request, Sink, Ticket
from agentree.runtime.scheduler import Scheduler, Step
from agentree.runtime.sequence import Sequence as Live
from agentree.runtime.stats import EngineStats
from agentree.runtime.text import TextStream


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
    ) -> None:
        self._model = model
        self._jump_forward = jump_forward
        self._cache = Cache(model.kv.slots, policy=eviction)
        self._leases = Leases(self._cache)
        self._scheduler = Scheduler(self._cache, scratch=model.kv.scratch, max_batch_tokens=max_batch_tokens)
        self._check_every_step = os.environ.get("AGENTREE_CHECK") == "1"
        self._numbers = itertools.count(1)
        self._wake = threading.Condition()
        self._todo: list[Callable[[], None]] = []
        self._sequences: dict[int, Live] = {}
        self._deliveries: list[Callable[[], None]] = []
        self._closing = False
        self._failure: BaseException | None = None
        self._reporter = Reporter(bus, self._cache, self._scheduler)
        self._stats = EngineStats(pool=model.kv.slots, free=model.kv.slots)
        self._thread = threading.Thread(target=self._run, name="agentree-engine", daemon=True)
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

    def release(self, owner: str, *, last_use: bool = True, start: int = 0) -> None:
        """End an owner's lease. With `last_use` its tokens from `start` on are the next to be evicted."""
        self._post_quietly(lambda: self._leases.release(owner, last_use=last_use, start=start))

    def release_run(self, run: str) -> None:
        """End the leases of all owners named `run` or `run/...`."""
        self._post_quietly(lambda: self._leases.release_run(run))

    def stats(self) -> EngineStats:
        """Counters and pool as of the last step."""
        return self._stats

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
        prompt = len(request.prompt)
        needed = prompt + request.max_tokens
        if prompt == 0:
            raise AgentreeError(
                "a request needs at least one token of prompt: add a message or raw text first"
            )
        for limit, what, remedy in (
            (self._model.config.context, "the model's context", "shorten the transcript or max_tokens"),
            (self._model.kv.slots, "the KV pool", "open the runtime with a larger kv_tokens"),
        ):
            if needed > limit:
                raise ContextOverflow(
                    f"{prompt} prompt tokens and up to {request.max_tokens} new ones need {needed}, but "
                    f"{what} holds {limit}: {remedy}",
                    needed=needed,
                    limit=limit,
                )

    # ---------------------------------------------------------------------- on the engine thread

    def _run(self) -> None:
        try:
            while True:
                with self._wake:
                    while not (self._todo or self._closing or self._busy):
                        self._wake.wait()
                    todo, self._todo = self._todo, []
                    closing = self._closing
                for action in todo:
                    action()
                if closing:
                    break
                if self._busy:
                    self._step()
                else:
                    self._stats = self._reporter.after_step(idle=True)
        except BaseException as error:
            with self._wake:
                self._failure = error
        finally:
            with self._wake:
                closed = self._closed()
                self._closing = True
                todo, self._todo = self._todo, []
            for deliver in self._deliveries:
                deliver()
            for sequence in tuple(self._sequences.values()):
                sequence.ticket.sink.failed(closed)
            self._sequences.clear()

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
            ticket.sink.failed(error)
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
                logits, row_of = self._forward(step)
            except Exception as error:
                # A running request outside this batch may stand on nodes that were published for it.
                for sequence in tuple(self._scheduler.running):
                    self._fail(sequence, error)
                self._cache.discard_since(mark)
            else:
                self._commit(step, logits, row_of)
        if self._check_every_step:
            self._scheduler.check()
        self._stats = self._reporter.after_step(idle=not self._busy)
        deliveries, self._deliveries = self._deliveries, []
        for deliver in deliveries:
            deliver()

    def _forward(self, step: Step) -> tuple[torch.Tensor, dict[int, int]]:
        """Run the batch: logits [wanted, vocab], and which of its rows belongs to which query."""
        chunks = [c for c in step.chunks if c.stop > c.start]
        ids = np.concatenate([c.sequence.ids[c.start : c.stop] for c in chunks]).astype(np.int64)
        positions = np.concatenate([np.arange(c.start, c.stop) for c in chunks])
        rows: list[Row] = []
        begin = 0
        for c in chunks:
            end = begin + c.stop - c.start
            rows.append(Row(begin, end, torch.from_numpy(c.sequence.row[: c.stop])))
            begin = end
        wanted = sorted({query for c in step.chunks for _, query in c.wanted})
        batch = Batch(
            ids=torch.from_numpy(ids),
            positions=torch.from_numpy(positions),
            slots=torch.from_numpy(np.concatenate([c.writes for c in chunks])),
            rows=rows,
            wanted=torch.tensor(wanted, dtype=torch.int64),
        )
        logits = self._model.decoder.forward(batch, self._model.kv)
        self._reporter.counters.forward_passes += 1
        return logits, {query: i for i, query in enumerate(wanted)}

    def _commit(self, step: Step, logits: torch.Tensor, row_of: dict[int, int]) -> None:
        for chunk in step.chunks:
            sequence = chunk.sequence
            prompt = sequence.prompt_length
            self._reporter.counters.computed_tokens += min(chunk.stop, prompt) - min(chunk.start, prompt)
            try:
                rows = logits[[row_of[query] for _, query in chunk.wanted]]
                end = commit(chunk, rows, jump_forward=self._jump_forward and sequence.request.jump_forward)
            except Exception as error:
                self._fail(sequence, error)
                continue
            if end is not None:
                self._finish(sequence, end)
            elif sequence.generated:
                self._report(sequence, sequence.text.take())

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
        self._deliver(lambda: sequence.ticket.sink.done(result))

    def _fail(self, sequence: Live, error: Exception) -> None:
        self._sequences.pop(sequence.ticket.number, None)
        self._scheduler.remove(sequence)
        self._reporter.ended(sequence, "failed")
        self._deliver(lambda: sequence.ticket.sink.failed(error))

    def _report(self, sequence: Live, text: str) -> None:
        if not text:
            return
        progress = sequence.ticket.sink.progress
        if progress is not None:
            report = Progress(text, sequence.generated)
            self._deliver(lambda: progress(report))
        self._reporter.text(sequence, text)

    def _deliver(self, call: Callable[[], None]) -> None:
        """Call a sink at the end of the step, when the stats already tell of what it says."""
        self._deliveries.append(call)
