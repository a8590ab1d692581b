"""A generation while it runs."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic

import anyio
from typing_extensions import TypeVar

from agentree.errors import InvalidArgument
from agentree.lm.generate import Options, finished, value_request
from agentree.lm.generation import Generation
from agentree.lm.session import Running
from agentree.lm.target import Target, target_of
from agentree.runtime.request import Request, Result

if TYPE_CHECKING:
    from agentree.lm.transcript import Transcript

T_co = TypeVar("T_co", covariant=True)


class Stream(Generic[T_co]):
    """Text as it comes; `generation` once it is complete.

    What was generated while nobody read is there at the next read, as one piece: a slow reader neither holds
    up the engine nor misses anything.
    """

    def __init__(self, opened: "Transcript", target: Target, seed: int) -> None:
        self._opened, self._target, self._seed = opened, target, seed
        self._changed = anyio.Event()
        self._running: Running | None = None
        self._request: Request | None = None
        self._known: Result | None = None
        self._kept = False
        self._generation: Generation[T_co] | None = None

    @property
    def generation(self) -> Generation[T_co]:
        """The whole. Raises InvalidArgument while it is not complete, and else what `gen` would raise."""
        if self._known is None and (self._running is None or not self._running.over):
            raise InvalidArgument("the stream is not complete: read it to its end first")
        if self._generation is None:
            result = self._result()
            self._generation = finished(self._opened, self._target, result, self._seed)
        return self._generation

    async def __aiter__(self) -> AsyncIterator[str]:
        """Pieces of text in whole characters. Raises at the end what `gen` would raise."""
        running = self._running
        if self._known is not None and self._known.text:
            yield self._known.text
        while running is not None:
            over = running.over
            if running.pieces:
                text = "".join(running.pieces)
                running.pieces.clear()
                yield text
            elif over:
                break
            else:
                await self._changed.wait()
        await self._keep()
        _ = self.generation

    def _start(self, options: Options) -> None:
        """Submit the request, unless what it comes to is known from before."""
        session = self._opened._session
        self._request = value_request(self._opened, self._target, options, self._seed)
        recall = session.recalls.get(self._request.scope.run)
        self._known = None if recall is None else recall.known(self._request)
        if self._known is None:
            self._running = session.start([self._request], progress=True, changed=self._wake)

    def _abort(self) -> None:
        """Abort what runs, without waiting."""
        if self._running is not None:
            self._running.abort()

    async def _end(self) -> None:
        """Abort what runs, and wait until nothing is held for it; keep what is complete."""
        if self._running is not None and not self._running.over:
            await self._running.stop()
        elif self._running is not None and self._running.fine:
            await self._keep()

    async def _keep(self) -> None:
        """Let a complete generation be stored, once."""
        request = self._request
        if self._kept or self._known is not None or request is None:
            return
        self._kept = True
        recall = self._opened._session.recalls.get(request.scope.run)
        if recall is not None:
            await recall.keep([(request, self._result())])

    def _result(self) -> Result:
        if self._known is not None:
            return self._known
        assert self._running is not None
        return self._running.results()[0]

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


@asynccontextmanager
async def open_stream(
    transcript: "Transcript", types: tuple[Any, ...], options: Options
) -> AsyncGenerator[Stream[Any]]:
    """Start a generation, and abort it if the block is left before its end."""
    target = await target_of(transcript._session, types)
    options.check(target)
    seed = transcript._seeds.draw() if options.seed is None else options.seed
    stream = Stream[Any](transcript._opened(), target, seed)
    stream._start(options)
    try:
        yield stream
    except GeneratorExit:  # nothing can be awaited any more
        stream._abort()
        raise
    except BaseException:
        await stream._end()
        raise
    else:
        await stream._end()
