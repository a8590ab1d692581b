"""Who is admitted next: agents in the order in which they began, branches depth first, nobody too late."""

import re
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Hashable, Iterator

from agentree.runtime.sequence import Sequence

PATIENCE = 64
"""Steps after which a request may complain that others overtake it."""
FAVOURED = 3
"""Others that may overtake in a row while somebody complains: every fourth admission goes by arrival."""
REMEMBERED = 10_000
"""Agents whose beginning is known."""

_INDEX = re.compile(r"\[(\d+)\]")


class Queue:
    """Sequences that wait for slots.

    An agent that began earlier goes first, so that the agents in progress are finished before new ones take
    the pool from them; inside one agent the lower branch goes first, with all that follows on it. Both keep
    what is needed next in the cache. Once the request that came first has waited for PATIENCE steps, it is
    served after FAVOURED others at the latest, so that no stream of better placed ones starves it.
    """

    def __init__(self) -> None:
        self.step = 0
        """Counts steps; moved on by whoever owns the queue."""
        self._ranked: list[Sequence] = []
        self._arrived: dict[Sequence, int] = {}
        """Step of arrival, in order of arrival."""
        self._favoured = 0
        """Admissions in a row of others than the oldest, while its patience has run out."""
        self._began: OrderedDict[Hashable, int] = OrderedDict()
        """First ticket of each agent."""

    def __len__(self) -> int:
        return len(self._ranked)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._arrived

    def __iter__(self) -> Iterator[Sequence]:
        """In the order of admission. The queue may change meanwhile."""
        seen = set[Sequence]()
        ranked = iter(tuple(self._ranked))
        while True:
            chosen = self._oldest if self._favoured >= FAVOURED else None
            if chosen is None or chosen in seen:
                chosen = next((s for s in ranked if s in self._arrived and s not in seen), None)
            if chosen is None:
                return
            seen.add(chosen)
            yield chosen

    @property
    def _oldest(self) -> Sequence | None:
        """The first that came, if its patience has run out."""
        first = next(iter(self._arrived), None)
        return first if first is not None and self.waited(first) >= PATIENCE else None

    def waited(self, sequence: Sequence) -> int:
        """For how many steps a queued sequence has waited."""
        return self.step - self._arrived[sequence]

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence, perhaps not for the first time."""
        if sequence.rank is None:
            sequence.rank = self._rank(sequence)
        insort(self._ranked, sequence, key=_rank_of)
        self._arrived[sequence] = self.step

    def admit(self, sequence: Sequence) -> None:
        """Take a sequence out because it is served now."""
        oldest = self._oldest
        self._favoured = self._favoured + 1 if oldest is not None and oldest is not sequence else 0
        self.remove(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a queued sequence out."""
        del self._ranked[bisect_left(self._ranked, _rank_of(sequence), key=_rank_of)]
        del self._arrived[sequence]

    def forget(self, agent: Hashable) -> None:
        """The agent is over: if it comes again, it is a new one."""
        self._began.pop(agent, None)

    def _rank(self, sequence: Sequence) -> tuple[int, tuple[int, ...], int]:
        request, number = sequence.request, sequence.ticket.number
        agent = request.agent or request.scope.run
        began = number
        if agent:
            began = self._began.setdefault(agent, number)
            while len(self._began) > REMEMBERED:
                self._began.popitem(last=False)
        indices = tuple(int(index) for index in _INDEX.findall(request.scope.path))
        return began, indices, number


def _rank_of(sequence: Sequence) -> tuple[int, tuple[int, ...], int]:
    return sequence.rank or (0, (), 0)
