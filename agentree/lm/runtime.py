"""The runtime that a user opens: one model, one device, one radix tree."""

import threading
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from copy import copy
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import anyio
from anyio import to_thread

from agentree.errors import InvalidArgument
from agentree.events import Bus, Event, Forked
from agentree.lm.arguments import text, whole
from agentree.lm.block import Block
from agentree.lm.drift import TemplateReport
from agentree.lm.feed import Feed
from agentree.lm.forks import Forks, branches, transcripts
from agentree.lm.generation import Stats
from agentree.lm.holding import owner_of
from agentree.lm.home import Home, Settings
from agentree.lm.seeds import Seeds
from agentree.lm.session import Recall
from agentree.lm.transcript import Transcript
from agentree.lm.turns import Head
from agentree.messages import Message
from agentree.runtime.request import Scope
from agentree.tools import Tool, tools_by_name


class Runtime:
    """The bundled engine: one model, one device, one radix tree.

    Making one is cheap; `async with` loads the model, and everything but `events` works inside of it only.
    Once closed it may be opened again.
    """

    def __init__(
        self,
        model: str | Path = "smollm2-135m-instruct",
        *,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        kv_tokens: int | None = None,
        gpu_memory_fraction: float = 0.9,
        max_batch_tokens: int | None = None,
        weights: Literal["auto", "fp32", "fp16", "bf16", "int8"] = "auto",
        eviction: Literal["plan", "lru"] = "plan",
        jump_forward: bool = True,
        speculate: bool = True,
        seed: int = 0,
    ) -> None:
        """Nothing is loaded yet.

        Args:
            model: A catalogue name, a model folder, a .gguf file, or a hub id.
            device: "auto" is a GPU if there is one.
            kv_tokens: Size of the KV pool in tokens; None: as much as suits the model and the memory.
            gpu_memory_fraction: How much of a GPU's memory weights and pool may take together.
            max_batch_tokens: Most tokens that one forward takes; None: the engine's default.
            weights: How the linear layers are stored.
            eviction: "plan" keeps what is needed soonest, "lru" what was used last.
            jump_forward: Append forced tokens without a forward pass.
            speculate: Guess tokens from text that is known and verify several in one forward pass, where that
                pays. It changes no output.
            seed: Where the seeds come from that a generation was not given.
        """
        settings = Settings(
            model=model,
            device=device,
            kv_tokens=kv_tokens,
            gpu_memory_fraction=gpu_memory_fraction,
            max_batch_tokens=max_batch_tokens,
            weights=weights,
            eviction=eviction,
            jump_forward=jump_forward,
            speculate=speculate,
        )
        self._home = Home(settings)
        self._seeds = Seeds(seed)
        self._scope = Scope()

    def __repr__(self) -> str:
        """Which model."""
        return f"<Runtime of {str(self._home.settings.model)!r}>"

    @property
    def bus(self) -> Bus:
        """Where all events of this runtime travel. May be subscribed to before it is opened."""
        return self._home.bus

    @property
    def template_report(self) -> TemplateReport:
        """What the model's chat template can't do, and where re-rendering it would break a prefix."""
        return self._home.session.template_report()

    def transcript(
        self, *messages: Message, tools: Sequence[Tool[..., Any]] = (), salt: str = ""
    ) -> Transcript:
        """A conversation that opens with `messages`, and with `tools` described where the model expects it.

        `salt` separates tenants: transcripts with different salts never share cache.
        """
        text("transcript: salt", salt, "it names the tenant whose transcripts share cache")
        head = Head(tuple(tools_by_name(tools).values()))
        empty = Transcript(self._home.session, self._seeds, _salt=salt, _scope=self._scope, _head=head)
        return empty + messages

    def fork(self, beam: Sequence[Transcript], *, each: int = 1) -> AbstractAsyncContextManager[Forks]:
        """`each` branches of every transcript of a beam, in order: the block is their scope."""
        each = whole("fork: each", each, "a number of branches of each transcript, 0 or more", least=0)
        listed = transcripts("fork: beam", beam, "lm.fork([t1, t2], each=2)")
        return Block(self._forked(listed, each), call="lm.fork(...)", name="kids", inside=Forks)

    @asynccontextmanager
    async def _forked(self, beam: Sequence[Transcript], each: int) -> AsyncGenerator[Forks]:
        session = self._home.session
        for t in beam:
            if t._session is not session:
                raise InvalidArgument(
                    f"fork: {t!r} belongs to another runtime, or to an earlier opening of this one"
                )
        for t in beam:
            self.bus.emit(Forked(run=t._scope.run, path=t._scope.path, n=each, shared_tokens=len(t)))
        seeds = beam[0]._seeds if beam else self._seeds
        async with branches([t for t in beam for _ in range(each)], session, seeds) as forks:
            yield forks

    def stats(self) -> Stats:
        """Monotone counters and the pool's state; after closing, as they were at the end."""
        return self._home.last.stats()

    def events(self, *, run: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """All events from now on, or those of one run.

        May be entered before the runtime is, to see a model load.
        The iterator ends when the runtime closes. A reader that is too slow misses events, those that a later
        one says again first, and is told how many (`Dropped`); it never holds up the engine.
        """
        if run is not None:
            text("events: run", run, "it names one run")
        return Block(self._events(run), call="lm.events()", name="events", inside=Feed)

    @asynccontextmanager
    async def _events(self, run: str | None) -> AsyncGenerator[AsyncIterator[Event]]:
        feed = self._home.feed(run)
        try:
            yield feed
        finally:
            self._home.end_feed(feed)

    @contextmanager
    def _events_of(self, run: str) -> Generator[AsyncIterator[Event]]:
        """The events of a run, which has an end of its own: also where the runtime is closed before it."""
        feed = self._home.feed(run, outlives=True)
        try:
            yield feed
        finally:
            self._home.end_feed(feed)

    async def __aenter__(self) -> Self:
        """Load the model in a worker thread, with progress as events."""
        abandoned = threading.Event()
        try:
            await to_thread.run_sync(self._home.open, abandoned, abandon_on_cancel=True)
        except Exception:
            raise
        except BaseException:  # cancelled or interrupted: the thread gives up at its next report
            abandoned.set()
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._home.close)
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None, /
    ) -> None:
        """Close the engine: what still waits fails with RuntimeClosed."""
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self._home.close)

    def __enter__(self) -> Self:
        """Load the model, blocking: for scripts."""
        self._home.open()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None, /
    ) -> None:
        """Close the engine."""
        self._home.close()

    def _at(self, scope: Scope, *, seed: int | None = None) -> "Runtime":
        """The same runtime for one visit of a node: its transcripts carry the visit's name and seeds."""
        scoped = copy(self)
        scoped._scope = scope
        if seed is not None:
            scoped._seeds = Seeds(seed, scope.path)
        return scoped

    @contextmanager
    def _holding(self, run: str) -> Generator[None]:
        """While the block lasts, the run's transcript is leased between its turns."""
        session = self._home.session
        session.begin_run(run)
        try:
            yield
        finally:
            session.end_run(run)

    async def _settled(self) -> None:
        """Wait until the engine has done what was asked of it, such as taking a run's leases back."""
        await self._home.last.settled()

    @contextmanager
    def _recalling(self, run: str, recall: Recall) -> Generator[None]:
        """While the block lasts, the run's generations are looked up and stored."""
        session = self._home.session
        session.recalls[run] = recall
        try:
            yield
        finally:
            del session.recalls[run]

    def _let_go(self, scope: Scope) -> None:
        """The transcript of this task path of a run was used for the last time: its lease ends now."""
        self._home.session.release(owner_of(scope), last_use=True)

    @property
    def _bus(self) -> Bus:
        return self._home.bus
