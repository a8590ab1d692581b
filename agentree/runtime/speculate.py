"""Speculation without a second model: guess tokens from text that is known, verify them in one forward.

A guess is what followed the same last tokens before, in this context (prompt lookup; Saxena 2023, as a way to
draft for Leviathan et al., "Fast inference from transformers via speculative decoding", ICML 2023), or what
the radix tree has after exactly this context, left there by a sibling or an earlier run. Verification draws
each token as it would have been drawn without the guess, by (seed, position), so the guess changes nothing
but how many forwards it takes.
"""

from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from agentree.runtime.sequence import Sequence

if TYPE_CHECKING:
    from agentree.runtime.constraint import Matcher

Ids = NDArray[np.int32]

SHORTEST, LONGEST = 3, 12
"""Tokens that a place in the context must have in common with its end; no more than LONGEST are looked at."""
MOST = 8
"""Guessed tokens in one forward, forced ones not counted: they would go through the model anyway."""
PRIOR = 0.6
"""How likely the first guess of all is taken to be right."""
RATE = 0.1
"""Weight of the last guess in what is expected of the next."""
RECOVERY = 0.002
"""How fast hope rises in a sequence that makes no guesses: it tries again now and then."""
HOPE = 0.05
"""How far each new sequence hopes for more than the others found: text of another kind may begin."""

LEAST = 0.25
"""Odds below which nothing is guessed, however cheap: what is expected of so few guesses is mostly error."""
CREDIT = 0.5
"""A forward takes place for the slowest of its rows: when one is through early, part of its share stays."""
FEW = 64
"""Forwards of more queries prefill, and tell nothing of what a guess costs."""
SHAPE = (8.0, 1.0, 1.0)
"""What is believed of the costs of a forward before any was seen: fixed, of each row, of each query."""
FIRM = 100.0
"""How many forwards that belief counts for where they tell nothing, as of rows of one query each."""
WINDOW, OFTEN = 256, 32
"""Forwards that costs are fitted to, and those between two fits."""


class Known(Protocol):
    """What the cache tells of text that it holds."""

    def following(self, ids: Ids, namespace: Hashable, n: int) -> Ids:
        """Up to `n` tokens that come after exactly these, of the branch that was used last."""
        ...


class Costs:
    """What a forward costs: `fixed + row * rows + query * queries`, by least squares over those of late.

    Each row reads its own context, so that a guess, one more query of a row, costs less than a row does. Only
    ratios count: a machine that slows down altogether changes nothing.
    """

    def __init__(self) -> None:
        self.fixed, self.row, self.query = SHAPE
        self._seen = deque[tuple[int, int, float]](maxlen=WINDOW)
        self._new = 0

    def observe(self, rows: int, queries: int, seconds: float) -> None:
        """A forward of so many rows, with so many queries in all, took so long."""
        if queries > FEW:
            return
        self._seen.append((rows, queries, seconds))
        self._new += 1
        if self._new >= OFTEN:
            self._new = 0
            self._fit()

    def _fit(self) -> None:
        rows, queries, seconds = np.array(self._seen).T
        features = np.stack([np.ones_like(rows), rows, queries], axis=1)
        unit = float(seconds.sum() / (features @ SHAPE).sum())
        firm = np.diag(np.sqrt((1.0, FIRM, FIRM)))
        fitted = np.linalg.lstsq(
            np.concatenate([features, firm]), np.concatenate([seconds, firm @ SHAPE * unit]), rcond=None
        )[0]
        self.fixed, self.row, self.query = np.maximum(fitted / unit, (0.0, 0.0, 0.1)).tolist()

    def worth(self, rows: int, queries: int = 1) -> float:
        """How likely a guess must be right to pay, while so many sequences decode.

        A right one saves a row of a later forward, and CREDIT of its share of what is fixed where others run
        beside it; a wrong one has cost its `queries`, which are 1 and as many as are forced after it.
        """
        share = CREDIT / rows if rows > 1 else 1.0
        lost, saved = queries * self.query, self.row + share * self.fixed
        return max(LEAST, lost / (lost + saved))


class Speculator:
    """Guesses for the sequences of one engine. The engine thread owns it."""

    def __init__(self, known: Known, *, jump_forward: bool = True) -> None:
        """`jump_forward`: forced runs are appended to what is sampled, so they belong to a guess."""
        self._known = known
        self._jump_forward = jump_forward
        self.costs = Costs()
        self._odds = PRIOR
        """Of all sequences together: what a new one begins with."""

    def draft(self, sequence: Sequence, *, rows: int, room: int) -> int:
        """Write guesses behind a sequence's ids; returns how many, at most `room`.

        Args:
            sequence: A sequence that decodes.
            rows: How many sequences decode.
            room: Most tokens that the forward and the pool have room for.
        """
        if sequence.odds is None:
            self._odds += (1 - self._odds) * HOPE
            sequence.odds = self._odds
        # The last token that may be generated goes through no forward.
        room = min(room, sequence.request.max_tokens - sequence.generated - 1)
        if room < 1 or sequence.odds <= self.costs.worth(rows):
            sequence.odds += (1 - sequence.odds) * RECOVERY
            return 0
        guesses = self._guess(sequence, 2 * MOST)
        if not len(guesses):
            return 0
        return self._write(sequence, guesses.tolist(), rows, room)

    def learn(self, sequence: Sequence, right: int, wrong: bool) -> None:
        """So many sampled tokens were as guessed, and then one was not, or none was left."""
        odds = self._odds if sequence.odds is None else sequence.odds
        for hit in [True] * right + [False] * wrong:
            odds += (hit - odds) * RATE
            self._odds += (hit - self._odds) * RATE / 4
        sequence.odds = odds

    def _guess(self, sequence: Sequence, n: int) -> Ids:
        ids = sequence.ids[: sequence.length]
        before = self._known.following(ids, sequence.request.namespace, n)
        return before if len(before) else lookup(ids, n)

    def _write(self, sequence: Sequence, given: list[int], rows: int, room: int) -> int:
        """Append guesses as far as they are legal and pay, with the runs that are forced after each."""
        odds = PRIOR if sequence.odds is None else sequence.odds
        matcher = sequence.matcher.copy() if sequence.matcher is not None else None
        begin, at, chosen = sequence.length, 0, 0
        while at < min(len(given), room) and chosen < MOST:
            token = given[at]
            forced = self._forced_after(sequence, matcher, token)
            if forced is None:
                break
            run = [token, *forced][: room - at]
            # It is right if all before it are.
            if odds ** (chosen + 1) <= self.costs.worth(rows, len(run)):
                break
            sequence.ids[begin + at : begin + at + len(run)] = run
            follows = given[at : at + len(run)] == run
            at, chosen = at + len(run), chosen + 1
            if not follows or (matcher is not None and matcher.done):
                break
        return at

    def _forced_after(self, sequence: Sequence, matcher: "Matcher | None", token: int) -> list[int] | None:
        """What must come after a token, once a matcher has taken it; None where it may not come at all."""
        if token in sequence.request.end_ids:
            return None
        if matcher is None:
            return []
        try:
            matcher.advance(token)
        except ValueError:
            return None
        forced: list[int] = []
        jumps = self._jump_forward and sequence.request.jump_forward
        while jumps and not matcher.done and (run := matcher.forced([token, *forced][-1])):
            for one in run:
                matcher.advance(one)
            forced += run
        return forced


def lookup(ids: Ids, n: int) -> Ids:
    """Up to `n` tokens that followed the last tokens of `ids` where these stood before.

    Of all such places, the one that has most in common with the end; of equals, the last.
    """
    length = len(ids)
    if length <= SHORTEST:
        return ids[:0]
    # places[i]: ids[: places[i]] ends like ids.
    places = np.flatnonzero(ids[SHORTEST - 1 : -1] == ids[-1]) + SHORTEST
    for back in range(2, LONGEST + 1):
        fits = places[places >= back]
        fits = fits[ids[fits - back] == ids[-back]]
        if not len(fits):
            if back <= SHORTEST:
                return ids[:0]
            break
        places = fits
    best = int(places[-1])
    return ids[best : best + n]
