"""Doing something later on the running event loop, whichever it is and whatever clock it has."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any


def later(seconds: float, action: Callable[[], None]) -> Callable[[], None]:
    """Call `action` on this event loop after so many seconds of its clock; returns how to prevent it."""
    trio: Any = sys.modules.get("trio")
    if trio is None or not trio.lowlevel.in_trio_run():
        return asyncio.get_running_loop().call_later(seconds, action).cancel
    scope = trio.CancelScope()

    async def wait() -> None:
        with scope:
            await trio.sleep(seconds)
            action()

    trio.lowlevel.spawn_system_task(wait)
    return scope.cancel
