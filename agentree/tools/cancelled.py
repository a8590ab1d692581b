"""Tells a cancellation that somebody asked for from one that a user's function raised by itself."""

import asyncio

import anyio.lowlevel


async def raise_if_asked() -> None:
    """Raise the cancellation anew if this task is being cancelled; return if nobody asked for that.

    A function that awaits another one's cancelled task, or raises `asyncio.CancelledError`, looks to its
    caller as if the caller was cancelled.
    """
    await anyio.lowlevel.checkpoint_if_cancelled()
    try:
        task = asyncio.current_task()
    except RuntimeError:  # another event loop than asyncio's, where nothing but a scope can cancel
        return
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
