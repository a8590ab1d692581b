"""agentree as an engine of the workloads, through its public API."""

import itertools
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agentree import Choice, Forks, Generation, JSONSchema, Runtime, Transcript, assistant, raw
from agentree.messages import Message
from benchmarks.talk import Reply, Want

END = "<|im_end|>"
"""How the embedded model ends a turn."""

Sharing = Literal["all", "own", "none"]
"""Who may use what was computed: everybody; the same conversation; nobody, so that every prompt is computed
whole."""


@dataclass(frozen=True)
class LocalChat:
    """A transcript, with its messages where it has to be written anew."""

    engine: "Local"
    transcript: Transcript
    said: tuple[Message, ...]

    def add(self, message: Message, /) -> "LocalChat":
        """See `Chat`."""
        return replace(self, transcript=self.transcript + message, said=(*self.said, message))

    def apart(self) -> "LocalChat":
        """The same conversation as new text that shares nothing."""
        return self.engine.chat(*self.said)

    async def reply(self, want: Want, /) -> tuple["LocalChat", Reply]:
        """See `Chat`."""
        start = self.apart() if self.engine.sharing == "none" else self
        began = time.perf_counter()
        generated, first = await _generate(start.transcript, want)
        usage, text, output = generated.usage, generated.text, generated.usage.output_tokens
        while want.exact and output < want.tokens:
            # Ended early: go on behind the end token, as engines do that are told to ignore it.
            output += 1
            if output < want.tokens:
                rest = replace(want, tokens=want.tokens - output)
                generated, _ = await _generate(generated.transcript + raw(END), rest)
                text, output = text + generated.text, output + generated.usage.output_tokens
        reply = Reply(
            text, usage.prompt_tokens, output, began, time.perf_counter(), first, usage.cached_tokens
        )
        self.engine.replies.append(reply)
        said = (*start.said, assistant(text))
        return LocalChat(self.engine, generated.transcript, said), reply


async def _generate(transcript: Transcript, want: Want) -> tuple[Generation[Any], float | None]:
    out = JSONSchema(want.schema) if want.schema else Choice(want.choices) if want.choices else str
    if not want.watched:
        return await transcript.gen(out, max_tokens=want.tokens), None
    first: float | None = None
    async with transcript.stream(out, max_tokens=want.tokens) as stream:
        async for _ in stream:
            first = first or time.perf_counter()
    return stream.generation, first


@dataclass(frozen=True)
class LocalBranches:
    """Branches of one fork."""

    chats: Sequence[LocalChat]
    forks: Forks | None

    def keep(self, chats: Iterable[LocalChat], /) -> list[LocalChat]:
        """See `Branches`."""
        kept = list(chats)
        if self.forks is None:
            return kept
        held = self.forks.keep([chat.transcript for chat in kept])
        return [replace(chat, transcript=transcript) for chat, transcript in zip(kept, held, strict=True)]


@dataclass
class Local:
    """An open runtime."""

    lm: Runtime
    sharing: Sharing = "all"
    replies: list[Reply] = field(default_factory=list[Reply])
    _salts: "itertools.count[int]" = field(default_factory=itertools.count)

    def chat(self, *messages: Message) -> LocalChat:
        """See `Engine`."""
        salt = "" if self.sharing == "all" else f"{next(self._salts)}"
        return LocalChat(self, self.lm.transcript(*messages, salt=salt), messages)

    @asynccontextmanager
    async def fork(self, beam: Sequence[LocalChat], each: int) -> AsyncGenerator[LocalBranches]:
        """See `Engine`."""
        if self.sharing != "all":
            yield LocalBranches([chat.apart() for chat in beam for _ in range(each)], None)
            return
        async with self.lm.fork([chat.transcript for chat in beam], each=each) as forks:
            parents = [chat for chat in beam for _ in range(each)]
            chats = [replace(p, transcript=t) for p, t in zip(parents, forks, strict=True)]
            yield LocalBranches(chats, forks)
