"""Other engines behind the interface of the workloads, each in a process of its own."""

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentree.messages import Message, assistant
from benchmarks.talk import Reply, Want

STARTED = 900.0
"""Seconds that an engine may take to come up: some compile at first."""


class PeerFailed(Exception):
    """Another engine did not come up, or answered with an error."""


@dataclass(frozen=True)
class RemoteChat:
    """Messages that are sent whole for every reply."""

    engine: "Remote"
    said: tuple[Message, ...]

    def add(self, message: Message, /) -> "RemoteChat":
        """See `Chat`."""
        return replace(self, said=(*self.said, message))

    async def reply(self, want: Want, /) -> tuple["RemoteChat", Reply]:
        """See `Chat`."""
        reply = await self.engine.answer([{"role": m.role, "content": m.text} for m in self.said], want)
        self.engine.replies.append(reply)
        return self.add(assistant(reply.text)), reply


@dataclass(frozen=True)
class RemoteBranches:
    """Branches that exist on this side only."""

    chats: Sequence[RemoteChat]

    def keep(self, chats: Iterable[RemoteChat], /) -> list[RemoteChat]:
        """See `Branches`."""
        return list(chats)


@dataclass
class Remote(ABC):
    """An engine in a process of its own."""

    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    replies: list[Reply] = field(default_factory=list[Reply])
    pid: int = 0

    def chat(self, *messages: Message) -> RemoteChat:
        """See `Engine`."""
        return RemoteChat(self, messages)

    @asynccontextmanager
    async def fork(self, beam: Sequence[RemoteChat], each: int) -> AsyncGenerator[RemoteBranches]:
        """See `Engine`."""
        yield RemoteBranches([chat for chat in beam for _ in range(each)])

    @abstractmethod
    async def start(self) -> None:
        """Start the process and wait until it answers. Raises PeerFailed."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop the process, and those that it started."""

    @abstractmethod
    async def answer(self, messages: list[dict[str, str]], want: Want) -> Reply:
        """The engine's reply. Raises PeerFailed."""

    def pause(self) -> None:
        """Let it use no CPU while others are measured."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        """End a pause."""
        self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all its processes."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def failed(self, what: object) -> PeerFailed:
        """What to raise, with the end of its log."""
        tail = self.log.read_text(errors="replace").splitlines()[-3:] if self.log.exists() else []
        return PeerFailed(f"{self.command[0]}: {what}; its log is {self.log} {tail}")
