"""A conversation as token ids that only grows: what messages, turns and generations append to it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from agentree.errors import InvalidArgument
from agentree.lm.arguments import shown
from agentree.lm.generation import Generation
from agentree.lm.holding import Holder, request_hold
from agentree.lm.prompt import NOTHING, Piece
from agentree.lm.seeds import Seeds
from agentree.lm.session import Session
from agentree.messages import Message
from agentree.runtime.request import Request, Scope
from agentree.tools import Tool


@dataclass(frozen=True)
class Head:
    """What a conversation will open with: not rendered yet, as it depends on the first message."""

    tools: tuple[Tool[..., Any], ...] = ()
    systems: tuple[Message, ...] = ()

    def messages(self) -> list[Message]:
        """Its system messages as one."""
        return [Message("system", "\n\n".join(m.text for m in self.systems))] if self.systems else []


NOBODY = Scope()
EMPTY = Head()


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Conversation:
    """The state of a transcript, and how it grows. Every method returns a new value of the same class."""

    _session: Session
    _seeds: Seeds
    _salt: str = ""
    _scope: Scope = NOBODY
    _head: Head | None = EMPTY
    _ids: tuple[int, ...] = ()
    _text: str = ""
    _in_turn: bool = False
    """An assistant turn is open, or ended and not closed yet."""
    _raw: bool = False
    """A generation goes on from the last token: it opens no turn."""
    _calls: int = 0
    """Tool calls generated so far."""
    _holder: Holder | None = None
    """The branch whose lease moves along with what is generated here."""
    _agent: int = 0
    """Number of the conversation since something was computed on it: earlier ones are served first."""

    @property
    def token_ids(self) -> Sequence[int]:
        """All tokens: what the model sees. A generation's end is closed by what follows it."""
        return self._ids

    @property
    def text(self) -> str:
        """All text, control tokens as the template spells them."""
        return self._text

    def __len__(self) -> int:
        """How many tokens."""
        return len(self._ids)

    def __repr__(self) -> str:
        """Length and the end of the text."""
        tail = self._text if len(self._text) <= 40 else "…" + self._text[-40:]
        return f"<Transcript of {len(self._ids)} tokens: {tail!r}>"

    def __eq__(self, other: object) -> bool:
        """Whether both are the same conversation of the same runtime and tenant."""
        return (
            isinstance(other, Conversation)
            and self._session is other._session
            and self._key() == other._key()
        )

    def __hash__(self) -> int:
        """Hash of what equality compares."""
        return hash((id(self._session), self._key()))

    def __add__(self, message: Message | Sequence[Message], /) -> Self:
        """The conversation with one or more messages after it."""
        if isinstance(message, Message):
            return self._with_message(message)
        if isinstance(message, str) or not isinstance(cast("object", message), Iterable):
            raise _no_message(message)
        grown = self
        for one in cast("Iterable[object]", message):
            if not isinstance(one, Message):
                raise _no_message(one)
            grown = grown._with_message(one)
        return grown

    def _at(self, scope: Scope, *, seed: int | None = None) -> Self:
        """The same conversation under another name; with `seed`, seeds are drawn from it and the path."""
        return replace(self, _scope=scope, _seeds=self._seeds if seed is None else Seeds(seed, scope.path))

    def _key(self) -> tuple[object, ...]:
        return (self._ids, self._salt, self._in_turn, self._raw, self._head)

    def _namespace(self) -> tuple[str, str, str]:
        return ("agentree", self._session.name, self._salt)

    def _request(self, max_tokens: int, **options: Any) -> Request:
        return Request(
            prompt=self._ids,
            max_tokens=max_tokens,
            namespace=self._namespace(),
            scope=self._scope,
            agent=None if self._scope.run else self._agent or None,
            hold=request_hold(self._session, self._holder, self._scope),
            **options,
        )

    def _grown(self, ids: tuple[int, ...], text: str) -> Self:
        return replace(self, _ids=self._ids + ids, _text=self._text + text)

    def _with_piece(self, piece: Piece, *, in_turn: bool, raw: bool) -> Self:
        return replace(self._grown(*piece), _head=None, _in_turn=in_turn, _raw=raw)

    def _with_message(self, message: Message) -> Self:
        prompts = self._session.prompts
        if message.role == "raw":
            head = self._head if self._head is not None and (self._head.tools or self._head.systems) else None
            start = (
                self._with_piece(prompts.opening(head.messages(), head.tools), in_turn=False, raw=False)
                if head
                else self
            )
            return start._with_piece(
                prompts.raw(message.text, start=not start._ids), in_turn=start._in_turn, raw=True
            )
        closed = self._closed()
        head = closed._head
        if head is None:
            return closed._with_piece(prompts.delta(message), in_turn=False, raw=False)
        if message.role != "system":
            opening = prompts.opening([*head.messages(), message], head.tools)
        elif head.systems or not prompts.stands_alone(head.tools):
            return replace(closed, _head=Head(head.tools, (*head.systems, message)))
        else:
            opening = prompts.opening([message], head.tools)
        return closed._with_piece(opening, in_turn=False, raw=False)

    def _closed(self) -> Self:
        if not self._in_turn:
            return self
        return self._with_piece(self._session.prompts.turn_close, in_turn=False, raw=False)

    def _opened(self) -> Self:
        """With the assistant's turn opened, or as it is after raw text: a generation goes on from its end."""
        prompts = self._session.prompts
        if self._raw:
            if not self._ids:
                raise InvalidArgument(
                    "there is nothing to go on from: the transcript holds only empty raw text"
                )
            return self._begun()
        head = self._head
        opening = prompts.opening(head.messages(), head.tools) if head is not None else NOTHING
        begun = self._closed()._begun()._grown(*opening)
        return begun._with_piece(prompts.turn_opening, in_turn=True, raw=True)

    def _begun(self) -> Self:
        return self if self._agent else replace(self, _agent=self._session.number())

    def _ended(self) -> Self:
        return replace(self, _raw=not self._in_turn)

    def _after_calls(self, n: int) -> Self:
        return replace(self, _calls=self._calls + n)


def _no_message(value: object) -> InvalidArgument:
    if isinstance(value, str):
        how = f"write user({shown(value)}), or system(...), assistant(...), raw(...)"
    elif isinstance(value, Conversation | Generation):
        how = "go on from a generation's transcript: made.transcript + user(...)"
    elif isinstance(value, list | tuple):
        how = "pass its members: lm.transcript(*messages), or t + messages"
    else:
        how = "write user(...), system(...), assistant(...) or raw(...) around a text"
    return InvalidArgument(f"{shown(cast('object', value))} is no message: {how}")
