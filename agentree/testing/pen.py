"""Writes a scripted text token by token, as a model under the same constraint would."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from agentree.runtime.sequence import Sequence as Live
from agentree.testing.script import ScriptError

_HINT = (
    "; a turn with tools is always a call: script ToolCall('', name, arguments), or final_answer(value) for "
    "its end"
)


class Tokens(Protocol):
    """What writing needs of a tokenizer."""

    @property
    def size(self) -> int: ...
    def encode_bytes(self, data: bytes) -> list[int]: ...
    def token_bytes(self, token: int) -> bytes | None: ...


@dataclass(eq=False)
class Pen:
    """One scripted answer on its way into a sequence."""

    sequence: Live
    data: bytes
    tokens: Tokens
    by_bytes: Callable[[], dict[bytes, int]]
    """Ids by what they stand for."""
    written: int = 0
    _planned: list[int] = field(default_factory=list[int])

    def forced(self, last: int | None) -> bool:
        """Append every run of tokens that must come now; True if that completes the value."""
        matcher = self.sequence.matcher
        if matcher is None:
            return False
        while not matcher.done:
            run = matcher.forced(last)
            if not run:
                return False
            text = b"".join(self.tokens.token_bytes(token) or b"" for token in run)
            if not self.data[self.written :].startswith(text):
                raise self._illegal(f"{text!r} must follow")
            for token in run:
                matcher.advance(token)
                self._append(token)
            self.sequence.forced += len(run)
            self._planned.clear()
            last = run[-1]
        return True

    def step(self, *, jump_forward: bool) -> str | None:
        """One sampled token and what it forces; how the answer ended, or None while it goes on."""
        sequence, matcher = self.sequence, self.sequence.matcher
        if self.written == len(self.data):
            if matcher is not None and not matcher.accepting:
                raise self._illegal("the value is not complete")
            return "stop"
        token = self._next()
        if matcher is not None:
            matcher.advance(token)
        sequence.sampled += 1
        if self._append(token):
            return "stop"
        if matcher is not None and (matcher.done or (jump_forward and self.forced(token))):
            if self.written < len(self.data):
                raise self._illegal("the value is complete")
            return "stop"
        return "length" if sequence.generated >= sequence.request.max_tokens else None

    def _append(self, token: int) -> bool:
        self.sequence.append(token)
        self.written += len(self.tokens.token_bytes(token) or b"")
        return self.sequence.text.push(token)

    def _next(self) -> int:
        mask = None if self.sequence.matcher is None else self.sequence.matcher.mask()
        if not self._planned:
            self._planned = self.tokens.encode_bytes(self.data[self.written :])[::-1]
        token = self._planned.pop()
        if mask is None or mask[token]:
            return token
        self._planned.clear()
        return self._longest(mask)

    def _longest(self, mask: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]") -> int:
        rest, table = self.data[self.written :], self.by_bytes()
        for length in range(min(len(rest), 64), 0, -1):
            token = table.get(rest[:length])
            if token is not None and mask[token]:
                return token
        raise self._illegal("no token of it is allowed")

    def _illegal(self, why: str) -> ScriptError:
        at, text = self.written, self.data.decode(errors="replace")
        hint = _HINT if at == 0 and self.sequence.watch is not None else ""
        return ScriptError(
            f"the scripted answer {text!r} for {self.sequence.request.scope.path!r} is not what the request "
            f"allows: after {self.data[:at].decode(errors='replace')!r} {why}{hint}"
        )


def ids_by_bytes(tokens: Tokens, allowed: Sequence[int] | None = None) -> dict[bytes, int]:
    """The ids of a vocabulary by what they stand for."""
    ids = range(tokens.size) if allowed is None else allowed
    return {piece: i for i in ids if (piece := tokens.token_bytes(i))}
