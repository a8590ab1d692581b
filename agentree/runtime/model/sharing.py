"""Which stretches of context several rows of a batch have in common, so that attention reads them once.

Rows share a prefix exactly where their slots agree, so the planner needs no tree: it walks the rows' slots
as a radix tree would branch. A stretch that saves too little is left to the rows themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Slots = NDArray[np.int64]

WORTH = 160
"""K/V positions that need not be read again: fewer cost less than one more attention call."""
RUN = 384
"""A lone row's run of neighbouring slots that is cheaper to read in place than to gather with its group."""


@dataclass(frozen=True, eq=False)
class Segment:
    """A stretch of context that all of `rows` see whole."""

    slots: Slots
    rows: tuple[int, ...]


def share(pasts: Sequence[Slots], *, worth: int = WORTH, run: int = RUN) -> tuple[list[Segment], list[int]]:
    """Split contexts into shared segments and what is left to each row.

    Args:
        pasts: per row the slots of the positions before its first query.
        worth: positions that a segment must save.
        run: neighbouring slots from which on a lone row is a segment of its own.

    Returns:
        The segments, and how many leading positions of each row they cover.
    """
    segments: list[Segment] = []
    covered = [0] * len(pasts)
    # Rows that agree up to `at`, of which the part from `start` on is in no segment yet.
    todo = [(list(range(len(pasts))), 0, 0)]
    while todo:
        rows, start, at = todo.pop()
        branches: dict[int, list[int]] = {}
        for row in rows:
            if len(pasts[row]) > at:
                branches.setdefault(int(pasts[row][at]), []).append(row)
        for branch in branches.values():
            first = pasts[branch[0]]
            alone = len(branch) == 1
            end = start + adjacent(first[start:]) if alone else _agreed([pasts[row] for row in branch], at)
            begin = start
            if end - start >= run if alone else (end - start) * (len(branch) - 1) >= worth:
                segments.append(Segment(first[start:end], tuple(branch)))
                for row in branch:
                    covered[row] = begin = end
            if not alone:
                todo.append((branch, begin, end))
    return segments, covered


def adjacent(slots: Slots) -> int:
    """Length of the leading run of neighbouring slots in rising order."""
    if not len(slots):
        return 0
    if slots[-1] - slots[0] == len(slots) - 1 and bool((np.diff(slots) == 1).all()):
        return len(slots)
    return int((np.diff(slots) != 1).argmax()) + 1 if len(slots) > 1 else 1


def _agreed(pasts: Sequence[Slots], at: int) -> int:
    """Up to where rows agree that agree up to `at` and beyond."""
    shortest = min(map(len, pasts))
    first = pasts[0][at:shortest]
    differ = np.zeros(len(first), np.bool_)
    for other in pasts[1:]:
        differ |= other[at:shortest] != first
    return at + int(differ.argmax()) if differ.any() else shortest
