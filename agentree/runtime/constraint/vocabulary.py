"""What the constraint engine knows of a tokenizer: the bytes of each token, as a trie, and how texts are
split.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agentree.errors import ConstraintError
from agentree.runtime.constraint.charset import Ranges
from agentree.runtime.constraint.class_trie import MOST_CLASSES, ClassTrie

Mask = NDArray[np.bool_]
Ids = NDArray[np.int32]

_NO_KIDS: dict[int, int] = {}
_SAMPLE = 500
"""So many tokens tell how various their sequences of classes are."""
_TOGETHER = 3
"""So many tokens of such a sample must share a sequence for all to be looked at by sequence."""
_SPECIAL = frozenset((*range(0x20), 0x22, 0x5C))


class Trie:
    """Token bytes as a trie. `kids[place]` maps a byte to a place, `ids[place]` are the tokens that end
    there.

    Tokens that any JSON string may go on with are clean: whole characters, no quotes, no backslashes, no
    control characters. Those under a place are `clean[first[place]:last[place]]`, with `lengths` in code
    points; `soiled[place]` tells whether there are others under it, `others[place]` are the others that
    end there.
    """

    def __init__(self, tokens: Collection[tuple[bytes, int]]) -> None:
        self.kids: list[dict[int, int]] = [{}]
        self.ids: list[tuple[int, ...]] = [()]
        self.others: list[tuple[int, ...]] = [()]
        self.first: list[int] = [0]
        self.last: list[int] = [0]
        self.soiled: list[bool] = [False]
        clean: list[int] = []
        lengths: list[int] = []
        texts: list[bytes] = []
        path = [0]
        before = b""
        # In order, so that a token shares the start of its path with the one before it, and places that are
        # left are complete.
        for text, number in sorted(tokens):
            shared = _shared(before, text)
            self._leave(path, shared + 1, len(clean))
            for byte in text[shared:]:
                path.append(self._add(path[-1], byte, len(clean)))
            characters = _clean_length(text)
            here = path[-1]
            self.ids[here] = (*self.ids[here], number)
            if characters is None:
                self.others[here] = (*self.others[here], number)
                self.soiled[here] = True
            else:
                clean.append(number)
                lengths.append(characters)
                texts.append(text)
            before = text
        self._leave(path, 1, len(clean))
        self.last[0] = len(clean)
        self._points = np.frombuffer(b"".join(texts).decode().encode("utf-32-le"), np.uint32)
        """The characters of all clean tokens in a row."""
        self._used: dict[tuple[Ranges, ...], NDArray[np.int64]] = {}
        self._alike: dict[tuple[tuple[Ranges, ...], int], ClassTrie | None] = {}
        self.clean: Ids = np.array(clean, np.int32)
        self.lengths: Ids = np.array(lengths, np.int32)
        self._begins: NDArray[np.int64] = np.concatenate(([0], np.cumsum(self.lengths, dtype=np.int64)[:-1]))
        """Where each clean token begins among these."""
        self.longest = max(lengths, default=1)
        """Code points of the longest clean token."""

    def _add(self, here: int, byte: int, first: int) -> int:
        after = len(self.kids)
        kids = self.kids[here]
        if kids is _NO_KIDS:
            self.kids[here] = {byte: after}
        else:
            kids[byte] = after
        self.kids.append(_NO_KIDS)
        self.ids.append(())
        self.others.append(())
        self.first.append(first)
        self.last.append(first)
        self.soiled.append(False)
        return after

    def _leave(self, path: list[int], length: int, last: int) -> None:
        """Shortens a path: nothing more comes under the places that are left."""
        while len(path) > length:
            place = path.pop()
            self.last[place] = last
            if self.soiled[place]:
                self.soiled[path[-1]] = True

    def within(self, place: int, classes: tuple[Ranges, ...], loops: int) -> bool:
        """Whether all clean tokens under a place are made of characters of some of the classes (`loops`)."""
        if len(classes) > MOST_CLASSES:
            return False
        used = self.used(classes)
        return not int(np.bitwise_or.reduce(used[self.first[place] : self.last[place]])) & ~loops

    def used(self, classes: tuple[Ranges, ...]) -> NDArray[np.int64]:
        """The classes of characters that each clean token is made of, as bit sets; at most 62 of them."""
        used = self._used.get(classes)
        if used is None:
            if len(self._used) > 200:
                self._used.clear()
            used = self._used[classes] = self._classify(classes)
        return used

    def _classify(self, classes: tuple[Ranges, ...]) -> NDArray[np.int64]:
        """The classes of characters that each clean token is made of, as bit sets."""
        bits = np.array([*(1 << number for number in range(len(classes))), 1 << MOST_CLASSES], np.int64)
        return np.bitwise_or.reduceat(bits[self._numbers(classes)], self._begins)

    def _numbers(self, classes: tuple[Ranges, ...]) -> NDArray[np.uint8]:
        """The class of each character of all clean tokens in a row; the number after the last for none."""
        points = self._points
        of_point = np.full(int(points.max(initial=0)) + 1, len(classes), np.uint8)
        for number, ranges in enumerate(classes):
            for low, high in ranges:
                of_point[low : high + 1] = number
        return of_point[points]

    def by_class(self, classes: tuple[Ranges, ...], alive: int) -> ClassTrie | None:
        """The clean tokens that are made of some classes of characters (`alive`, a bit set), by these.

        None where most of them are alone with their sequence of classes, so that nothing is gained.
        """
        key = (classes, alive)
        if key not in self._alike:
            if len(self._alike) > 20:
                self._alike.clear()
            those = np.flatnonzero((self.used(classes) & ~alive) == 0)
            numbers = self._numbers(classes)
            begins, lengths = self._begins[those], self.lengths[those]
            step = max(len(those) // _SAMPLE, 1)
            sample = zip(begins[::step].tolist(), lengths[::step].tolist(), strict=True)
            various = len({numbers[begin : begin + length].tobytes() for begin, length in sample})
            few = various * step * _TOGETHER < len(those)
            self._alike[key] = (
                ClassTrie(numbers, self._points, begins, lengths, self.clean[those]) if few else None
            )
        return self._alike[key]

    def find(self, text: bytes) -> int:
        """The place of a text, -1 if no token starts with it."""
        here = 0
        for byte in text:
            here = self.kids[here].get(byte, -1)
            if here < 0:
                return -1
        return here


def _shared(one: bytes, other: bytes) -> int:
    """Length of the common start."""
    length = min(len(one), len(other))
    for at in range(length):
        if one[at] != other[at]:
            return at
    return length


def _clean_length(text: bytes) -> int | None:
    if _SPECIAL.isdisjoint(text):
        try:
            return len(text.decode())
        except UnicodeDecodeError:
            return None
    return None


class Vocabulary:
    """The tokens of a model.

    `tokens[i]` are the bytes of id i, None for tokens that are never text; as many as the logits are wide.
    `end_ids` end a turn. `encode` splits bytes of whole characters as the tokenizer does in the midst of a
    text. `fingerprint` names the tokenizer.
    """

    def __init__(
        self,
        tokens: Sequence[bytes | None],
        *,
        end_ids: Collection[int],
        encode: Callable[[bytes], list[int]],
        fingerprint: str,
    ) -> None:
        self.tokens = tuple(tokens)
        self.end_ids = frozenset(end_ids)
        self.fingerprint = fingerprint
        self._encode = encode
        self._spelled: dict[bytes, tuple[int, ...] | None] = {}
        self.size = len(self.tokens)
        self.longest = max((len(t) for t in self.tokens if t), default=1)
        """Bytes of the longest token."""
        outside = [i for i in self.end_ids if not 0 <= i < self.size]
        if outside:
            raise ConstraintError(f"end ids {outside} lie outside the vocabulary of {self.size} tokens")

    def _texts(self) -> Iterable[tuple[bytes, int]]:
        return ((text, i) for i, text in enumerate(self.tokens) if text and i not in self.end_ids)

    @cached_property
    def trie(self) -> Trie:
        """All tokens that are text."""
        return Trie(list(self._texts()))

    @cached_property
    def singles(self) -> dict[int, int]:
        """Bytes that are a token of their own."""
        trie = self.trie
        return {byte: trie.ids[place][0] for byte, place in trie.kids[0].items() if trie.ids[place]}

    @cached_property
    def spellable(self) -> bytes:
        """The bytes of `singles`."""
        return bytes(self.singles)

    @cached_property
    def ends(self) -> Ids:
        """End ids as an array."""
        return np.array(sorted(self.end_ids), np.int32)

    def encode(self, text: bytes) -> list[int]:
        """Canonical ids of whole characters. Empty if the tokenizer can't spell them."""
        ids = self._encode(text)
        return ids if b"".join(self.tokens[i] or b"" for i in ids) == text else []

    def spell(self, text: bytes) -> tuple[int, ...] | None:
        """Ids that spell `text`: canonical ones, else byte by byte. None if the tokens can't spell it."""
        if not text:
            return ()
        if text not in self._spelled:
            if len(self._spelled) > 20_000:
                self._spelled.clear()
            try:
                text.decode()
                ids = tuple(self.encode(text))
            except UnicodeDecodeError:
                ids = ()
            if not ids and not text.translate(None, self.spellable):
                ids = tuple(self.singles[b] for b in text)
            self._spelled[text] = ids or None
        return self._spelled[text]
