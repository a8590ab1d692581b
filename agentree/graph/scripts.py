"""Programs in scripts: run to their end by an event loop of their own."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio

from agentree.errors import AgentreeError

if TYPE_CHECKING:
    from agentree.lm import Runtime

T = TypeVar("T")


def refuse_loop(program: str, door: str) -> None:
    """Raises AgentreeError where an event loop is running: `door` is the method that can be awaited there."""
    if _loop_is_running():
        raise AgentreeError(
            f"{door}_sync() of program {program!r} can't be used where an event loop is running, "
            f"as in a notebook or an async function: use 'await program.{door}(...)' there"
        )


def to_end(work: "Callable[[Runtime], Awaitable[T]]", lm: "Runtime | None", *, model: str | None = None) -> T:
    """What the work gives, on a runtime of the caller's or one that is opened for it alone."""

    async def main() -> T:
        if lm is not None:
            return await work(lm)
        from agentree.lm import Runtime

        async with Runtime() if model is None else Runtime(model) as opened:
            return await work(opened)

    return anyio.run(main)


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        trio = sys.modules.get("trio")
        return trio is not None and bool(cast("Any", trio).lowlevel.in_trio_run())
    return True
