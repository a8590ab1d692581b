"""Run several things at once: results in order, and one failure stops the rest and is raised as it is."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

T = TypeVar("T")


async def gather(jobs: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Await all jobs. The first exception cancels the others, awaits them, and is raised as it is."""
    if len(jobs) == 1:
        return [await jobs[0]()]
    results: dict[int, T] = {}
    failures: list[Exception] = []
    async with anyio.create_task_group() as group:

        async def work(index: int, job: Callable[[], Awaitable[T]]) -> None:
            try:
                results[index] = await job()
            except Exception as e:
                failures.append(e)
                group.cancel_scope.cancel()

        for index, job in enumerate(jobs):
            group.start_soon(work, index, job)
    if failures:
        raise failures[0]
    return [results[index] for index in range(len(jobs))]
