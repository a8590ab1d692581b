"""From the engine thread to an event loop: updates queue up, and one wake-up carries all that are there."""

import asyncio
import threading
import weakref
from collections.abc import Callable
from typing import Any

from anyio.lowlevel import current_token

Update = Callable[[], None]
Post = Callable[[Update], Any]


class Inbox:
    """Updates for one event loop. `put` may be called from any thread and never blocks on the loop."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._lock = threading.Lock()
        self._updates: list[Update] = []
        self._woken = False
        self._dead = False

    def put(self, update: Update) -> None:
        """Run `update` on the loop soon. Dropped if the loop is over: then nobody waits for it."""
        with self._lock:
            if self._dead:
                return
            self._updates.append(update)
            if self._woken:
                return
            self._woken = True
        try:
            self._post(self._drain)
        except RuntimeError:
            with self._lock:
                self._dead = True
                self._updates.clear()

    def _drain(self) -> None:
        with self._lock:
            updates, self._updates = self._updates, []
            self._woken = False
        for update in updates:
            update()


class Inboxes:
    """One inbox for each event loop that uses a runtime."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_loop: weakref.WeakKeyDictionary[Any, Inbox] = weakref.WeakKeyDictionary()

    def current(self) -> Inbox:
        """The inbox of the running event loop, asyncio's or trio's."""
        token = current_token()
        # Before anyio 4.11 the token was the loop's own object.
        loop: Any = getattr(token, "native_token", token)
        with self._lock:
            inbox = self._by_loop.get(loop)
            if inbox is None:
                is_asyncio = isinstance(loop, asyncio.AbstractEventLoop)
                # The inbox must not keep its key alive.
                owner = weakref.ref(loop)
                inbox = Inbox(lambda update: _post(owner(), is_asyncio, update))
                self._by_loop[loop] = inbox
            return inbox


def _post(loop: Any, is_asyncio: bool, update: Update) -> None:
    if loop is None:
        raise RuntimeError("the event loop is gone")
    if is_asyncio:
        loop.call_soon_threadsafe(update)
    else:
        loop.run_sync_soon(update)
