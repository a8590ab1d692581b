"""Tokens by the classes of characters that they are made of: those that are alike lead to the same place."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]

MOST_CLASSES = 62
"""Classes of an automaton up to which tokens are looked at by class: as many as a bit set holds."""

_PACKED = 10
"""Characters whose classes fit into one integer, 6 bits each."""


class ClassTrie:
    """Sequences of classes as a trie. `kids[place]` maps a class to a place, `via[place]` are the bytes of
    one character of that class, `ids[place]` the tokens of exactly this sequence.
    """

    def __init__(
        self,
        numbers: NDArray[np.uint8],
        points: NDArray[np.uint32],
        begins: NDArray[np.int64],
        lengths: Ids,
        tokens: Ids,
    ) -> None:
        """`numbers` and `points`: classes and characters of texts in a row, of which each token is a part."""
        self.kids: list[dict[int, int]] = [{}]
        self.via: list[bytes] = [b""]
        self.ids: list[Ids] = [np.zeros(0, np.int32)]
        for length in np.flatnonzero(np.bincount(lengths)).tolist():
            of_length = np.flatnonzero(lengths == length)
            for group in _alike(numbers, begins[of_length], length):
                begin = int(begins[of_length[group[0]]])
                text = points[begin : begin + length].tolist()
                place = self._place(numbers[begin : begin + length].tolist(), text)
                self.ids[place] = tokens[of_length[group]]

    def _place(self, sequence: list[int], text: list[int]) -> int:
        here = 0
        for number, point in zip(sequence, text, strict=True):
            after = self.kids[here].get(number)
            if after is None:
                after = self.kids[here][number] = len(self.kids)
                self.kids.append({})
                self.via.append(chr(point).encode())
                self.ids.append(self.ids[0])
            here = after
        return here


def _alike(numbers: NDArray[np.uint8], begins: NDArray[np.int64], length: int) -> Iterator[NDArray[np.int64]]:
    """Indices of texts of one length, those of the same classes together."""
    keys: NDArray[np.int64] = np.zeros((-(-length // _PACKED), len(begins)), np.int64)
    for at in range(length):
        keys[at // _PACKED] = keys[at // _PACKED] << 6 | numbers[begins + at]
    order = np.lexsort(keys)
    ordered = keys[:, order]
    changes = np.flatnonzero((ordered[:, 1:] != ordered[:, :-1]).any(axis=0)) + 1
    yield from np.split(order, changes)
