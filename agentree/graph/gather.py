"""Run several things at once: results in order, and one failure stops the rest and is raised as it is."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

T = TypeVar("T")


async def gather(jobs: Sequence[Callable[[], Awaitable[T]]], *, parallel: int | None = None) -> list[T]:
    """Await all jobs, `parallel` at a time; they begin in order.

    The first exception cancels the others, awaits them, and is raised as it is.
    """
    if len(jobs) == 1:
        return [await jobs[0]()]
    results: dict[int, T] = {}
    failures: list[Exception] = []
    async with anyio.create_task_group() as group:
        waiting = iter(enumerate(jobs))

        async def work() -> None:
            for index, job in waiting:
                try:
                    results[index] = await job()
                except Exception as e:
                    failures.append(e)
                    group.cancel_scope.cancel()
                    return

        for _ in range(len(jobs) if parallel is None else min(parallel, len(jobs))):
            group.start_soon(work)
    if failures:
        raise failures[0]
    return [results[index] for index in range(len(jobs))]
