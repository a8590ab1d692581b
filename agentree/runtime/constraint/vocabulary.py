"""What the constraint engine knows of a tokenizer: the bytes of each token, as a trie, and how texts are
split.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agentree.errors import ConstraintError

Mask = NDArray[np.bool_]
Ids = NDArray[np.int32]

_NO_KIDS: dict[int, int] = {}
_SPECIAL = frozenset((*range(0x20), 0x22, 0x5C))


class Trie:
    """Byte strings to token ids. `kids[place]` maps a byte to a place, `ids[place]` are the tokens that
    end there.
    """

    def __init__(self, tokens: Iterable[tuple[bytes, int]]) -> None:
        self.kids: list[dict[int, int]] = [{}]
        self.ids: list[tuple[int, ...]] = [()]
        for text, number in sorted(tokens):
            here = 0
            for byte in text:
                kids = self.kids[here]
                if kids is _NO_KIDS:
                    kids = self.kids[here] = {}
                after = kids.get(byte)
                if after is None:
                    after = kids[byte] = len(self.kids)
                    self.kids.append(_NO_KIDS)
                    self.ids.append(())
                here = after
            self.ids[here] = (*self.ids[here], number)

    def find(self, text: bytes) -> int:
        """The place of a text, -1 if no token starts with it."""
        here = 0
        for byte in text:
            here = self.kids[here].get(byte, -1)
            if here < 0:
                return -1
        return here


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
        return Trie(self._texts())

    @cached_property
    def singles(self) -> dict[int, int]:
        """Bytes that are a token of their own."""
        return {text[0]: i for text, i in reversed(list(self._texts())) if len(text) == 1}

    @cached_property
    def spellable(self) -> bytes:
        """The bytes of `singles`."""
        return bytes(self.singles)

    @cached_property
    def clean(self) -> tuple[Ids, Ids]:
        """Tokens that any JSON string may go on with, by rising number of code points, and those numbers."""
        found: list[tuple[int, int]] = []
        for text, i in self._texts():
            if _SPECIAL.isdisjoint(text):
                try:
                    found.append((len(text.decode()), i))
                except UnicodeDecodeError:
                    continue
        found.sort()
        return np.array([i for _, i in found], np.int32), np.array([n for n, _ in found], np.int32)

    @cached_property
    def unclean(self) -> Trie:
        """The other tokens."""
        clean = set(self.clean[0].tolist())
        return Trie((text, i) for text, i in self._texts() if i not in clean)

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
