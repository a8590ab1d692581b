"""Conversations as immutable values over token ids."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar, overload

from agentree.events import Forked
from agentree.lm.arguments import items, text, whole
from agentree.lm.block import Block
from agentree.lm.forks import Forks, branches
from agentree.lm.generate import Options, generate
from agentree.lm.generation import Generation, Usage
from agentree.lm.stream import Stream, open_stream
from agentree.lm.target import target_of, target_of_call
from agentree.lm.turns import Conversation
from agentree.runtime.constraint import Choice, Regex
from agentree.runtime.request import TokenCounts
from agentree.tools import Tool, ToolCalls

T = TypeVar("T")
U = TypeVar("U")


class Transcript(Conversation):
    """Immutable and append-only. `t + message` shares every token of `t`.

    Holds nothing: dropping one is free. What is kept in the cache is decided by scopes (fork, node, run).

    A message is rendered as what it adds to the chat template's text. `gen` opens an assistant turn, and the
    next message or generation closes it; after `raw` text, `gen` goes on from that text instead. Ids that
    were generated stay as they were sampled. Two transcripts are equal if they belong to the same runtime and
    tenant, hold the same tokens and go on in the same way.
    """

    __slots__ = ()

    @overload
    async def gen(
        self,
        out: type[T],
        /,
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        think: int = 0,
    ) -> Generation[T]: ...
    @overload
    async def gen(
        self,
        a: type[T],
        b: type[U],
        /,
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        think: int = 0,
    ) -> Generation[T | U]: ...
    @overload
    async def gen(
        self,
        out: Regex | Choice,
        /,
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        think: int = 0,
    ) -> Generation[str]: ...
    @overload
    async def gen(
        self,
        out: Any,
        /,
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        think: int = 0,
    ) -> Generation[Any]: ...
    async def gen(
        self,
        *out: Any,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        think: int = 0,
    ) -> Generation[Any]:
        """Generate a value of the given type; all but `str` are forced, so that they always end and parse.

        Args:
            out: `str`, a pydantic model, dataclass, TypedDict, Literal, Enum, int, float, bool, list[...], a
                union, Regex, Choice or JSONSchema. Two types mean one or the other.
            max_tokens: At most so many tokens. A forced value is kept short enough to end within them.
            temperature: 0 takes the likeliest token.
            top_p: Sample among the likeliest tokens that together have this probability.
            stop: Strings that end free text; they are not part of it.
            seed: With a seed, the generation is a pure function of transcript and arguments. None draws one
                from the runtime; it is recorded in the result.
            think: Free tokens before a forced value, in the same turn.

        Raises:
            ConstraintError: The type can't be enforced, or `max_tokens` is below its shortest value.
            InvalidArgument: An argument is out of range, or `stop` came with a forced type.
            InvalidValue: The type's own validator refuses the value.
            ContextOverflow: It can't fit the model's context or the KV pool.
            RuntimeClosed: The runtime was closed.
        """  # fmt: skip
        options = Options.of(max_tokens, temperature, top_p, stop, seed, think)
        target = await target_of(self._session, out)
        options.check(target)
        drawn = self._seeds.draw() if options.seed is None else options.seed
        return (await generate(self._session, [self], [target], options, [drawn]))[0]

    @overload
    def stream(
        self,
        out: type[T],
        /,
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
    ) -> AbstractAsyncContextManager[Stream[T]]: ...
    @overload
    def stream(
        self,
        out: Any,
        /,
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
    ) -> AbstractAsyncContextManager[Stream[Any]]: ...
    def stream(
        self,
        *out: Any,
        max_tokens: int = 256,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
    ) -> AbstractAsyncContextManager[Stream[Any]]:
        """The same as `gen`, with the text as it comes. Leaving the block early aborts the generation."""
        options = Options.of(max_tokens, temperature, stop=stop, seed=seed)
        return Block(open_stream(self, out, options), call="t.stream(...)", name="stream", inside=Stream)

    async def call(
        self,
        tools: Sequence[Tool[..., Any]],
        /,
        *,
        output: type[T],
        max_tokens: int = 256,
        temperature: float = 0.0,
        parallel: bool = False,
        think: int = 0,
    ) -> Generation[ToolCalls | T]:
        """Either tool calls or the final value, both forced.

        The tools need not be those that the transcript was opened with; the model only knows those. Calls are
        numbered through a transcript: "call_1", "call_2", ... `parallel` allows several calls in one turn.
        Raises the same as `gen`.
        """
        options = Options.of(max_tokens, temperature, think=think)
        target = await target_of_call(self._session, tools, output, parallel=parallel)
        options.check(target)
        return (await generate(self._session, [self], [target], options, [self._seeds.draw()]))[0]

    async def score(self, continuations: Sequence[str], /) -> list[float]:
        """Sum of token log-probabilities of each continuation; the prefix is computed once.

        After a message, a continuation is scored as the beginning of the assistant's turn; after a generation
        or raw text, as going on from there. It is tokenized by itself: a leading space belongs to it, and it
        never merges with the transcript's last token. The empty string has the score 0.
        """
        start = self if self._in_turn and not self._raw else self._opened()
        tokenizer = self._session.tokenizer
        listed = items("score: continuations", continuations, 'write t.score(["yes", "no"])')
        texts = [text(f"score: continuations[{i}]", c, "only text is scored") for i, c in enumerate(listed)]
        encoded = [tuple(tokenizer.encode(continuation)) for continuation in texts]
        requests = [
            replace(start._grown(ids, "")._request(0), score_from=len(start), hold=None)
            for ids in encoded
            if ids
        ]
        scored = iter(await self._session.run(requests))
        return [sum(next(scored).scores) if ids else 0.0 for ids in encoded]

    async def prefill(self) -> Usage:
        """Compute what is not in the cache yet, and generate nothing."""
        if not self._ids:
            return Usage.of(TokenCounts(0, 0, 0, 0, 0, 0))
        (result,) = await self._session.run([self._request(0)])
        return Usage.of(result.counts)

    def fork(self, n: int = 1) -> AbstractAsyncContextManager[Forks]:
        """`n` branches that go on from here, each with a path of its own; the block is their scope."""
        n = whole("fork: n", n, "a number of branches, 0 or more", least=0)
        return Block(self._forked(n), call=f"t.fork({n})", name="kids", inside=Forks)

    @asynccontextmanager
    async def _forked(self, n: int) -> AsyncGenerator[Forks]:
        self._session.bus.emit(
            Forked(run=self._scope.run, path=self._scope.path, n=n, shared_tokens=len(self._ids))
        )
        async with branches([self] * n, self._session, self._seeds) as forks:
            yield forks
