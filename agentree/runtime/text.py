"""Text of a running generation: bytes in by token, whole characters out, stop strings found on the way."""

import codecs
from collections.abc import Callable, Sequence


class TextStream:
    """Bytes of the generated tokens, decoded as far as they form whole characters.

    Text that may turn out to be the beginning of a stop string is held back from `take` until it is
    decided, so that a reader never sees a stop string or a part of one.
    """

    def __init__(self, token_bytes: Callable[[int], bytes | None], stop: Sequence[str] = ()) -> None:
        self._token_bytes = token_bytes
        self._stop = [s.encode() for s in stop]
        self._longest = max((len(s) for s in self._stop), default=0)
        self._data = bytearray()
        self._ends: list[int] = []
        self._shown = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.stopped_at: int | None = None
        """Offset in bytes where a stop string begins, once one was found."""

    def push(self, token: int) -> bool:
        """Append a token; True once a stop string is complete."""
        begin = max(0, len(self._data) - self._longest + 1)
        self._data += self._token_bytes(token) or b""
        self._ends.append(len(self._data))
        if not self._stop:
            return False
        found = [at for s in self._stop if (at := self._data.find(s, begin)) >= 0]
        if found:
            self.stopped_at = min(found)
        return bool(found)

    def take(self) -> str:
        """Characters that are certain and were not taken yet."""
        safe = self._safe_length()
        if safe <= self._shown:
            return ""
        piece = bytes(self._data[self._shown : safe])
        self._shown = safe
        return self._decoder.decode(piece)

    def rest(self) -> str:
        """What `take` still held back, at the end of the generation."""
        piece = bytes(self._data[self._shown : self.stopped_at])
        self._shown += len(piece)
        return self._decoder.decode(piece, final=True)

    def text(self) -> str:
        """The whole text, cut where a stop string begins."""
        return self._data[: self.stopped_at].decode(errors="replace")

    def of(self, tokens: Sequence[int]) -> str:
        """What other tokens spell, control tokens left out."""
        return b"".join(self._token_bytes(token) or b"" for token in tokens).decode(errors="replace")

    def data_from(self, start: int) -> bytes:
        """All bytes from an offset on, whether they form whole characters or not."""
        return bytes(self._data[start:])

    def kept(self) -> tuple[int, bytes]:
        """How many leading tokens lie wholly in the text, and the bytes of the text past them."""
        if self.stopped_at is None:
            return len(self._ends), b""
        whole = sum(end <= self.stopped_at for end in self._ends)
        start = self._ends[whole - 1] if whole else 0
        return whole, bytes(self._data[start : self.stopped_at])

    def _safe_length(self) -> int:
        if self.stopped_at is not None:
            return self.stopped_at
        length = len(self._data)
        for s in self._stop:
            for k in range(min(len(s) - 1, len(self._data)), 0, -1):
                if self._data.endswith(s[:k]):
                    length = min(length, len(self._data) - k)
                    break
        return length
