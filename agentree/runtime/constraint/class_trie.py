"""Tokens by the classes of characters that they are made of: those that are alike lead to the same place."""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]

MOST_CLASSES = 62
"""Classes of an automaton up to which tokens are looked at by class: as many as a bit set holds."""


class ClassTrie:
    """Sequences of classes as a trie. `kids[place]` maps a class to a place, `via[place]` are the bytes of
    one character of that class, `ids[place]` the tokens of exactly this sequence.
    """

    def __init__(self, numbers: bytes, lengths: Ids, clean: Ids, points: NDArray[np.int64]) -> None:
        """`numbers`: the class of each character of all tokens in a row; `points`: the characters."""
        self.kids: list[dict[int, int]] = [{}]
        self.via: list[bytes] = [b""]
        members: list[list[int]] = [[]]
        groups: dict[bytes, tuple[int, list[int]]] = {}
        at = 0
        for token, length in zip(clean.tolist(), lengths.tolist(), strict=True):
            sequence = numbers[at : at + length]
            groups.setdefault(sequence, (at, []))[1].append(token)
            at += length
        for sequence, (begin, tokens) in groups.items():
            place = 0
            for offset, number in enumerate(sequence):
                after = self.kids[place].get(number)
                if after is None:
                    after = self.kids[place][number] = len(self.kids)
                    self.kids.append({})
                    members.append([])
                    self.via.append(chr(int(points[begin + offset])).encode())
                place = after
            members[place] = tokens
        self.ids: list[Ids] = [np.array(tokens, np.int32) for tokens in members]
