"""Who computes what in the next forward: admission, prefix sharing, chunked prefill, preemption.

Every prompt is published to the radix tree as its chunk is planned, ahead of the forward: K and V of the
whole batch are written layer by layer before attention reads them, so a request that is admitted in the same
step already shares what its siblings are about to compute. Siblings of a fork wait for the rest of a trunk
only while it is longer than one step's budget.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from agentree.errors import ContextOverflow
from agentree.runtime.cache import Cache, CacheError, OutOfSlots
from agentree.runtime.queue import Queue
from agentree.runtime.sequence import Sequence
from agentree.runtime.speculate import Speculator

BUSY = 8
"""Running sequences from which on nobody's lease is revoked to admit more."""
MEMORY = 16
"""Requests that the estimate of output remembers."""


@dataclass(eq=False)
class Chunk:
    """Queries of one sequence in one forward."""

    sequence: Sequence
    start: int
    """First position whose query runs."""
    stop: int
    writes: NDArray[np.int64]
    """Slot that each query's K and V go to."""
    wanted: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """(position, query index in the batch) of each logits row that this sequence reads."""
    guessed: int = 0
    """How many of the last queries are guesses, past what the sequence knows."""
    right: int = 0
    """Sampled tokens that were guessed; known once the chunk is committed."""
    wrong: bool = False
    """Whether a token came that was guessed differently."""


@dataclass(eq=False)
class Step:
    """One forward: chunks in batch order, and what could not go on."""

    chunks: list[Chunk] = field(default_factory=list[Chunk])
    queries: int = 0
    ready: list[Sequence] = field(default_factory=list[Sequence])
    """Sequences that need no forward at all: their whole prompt is in the cache and nobody reads logits."""
    failed: list[tuple[Sequence, Exception]] = field(default_factory=list[tuple[Sequence, Exception]])
    preempted: list[tuple[Sequence, int]] = field(default_factory=list[tuple[Sequence, int]])
    """Sequences that gave their slots back, and how many tokens they have to compute again."""


class Scheduler:
    """Waiting and running sequences over one cache. Not safe for threads: the engine thread owns it."""

    def __init__(
        self, cache: Cache, *, scratch: int, max_batch_tokens: int, speculator: Speculator | None = None
    ) -> None:
        self.cache = cache
        self.speculator = speculator
        self.waiting = Queue()
        self.running: list[Sequence] = []
        self._scratch = scratch
        self._max_batch_tokens = max_batch_tokens
        # The other half of each step is for prompts, however many sequences decode.
        self._most_running = max(1, max_batch_tokens // 2)
        self._said = 0.5
        """Output of late, as a share of what was allowed."""
        self._decoding = 0
        """Sequences that decode in the step that is planned."""
        # Query index in this step by slot: lets identical prompts share one logits row.
        self._query_of = np.full(scratch + 1, -1, np.int64)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        self.waiting.add(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out and give back everything it holds."""
        if sequence in self.running:
            self.running.remove(sequence)
            if sequence.request.max_tokens:
                share = sequence.generated / sequence.request.max_tokens
                self._said += (share - self._said) / MEMORY
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self._let_go(sequence)

    def publish(self, sequence: Sequence, upto: int) -> None:
        """Move the row's private part up to `upto` into the tree and lock it there."""
        if upto <= sequence.owned:
            return
        published = self.cache.publish(
            sequence.ids[:upto],
            sequence.row[:upto],
            sequence.owned,
            sequence.request.namespace,
        )
        sequence.row[:upto] = published.slots
        sequence.owned = upto
        before, sequence.lock = sequence.lock, self.cache.lock(published.node)
        if before is not None:
            self.cache.unlock(before)

    def plan(self) -> Step:
        """The next forward. Sequences that decode come first, each group in order of arrival."""
        step = Step()
        self.waiting.step += 1
        decoding = [s for s in self.running if not s.prefilling]
        self._decoding = len(decoding)
        prefilling = [s for s in self.running if s.prefilling]
        for sequence in (*decoding, *prefilling):
            if sequence in self.running and step.queries < self._max_batch_tokens:
                self._schedule(sequence, step)
        for sequence in self.waiting:
            if step.queries >= self._max_batch_tokens or len(self.running) >= self._most_running:
                break
            if step.preempted or (not self._awaits_trunk(sequence, step) and not self._admit(sequence, step)):
                break
        if not (step.chunks or step.ready or step.failed) and self.waiting:
            self._fail_stuck(next(iter(self.waiting)), step)
        for chunk in step.chunks:
            self._query_of[chunk.sequence.row[chunk.start : chunk.stop]] = -1
        return step

    def check(self) -> None:
        """Raise on any broken invariant: conservation of slots, and what each row says of whose they are."""
        self.cache.check()
        held = [s.row[s.owned : s.have] for s in self.running]
        private = np.concatenate(held) if held else np.empty(0, np.int64)
        if len(private) != self.cache.private or len(np.unique(private)) != len(private):
            raise CacheError(f"{self.cache.private} slots are private, but running requests hold {private!r}")
        for s in self.running:
            path = self.cache.path(s.lock.node) if s.lock is not None else private[:0]
            if not np.array_equal(path, s.row[: s.owned]):
                raise CacheError(f"request {s.ticket.number} uses slots that are not its prefix in the tree")
        for s in self.waiting:
            if s.have or s.lock is not None:
                raise CacheError(f"request {s.ticket.number} waits and holds {s.have} slots")

    # ---------------------------------------------------------------------------- admission

    def _awaits_trunk(self, sequence: Sequence, step: Step) -> bool:
        """Whether a prefill of this step goes on past what it published, along this prompt."""
        for chunk in step.chunks:
            other = chunk.sequence
            at = other.have
            if (
                at < other.static
                and at < sequence.length
                and other.request.namespace == sequence.request.namespace
                and other.ids[at] == sequence.ids[at]
                and np.array_equal(other.ids[:at], sequence.ids[:at])
            ):
                return True
        return False

    def _admit(self, sequence: Sequence, step: Step) -> bool:
        """Start a waiting sequence; False where there is no room for it now."""
        self._publish_running_prefix(sequence, step)
        self._adopt_match(sequence)
        if self.running and self._room() < self._growth(sequence):
            self._let_go(sequence)
            return False
        self.waiting.admit(sequence)
        self.running.append(sequence)
        self.running.sort(key=lambda s: s.ticket.number)
        if not sequence.admitted:
            sequence.admitted = True
            sequence.miss = self.cache.explain_miss(
                sequence.ids[: sequence.prompt_length], sequence.request.namespace, sequence.text.of
            )
        self._schedule(sequence, step)
        return True

    def _room(self) -> int:
        """Slots for one more sequence beside those that run, as far as can be foreseen."""
        room = self.cache.free + self.cache.evictable - sum(map(self._growth, self.running))
        # Where enough runs to fill a step well, an agent's return is worth more than another beginning.
        return room - self.cache.idle if len(self.running) >= BUSY else room

    def _growth(self, sequence: Sequence) -> int:
        """Slots that a sequence will still ask for, if it says as much as others of late."""
        output = int(self._said * sequence.request.max_tokens)
        return max(1, sequence.length - sequence.have + max(0, output - sequence.generated))

    def _adopt_match(self, sequence: Sequence) -> None:
        """Take over what the tree knows of the static part past what the sequence has."""
        match = self.cache.match(sequence.ids[: sequence.static], sequence.request.namespace)
        if match.length <= sequence.have:
            return
        before, sequence.lock = sequence.lock, self.cache.lock(match.node)
        if before is not None:
            self.cache.unlock(before)
        sequence.row[: match.length] = match.slots
        sequence.have = sequence.owned = match.length
        cursor = max(sequence.cursor, min(match.length, sequence.first_needed))
        if sequence.cursor < sequence.prompt_length:
            self._count_cached(sequence, cursor)
        sequence.cursor = cursor

    def _count_cached(self, sequence: Sequence, upto: int) -> None:
        """Count prompt tokens that need no query; each token once, also when it is evicted and comes back."""
        known = sequence.cached + sequence.prompt_computed
        sequence.cached += max(0, min(upto, sequence.prompt_length) - known)

    def _publish_running_prefix(self, sequence: Sequence, step: Step) -> None:
        """Publish what a running generation has in private where this prompt continues along it."""
        for other in self.running:
            # What lies past `length` is guessed.
            at, have = other.owned, min(other.have, other.length)
            if (
                at < have
                and at < sequence.length
                and other.request.namespace == sequence.request.namespace
                and other.ids[at] == sequence.ids[at]
                and np.array_equal(other.ids[:at], sequence.ids[:at])
            ):
                before = other.row[: other.have].copy()
                self.publish(other, have)
                self._redirect(other, before, step)

    def _redirect(self, sequence: Sequence, before: NDArray[np.int64], step: Step) -> None:
        """A sequence gave up slots for the tree's: nothing of this step may write to them any more."""
        for chunk in step.chunks:
            if chunk.sequence is sequence:
                old, new = before[chunk.start : chunk.stop], sequence.row[chunk.start : chunk.stop]
                moved = old != new
                queries = self._query_of[old[moved]]
                chunk.writes[moved] = self._scratch
                self._query_of[old[moved]] = -1
                unknown = self._query_of[new[moved]] < 0
                self._query_of[new[moved][unknown]] = queries[unknown]

    # --------------------------------------------------------------------------- the batch

    def _schedule(self, sequence: Sequence, step: Step) -> None:
        """Plan as many of the sequence's outstanding queries as the budget and the pool allow."""
        if sequence.cursor < sequence.static:
            self._adopt_match(sequence)
        wanted = self._share_rows(sequence)
        start = sequence.cursor
        stop = min(sequence.length, start + self._max_batch_tokens - step.queries)
        if start == sequence.length:
            wanted = sequence.readable(wanted)
            if wanted:
                step.chunks.append(Chunk(sequence, start, start, np.empty(0, np.int64), wanted))
            else:
                step.ready.append(sequence)
            return
        have = sequence.have
        guessed = self._guess(sequence, step) if stop == sequence.length else 0
        stop += guessed
        if stop > have and not self._allocate(sequence, stop, step):
            return
        writes = sequence.row[start:stop].copy()
        writes[: max(0, have - start)] = self._scratch
        if stop <= sequence.static:
            self.publish(sequence, stop)
        first = step.queries
        self._query_of[sequence.row[start:stop]] = np.arange(first, first + stop - start)
        wanted += [(p, first + p - start) for p in range(max(start, sequence.first_needed), stop)]
        step.chunks.append(Chunk(sequence, start, stop, writes, sequence.readable(wanted), guessed))
        step.queries += stop - start

    def _guess(self, sequence: Sequence, step: Step) -> int:
        """Have guesses written behind a sequence that decodes, as far as they cost nobody room."""
        decodes = sequence.cursor >= sequence.static and sequence.generated and not sequence.prefilling
        if self.speculator is None or not decodes:
            return 0
        queries = self._max_batch_tokens - step.queries - (sequence.length - sequence.cursor)
        # A guess may cost what nobody is known to need, which then stays free for the next one.
        room = self.cache.free + max(0, self.cache.evictable - self.cache.idle)
        slots = room // max(self._decoding, 1) - (sequence.length - sequence.have)
        return self.speculator.draft(sequence, rows=self._decoding, room=min(queries, slots))

    def forget_guesses(self, chunk: Chunk) -> None:
        """Give back the slots of guesses that were wrong, once the chunk is committed."""
        sequence = chunk.sequence
        if chunk.guessed and sequence.have > sequence.cursor:
            self.cache.release(sequence.row[sequence.cursor : sequence.have])
            sequence.have = sequence.cursor

    def _share_rows(self, sequence: Sequence) -> list[tuple[int, int]]:
        """Logits rows that another sequence of this step computes at the very same node of the tree."""
        shared: list[tuple[int, int]] = []
        while sequence.cursor < min(sequence.owned, sequence.length):
            query = int(self._query_of[sequence.row[sequence.cursor]])
            if query < 0:
                break
            shared.append((sequence.cursor, query))
            sequence.cursor += 1
            self._count_cached(sequence, sequence.cursor)
        return shared

    def _allocate(self, sequence: Sequence, stop: int, step: Step) -> bool:
        """Private slots for `row[have:stop]`, at others' expense if need be; False: not in this step."""
        while True:
            try:
                slots = self.cache.allocate(stop - sequence.have, by=sequence.request.scope.name)
            except OutOfSlots as error:
                victim = self._victim(sequence, step)
                if victim is not None:
                    step.preempted.append((victim, self._preempt(victim)))
                    continue
                if self.running == [sequence] and not step.chunks:
                    step.failed.append((sequence, self._overflow(sequence, error.needed)))
                elif sequence.have < sequence.static or not step.chunks:
                    # Whoever has not even its prompt in the pool frees more than it loses by waiting.
                    step.preempted.append((sequence, self._preempt(sequence)))
                return False
            sequence.row[sequence.have : stop] = slots
            sequence.have = stop
            return True

    def _victim(self, needy: Sequence, step: Step) -> Sequence | None:
        """Of those not in this step, whose tokens are cheapest to compute again. The oldest never yields."""
        busy = {id(chunk.sequence) for chunk in step.chunks} | {id(needy), id(self.running[0])}
        candidates = [s for s in self.running if id(s) not in busy]
        return min(candidates, key=lambda s: (s.have - s.owned, -s.ticket.number), default=None)

    def _preempt(self, sequence: Sequence) -> int:
        """Give all slots back and queue again; returns how many private tokens are lost."""
        lost = sequence.have - sequence.owned
        self.running.remove(sequence)
        self._let_go(sequence)
        sequence.static = sequence.length
        self.add(sequence)
        return lost

    def _let_go(self, sequence: Sequence) -> None:
        """Free the private slots and give the lock back."""
        if sequence.have > sequence.owned:
            self.cache.release(sequence.row[sequence.owned : sequence.have])
        if sequence.lock is not None:
            self.cache.unlock(sequence.lock)
            sequence.lock = None
        sequence.have = sequence.owned = sequence.cursor = 0

    def _fail_stuck(self, sequence: Sequence, step: Step) -> None:
        """Nothing runs and the oldest request still finds no room: it never will."""
        self.waiting.remove(sequence)
        step.failed.append((sequence, self._overflow(sequence, sequence.length)))

    def _overflow(self, sequence: Sequence, needed: int) -> ContextOverflow:
        return ContextOverflow(
            f"a request of {sequence.length} tokens so far ({sequence.prompt_length} of them prompt) needs "
            f"{needed} more slots, and the whole pool of {self._scratch} can't give them: open the runtime "
            f"with a larger kv_tokens, or shorten the prompt or max_tokens",
            needed=sequence.length + needed,
            limit=self._scratch,
            prompt=sequence.prompt_length,
            max_tokens=sequence.request.max_tokens,
        )
