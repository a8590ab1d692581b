"""Waiting for the engine: on asyncio and on trio, cancelled at any time, with slow readers."""

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from lm_scripted import Answer, result, scripted, until

from agentree.errors import InvalidArgument, InvalidValue, RuntimeClosed
from agentree.lm.inbox import Inbox
from agentree.messages import user
from agentree.runtime.request import Progress, Request

pytestmark = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def run(backend: str, main: Callable[[], Any]) -> None:
    with anyio.from_thread.start_blocking_portal(backend) as portal:
        portal.call(main)


def never(_request: Request) -> Answer:
    return None


def test_a_value(backend: str) -> None:
    async def main() -> None:
        made = scripted("ok")
        async with anyio.create_task_group() as group:
            for i in range(20):
                group.start_soon((made.empty + user(str(i))).gen, str)
        assert len(made.engine.waves) == 20

    run(backend, main)


def test_cancelled_while_waiting(backend: str) -> None:
    async def main() -> None:
        made = scripted(never)
        start = made.empty + user("Go")
        with anyio.move_on_after(0.05) as scope:
            await start.gen(str)
        assert scope.cancelled_caught and made.engine.aborted == [1] and not made.engine.open
        with anyio.move_on_after(0.05):
            async with start.fork(3) as kids:
                await kids.gen(str)
        assert made.engine.aborted == [1, 2, 3, 4] and made.engine.held == {}
        with anyio.move_on_after(0.05):
            await start.score(["a", "b"])
        assert made.engine.aborted == [1, 2, 3, 4, 5, 6]
        made.engine.script = lambda _request: "works"
        assert (await start.gen(str)).value == "works"

    run(backend, main)


def test_cancelled_before_it_was_sent(backend: str) -> None:
    async def main() -> None:
        made = scripted("ok")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await made.empty.gen(str)
        assert not made.engine.open

    run(backend, main)


def test_an_answer_after_the_abort_goes_nowhere(backend: str) -> None:
    async def main() -> None:
        made = scripted(never)
        with anyio.move_on_after(0.02):
            async with made.empty.stream(str) as stream:
                async for _ in stream:
                    pass
        (request,) = made.engine.requests
        sinks = made.engine.sinks
        assert sinks[0].progress is not None
        sinks[0].progress(Progress("late", 1))
        sinks[0].done(result("late", request))
        await anyio.sleep(0.01)
        assert made.engine.aborted == [1]

    run(backend, main)


def test_closing_fails_whoever_waits(backend: str) -> None:
    async def main() -> None:
        made = scripted(never)
        failed: list[BaseException] = []

        async def ask() -> None:
            try:
                await made.empty.gen(str)
            except RuntimeClosed as error:
                failed.append(error)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(ask)
            await anyio.sleep(0.05)
            await anyio.to_thread.run_sync(made.session.close)
        assert len(failed) == 3

    run(backend, main)


def test_stream(backend: str) -> None:
    async def main() -> None:
        made = scripted("one\ntwo\nthree")
        async with (made.empty + user("Count")).stream(str, seed=4) as stream:
            with pytest.raises(InvalidArgument, match="read it to its end"):
                _ = stream.generation
            pieces = [piece async for piece in stream]
        assert "".join(pieces) == "one\ntwo\nthree" == stream.generation.value
        assert stream.generation.seed == 4 and stream.generation is stream.generation
        assert stream.generation.transcript.text.endswith("three")
        assert not made.engine.aborted

    run(backend, main)


def test_a_slow_reader_gets_everything_at_once(backend: str) -> None:
    async def main() -> None:
        words = "".join(f"line {i}\n" for i in range(500))
        made = scripted(words)
        async with made.empty.stream(str) as stream:
            await until(lambda: stream._running is not None and stream._running.over)
            pieces = [piece async for piece in stream]
        assert pieces == [words]

    run(backend, main)


def test_leaving_a_stream_early_aborts_it(backend: str) -> None:
    async def main() -> None:
        made = scripted(never)
        async with made.empty.stream(str):
            pass
        assert made.engine.aborted == [1]

    run(backend, main)


def test_a_stream_raises_what_gen_would(backend: str) -> None:
    async def main() -> None:
        made = scripted(lambda _request: RuntimeError("kernel"))
        with pytest.raises(RuntimeError, match="kernel"):
            async with made.empty.stream(str) as stream:
                async for _ in stream:
                    pass
        made = scripted("not a number")
        with pytest.raises(InvalidValue):
            async with made.empty.stream(int) as forced:
                assert "".join([piece async for piece in forced]) == "not a number"

    run(backend, main)


def test_one_wake_carries_a_batch(backend: str) -> None:
    posted: list[Callable[[], None]] = []
    seen: list[int] = []
    inbox = Inbox(posted.append)
    threads = [threading.Thread(target=inbox.put, args=(lambda i=i: seen.append(i),)) for i in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(posted) == 1 and not seen
    posted.pop()()
    assert sorted(seen) == list(range(50))
    inbox.put(lambda: seen.append(50))
    assert len(posted) == 1


def test_a_loop_that_is_over_is_no_trouble(backend: str) -> None:
    made = scripted(never)

    async def main() -> None:
        with anyio.move_on_after(0.02):
            await made.empty.gen(str)

    anyio.run(main, backend=backend)
    made.engine.sinks[0].done(result("late", made.engine.requests[0]))
    made.engine.script = lambda _request: "again"

    async def again() -> None:
        assert (await made.empty.gen(str)).value == "again"

    anyio.run(again, backend=backend)
