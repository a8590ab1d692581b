"""What a workload asks of an engine, ours or another: conversations as values, replies, forks."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from agentree.messages import Message


@dataclass(frozen=True)
class Want:
    """What a reply shall be: greedy, of at most so many tokens."""

    tokens: int
    exact: bool = False
    """Exactly so many tokens: an end token does not end it."""
    schema: Mapping[str, Any] | None = None
    """The reply is a JSON value of this schema, forced by whatever the engine has for it."""
    choices: tuple[str, ...] = ()
    """The reply is one of these."""
    watched: bool = False
    """Read it as it comes, to see when its first token is there."""


@dataclass(frozen=True)
class Reply:
    """What came back. Tokens as the engine counts them, times in seconds on the clock of this process."""

    text: str
    prompt: int
    output: int
    began: float
    ended: float
    first: float | None = None
    """When the first text was there, where the reply was watched."""
    cached: int | None = None
    """Prompt tokens that needed no computation; None where the engine does not say."""


class Chat(Protocol):
    """A conversation so far. Never changes."""

    def add(self, message: Message, /) -> Self:
        """The conversation with one more message."""
        ...

    async def reply(self, want: Want, /) -> tuple[Self, Reply]:
        """The conversation with the model's answer, and that answer."""
        ...


C = TypeVar("C", bound=Chat)


class Branches(Protocol[C]):
    """The branches of a fork, while its block lasts."""

    @property
    def chats(self) -> Sequence[C]:
        """All branches: those of the first parent first."""
        ...

    def keep(self, chats: Iterable[C], /) -> list[C]:
        """Conversations that go on after the block."""
        ...


class Engine(Protocol[C]):
    """Somewhere to hold conversations."""

    @property
    def replies(self) -> list[Reply]:
        """All replies since the last call of `cold`."""
        ...

    def chat(self, *messages: Message) -> C:
        """A new conversation."""
        ...

    def fork(self, beam: Sequence[C], each: int) -> AbstractAsyncContextManager[Branches[C]]:
        """`each` branches of every conversation of a beam."""
        ...
