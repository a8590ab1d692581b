"""Events of a runtime as an asynchronous iterator."""

from collections import deque
from collections.abc import AsyncIterator

import anyio

from agentree.events import Bus, Event, Subscription
from agentree.lm.inbox import Inbox


class Feed(AsyncIterator[Event]):
    """One reader's events, in order. It ends when the runtime closes, after the last of them."""

    def __init__(self, bus: Bus, inbox: Inbox, run: str | None = None) -> None:
        self._bus = bus
        self._inbox = inbox
        self._changed = anyio.Event()
        self._signalled = False
        self._over = False
        self._ready: deque[Event] = deque()
        self._subscription: Subscription = bus.subscribe(self._wake, run=run)

    async def __anext__(self) -> Event:
        """The next event; a `Dropped` where this reader was too slow."""
        while not self._ready:
            over = self._over
            self._ready.extend(self._subscription.take())
            if self._ready:
                break
            if over:
                raise StopAsyncIteration
            await self._changed.wait()
        return self._ready.popleft()

    def finish(self) -> None:
        """No more events will come. From any thread."""
        self._inbox.put(self._finished)

    def close(self) -> None:
        """Stop listening."""
        self._bus.unsubscribe(self._subscription)

    def _wake(self) -> None:
        # Any thread. One update on its way is enough, however many events it will find.
        if not self._signalled:
            self._signalled = True
            self._inbox.put(self._notify)

    def _notify(self) -> None:
        self._signalled = False
        self._changed.set()
        self._changed = anyio.Event()

    def _finished(self) -> None:
        self._over = True
        self._notify()
