"""Speculation without a second model: guess tokens from text that is known, verify them in one forward.

A guess is what followed the same last tokens before, in this context (prompt lookup; Saxena 2023, as a way to
draft for Leviathan et al., "Fast inference from transformers via speculative decoding", ICML 2023), or what
the radix tree has after exactly this context, left there by a sibling or an earlier run. Verification draws
each token as it would have been drawn without the guess, by (seed, position), so the guess changes nothing
but how many forwards it takes.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass
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
RECOVERY = 0.02
"""How fast a sequence that stopped guessing comes back to what others get: it tries again now and then."""

LEAST, GREATEST = 1.0, 200.0
"""Bounds of what is believed of the costs of a forward."""
CREDIT = 0.5
"""The more queries, the more a forward is bound by arithmetic: what looks fixed at few is not so at many."""
FEW = 64
"""Forwards of more queries prefill, and tell nothing of what a guess costs."""
SMOOTH = 0.05
"""Weight of the last fit in what is believed."""


class Known(Protocol):
    """What the cache tells of text that it holds."""

    def following(self, ids: Ids, namespace: Hashable, n: int) -> Ids:
        """Up to `n` tokens that come after exactly these, of the branch that was used last."""
        ...


@dataclass
class Costs:
    """What a forward costs by its number of queries: `fixed + each * queries`, fitted to what was seen.

    Only the ratio counts, so that a machine that slows down altogether changes nothing.
    """

    ratio: float = 3.0
    """fixed / each: a forward costs as much as so many queries before its first one."""
    _n: float = 0.0
    _x: float = 0.0
    _y: float = 0.0
    _xx: float = 0.0
    _xy: float = 0.0

    def observe(self, queries: int, seconds: float) -> None:
        """A forward of so many queries took so long. Old ones are forgotten over some 100 forwards."""
        if queries > FEW:
            return
        keep = 0.99
        self._n = keep * self._n + 1
        self._x = keep * self._x + queries
        self._y = keep * self._y + seconds
        self._xx = keep * self._xx + queries * queries
        self._xy = keep * self._xy + queries * seconds
        spread = self._xx / self._n - (self._x / self._n) ** 2
        if self._n < 8 or spread < 1:
            return
        each = (self._xy / self._n - self._x * self._y / self._n**2) / spread
        fixed = (self._y - each * self._x) / self._n
        fitted = min(max(fixed / each, LEAST), GREATEST) if each > 0 else GREATEST
        # Where others use the machine too, one fit tells little.
        self.ratio += (fitted - self.ratio) * SMOOTH

    def worth(self, rows: int) -> float:
        """How likely a guess must be right to pay, while so many sequences decode.

        A right guess saves one row of a later forward, with its share of what is fixed; every guess costs
        one query. Of the share that a straight line calls fixed, CREDIT is counted.
        """
        return 1 - CREDIT * self.ratio / (self.ratio + max(rows, 1))


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
            sequence.odds = self._odds
        most = self._length(sequence.odds, rows)
        # The last token that may be generated goes through no forward.
        room = min(room, sequence.request.max_tokens - sequence.generated - 1)
        if most < 1 or room < 1:
            sequence.odds += (self._odds - sequence.odds) * RECOVERY
            return 0
        guesses = self._guess(sequence, 2 * MOST)
        if not len(guesses):
            return 0
        return self._write(sequence, guesses.tolist(), most, room)

    def learn(self, sequence: Sequence, right: int, wrong: bool) -> None:
        """So many sampled tokens were as guessed, and then one was not, or none was left."""
        odds = self._odds if sequence.odds is None else sequence.odds
        for hit in [True] * right + [False] * wrong:
            odds += (hit - odds) * RATE
            self._odds += (hit - self._odds) * RATE / 4
        sequence.odds = odds

    def _length(self, odds: float, rows: int) -> int:
        """The longest guess whose last token still pays: it is right if all before it are."""
        worth = self.costs.worth(rows)
        if odds <= worth:
            return 0
        return min(MOST, int(math.log(worth) / math.log(min(odds, 0.999))))

    def _guess(self, sequence: Sequence, n: int) -> Ids:
        ids = sequence.ids[: sequence.length]
        before = self._known.following(ids, sequence.request.namespace, n)
        return before if len(before) else lookup(ids, n)

    def _write(self, sequence: Sequence, given: list[int], most: int, room: int) -> int:
        """Append guesses as far as they are legal, with the runs that are forced after each."""
        matcher = sequence.matcher.copy() if sequence.matcher is not None else None
        begin, at, chosen = sequence.length, 0, 0
        while at < min(len(given), room) and chosen < most:
            token = given[at]
            forced = self._forced_after(sequence, matcher, token)
            if forced is None:
                break
            run = [token, *forced][: room - at]
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
