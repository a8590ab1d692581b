"""Forced runs in the tokens of the tokenizer itself, as far as nothing that follows can change them."""

from agentree.runtime.constraint.positions import Position
from agentree.runtime.constraint.vocabulary import Trie, Vocabulary

MOST_RUNS = 20_000
_TYPICAL = b'aetsi AT1"\\.,-}]:/('
"""Bytes that stand for what may follow where nearly anything may."""

LOOK_BACK = 4
"""Tokens at the end of a forced run that are checked for a longer token across its end."""


class ForcedRuns:
    """Forced runs over one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._runs: dict[tuple[Position, int | None], tuple[int, ...]] = {}

    def after(self, position: Position, last: int | None) -> tuple[int, ...]:
        """Canonical ids of the run that must follow at a position, its unsure end chopped off.

        `last` is the token before it, with which its beginning may merge.
        """
        run, _ = position.forced()
        if not run:
            return ()
        key = (position, last)
        found = self._runs.get(key)
        if found is None:
            if len(self._runs) > MOST_RUNS:
                self._runs.clear()
            found = self._runs[key] = self._force(position, last)
        return found

    def _force(self, position: Position, last: int | None) -> tuple[int, ...]:
        vocabulary = self.vocabulary
        run, _ = position.forced()
        run = run[: _whole_characters(run)]
        if not run:
            return ()
        ids: list[int] = []
        left = b""
        before = vocabulary.tokens[last] if last is not None and 0 <= last < vocabulary.size else None
        if before and _decodes(before + run):
            together = vocabulary.encode(before + run)
            if together and together[0] == last:
                ids, left = together[1:], before
        if not ids and _decodes(run):
            ids = vocabulary.encode(run)
        end: Position | None = position
        for byte in b"".join(vocabulary.tokens[i] or b"" for i in ids):
            assert end is not None
            end = end.step(byte)
        if not ids or end is None:
            return ()
        return tuple(self._steady(self._chopped(ids, end), left + run, end, 1 if left else 0))

    def _steady(self, ids: list[int], text: bytes, end: Position, skip: int) -> list[int]:
        """As far as the tokenizer splits `text` alike before whatever may follow it.

        A merge across the end can undo an earlier one, although no single token crosses the end.
        """
        vocabulary = self.vocabulary
        following = end.legal()
        if len(following) > len(_TYPICAL):
            following = bytes(b for b in _TYPICAL if b in following)
        for byte in following:
            after = end.step(byte)
            if not ids or after is None:
                break
            longer = text + bytes((byte,)) + after.forced()[0]
            longer = longer[: _whole_characters(longer)]
            other = vocabulary.encode(longer)[skip:] if _decodes(longer) else ids
            same = 0
            while same < min(len(ids), len(other)) and ids[same] == other[same]:
                same += 1
            ids = ids[:same]
        return ids

    def _chopped(self, ids: list[int], end: Position) -> list[int]:
        """Without the tokens that a longer one could replace, once it is known what follows."""
        vocabulary = self.vocabulary
        tail = b"".join(vocabulary.tokens[i] or b"" for i in ids[-LOOK_BACK:])[-vocabulary.longest :]
        for start in range(len(tail)):
            place = vocabulary.trie.find(tail[start:])
            if place >= 0 and _extends(vocabulary.trie, place, end):
                drop = len(tail) - start
                while drop > 0:
                    drop -= len(vocabulary.tokens[ids.pop()] or b"")
                break
        return ids


def _extends(trie: Trie, place: int, position: Position) -> bool:
    """Whether some token goes on from `place` with bytes that are legal at `position`."""
    pending = [(position, place)]
    while pending:
        here, at = pending.pop()
        for byte, child in trie.kids[at].items():
            target = here.step(byte)
            if target is not None:
                if trie.ids[child]:
                    return True
                pending.append((target, child))
    return False


def _decodes(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _whole_characters(text: bytes) -> int:
    """Length without an unfinished character at the end."""
    for back in range(1, min(4, len(text)) + 1):
        byte = text[-back]
        if byte & 0xC0 != 0x80:
            size = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(text) if size <= back else len(text) - back
    return len(text)
