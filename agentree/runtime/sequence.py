"""One live request: its token ids, its row of slots, and how far each has come."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from agentree.runtime.cache import Lock
from agentree.runtime.request import Request, Result, Ticket, TokenCounts
from agentree.runtime.text import TextStream

if TYPE_CHECKING:
    from agentree.runtime.constraint import CallWatch, Matcher


@dataclass(eq=False)
class Sequence:
    """State of a request on the engine thread. All positions count tokens from the start of the prompt.

    ```
    ids   [0 ........ cursor) went through the model | [cursor ... length) still to go
    row   [0 .. owned) slots of the tree | [owned .. have) private slots | nothing yet
    ```

    `have` may lie past `cursor` where the cache knows a token whose logits are still needed: its query runs
    again and writes to the scratch slot.
    """

    ticket: Ticket
    text: TextStream
    matcher: "Matcher | None"
    watch: "CallWatch | None"
    """What tells of tool calls in the text."""
    ids: NDArray[np.int32]
    row: NDArray[np.int64]
    length: int
    static: int
    """`ids[:static]` are known before the next forward: what may be published ahead of it."""
    cursor: int = 0
    have: int = 0
    owned: int = 0
    lock: Lock | None = None
    complete: bool = False
    """The value was forced to its end before the first forward: only the prompt is left to compute."""
    admitted: bool = False
    """Counted once: resuming after a preemption is no second admission."""
    cached: int = 0
    prompt_computed: int = 0
    sampled: int = 0
    forced: int = 0
    passes: int = 0
    logprob: float = 0.0
    near_ties: int = 0
    odds: float | None = None
    """How likely the next guess of speculation is right; None before the first."""
    watched: int = 0
    """Bytes of the text that `watch` has seen."""
    scores: list[float] = field(default_factory=list[float])
    miss: str = ""
    rank: tuple[int, tuple[int, ...], int] | None = None
    """Where it belongs in the queue: when its agent began, its branch, its number."""
    started: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, ticket: Ticket, text: TextStream) -> "Sequence":
        """The state of a request that was just taken up, its first forced tokens already appended."""
        request = ticket.request
        matcher = request.constraint.matcher(request.max_tokens) if request.constraint else None
        n = len(request.prompt)
        ids = np.empty(n + request.max_tokens, np.int32)
        ids[:n] = request.prompt
        return cls(
            ticket=ticket,
            text=text,
            matcher=matcher,
            watch=request.constraint.watch() if request.constraint else None,
            ids=ids,
            row=np.empty(len(ids), np.int64),
            length=n,
            static=n,
        )

    @property
    def request(self) -> Request:
        """What was asked."""
        return self.ticket.request

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.prompt)

    @property
    def generated(self) -> int:
        """Tokens generated so far, sampled and forced."""
        return self.length - self.prompt_length

    @property
    def prefilling(self) -> bool:
        """Whether the known part is not computed yet."""
        return self.have < self.static

    @property
    def first_needed(self) -> int:
        """First position whose logits somebody reads; `length` where nobody does."""
        score_from = self.request.score_from
        if score_from is not None:
            return score_from - 1 + len(self.scores)
        return self.length if self.complete or not self.request.max_tokens else self.length - 1

    def readable(self, wanted: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Without the last position when scoring: nothing follows it."""
        if self.request.score_from is None:
            return wanted
        return [(position, query) for position, query in wanted if position < self.length - 1]

    def append(self, token: int) -> None:
        """Add a generated token."""
        self.ids[self.length] = token
        self.length += 1

    def result(self, *, finish: str, end_token: int | None, tail: tuple[int, ...] = ()) -> Result:
        """What the caller gets. `tail` are the ids of text that a stop string cut out of a token."""
        kept, _ = self.text.kept()
        start = self.prompt_length
        return Result(
            output=tuple(self.ids[start : start + kept].tolist()) + tail,
            text=self.text.text(),
            finish="stop" if finish == "stop" else "length",
            end_token=end_token,
            logprob=self.logprob,
            scores=tuple(self.scores),
            counts=self.counts(),
            near_ties=self.near_ties,
        )

    def counts(self) -> TokenCounts:
        """Where the tokens came from so far."""
        return TokenCounts(
            prompt=self.prompt_length,
            cached=self.cached,
            computed=self.prompt_computed,
            sampled=self.sampled,
            forced=self.forced,
            forward_passes=self.passes,
        )
