"""From rendered messages to token ids: control tokens from the template, never from what somebody said."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from agentree.chat import ChatTemplate, Span, Spans, ToolLike
from agentree.messages import Message


class TextTokens(Protocol):
    """What rendering needs of a tokenizer."""

    @property
    def size(self) -> int: ...
    @property
    def bos(self) -> str: ...
    @property
    def eos(self) -> str: ...
    def encode(self, text: str, *, special: bool = False) -> list[int]: ...
    def decode(self, ids: Sequence[int], *, special: bool = False) -> str: ...
    def token_bytes(self, token: int) -> bytes | None: ...


class Piece(NamedTuple):
    """What is appended to a transcript in one go."""

    ids: tuple[int, ...]
    text: str


NOTHING = Piece((), "")

REMEMBERED = 64
"""Pieces whose ids are remembered: many agents begin with the same words."""
LONG = 20_000
"""Characters from which on a piece is not remembered."""


def control_strings(tokenizer: TextTokens) -> tuple[str, ...]:
    """How a tokenizer's control tokens are spelled."""
    ids = (i for i in range(tokenizer.size) if tokenizer.token_bytes(i) is None)
    return tuple(text for i in ids if (text := tokenizer.decode([i], special=True)))


class Prompts:
    """Messages as token ids, by one model's chat template and tokenizer."""

    def __init__(self, template: str | None, tokenizer: TextTokens) -> None:
        controls = control_strings(tokenizer)
        self.chat = ChatTemplate(template, bos=tokenizer.bos, eos=tokenizer.eos, controls=controls)
        self._tokenizer = tokenizer
        self._remembered = lru_cache(REMEMBERED)(self._read)
        self._alone: dict[bool, bool] = {}
        ordered = sorted(controls, key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        self.turn_opening = self.piece((Span(self.chat.turn_opening, True),))
        self.turn_close = self.piece((Span(self.chat.turn_close, True),))

    def stands_alone(self, tools: Sequence[ToolLike]) -> bool:
        """Whether a leading system message can be rendered before the message after it is known."""
        key = bool(tools)
        if key not in self._alone:
            self._alone[key] = self.chat.stands_alone(tools)
        return self._alone[key]

    def opening(self, messages: Sequence[Message], tools: Sequence[ToolLike]) -> Piece:
        """Start of a conversation."""
        return self.piece(self.chat.opening(messages, tools), start=True)

    def delta(self, message: Message) -> Piece:
        """What a message adds to a conversation."""
        return self.piece(self.chat.delta(message))

    def raw(self, text: str, *, start: bool) -> Piece:
        """Text outside the template; control tokens that it spells are control tokens."""
        return self.piece(self.chat.plain(text), start=start)

    def plain(self, text: str) -> Piece:
        """Text that goes on from other text and holds no control tokens."""
        return Piece(tuple(self._tokenizer.encode(text)), text)

    def shown(self, ids: Sequence[int]) -> str:
        """Text of ids, control tokens included."""
        return self._tokenizer.decode(ids, special=True)

    def piece(self, spans: Spans, *, start: bool = False) -> Piece:
        """Ids of rendered text. Without `start` it goes on from text: no prefix that only a start gets."""
        read = self._read if sum(len(span.text) for span in spans) > LONG else self._remembered
        return read(spans, start)

    def _read(self, spans: Spans, start: bool) -> Piece:
        ids: list[int] = []
        for span in spans:
            if not span.control:
                ids += self._tokenizer.encode(span.text)
                continue
            plain = 0 if start or ids else self._plain_length(span.text)
            ids += self._tokenizer.encode(span.text[:plain]) if plain else []
            ids += self._tokenizer.encode(span.text[plain:], special=True) if plain < len(span.text) else []
        return Piece(tuple(ids), "".join(span.text for span in spans))

    def _plain_length(self, text: str) -> int:
        found = self._control.search(text) if self._control else None
        return found.start() if found else len(text)
