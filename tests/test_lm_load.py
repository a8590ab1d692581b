"""A runtime under load: readers that stop, many agents on a small pool, cancellation in the middle."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import pytest
from engine_harness import settle
from lm_scripted import until
from tiny_models import tiny_llama

from agentree import user
from agentree.errors import RuntimeClosed
from agentree.lm import Runtime, Transcript
from agentree.lm.monitor import running
from agentree.lm.session import Session
from agentree.runtime.engine import Engine

TURN = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("load"))


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("AGENTREE_CHECK", "1")
    monkeypatch.setenv("AGENTREE_HOME", str(tmp_path))
    monkeypatch.setenv("AGENTREE_KERNELS", "torch")
    yield


def session_of(lm: Runtime) -> Session:
    return lm._home.session


async def idle(lm: Runtime) -> None:
    """Wait until the engine has nothing to do; no slot may be anybody's private one then."""
    engine = session_of(lm).engine()
    assert isinstance(engine, Engine)
    for _ in range(2):  # what was asked for is done, and told of
        settle(engine)
    for _ in range(2000):
        stats = engine.stats()
        if not (stats.private or stats.running or stats.waiting or engine._sequences):
            break
        await anyio.sleep(0.005)
    stats = engine.stats()
    assert (stats.private, stats.running, stats.waiting) == (0, 0, 0)
    assert stats.free + stats.tree == stats.pool


@pytest.mark.asyncio
async def test_readers_that_stop_reading_stall_nobody_and_miss_nothing(folder: Path) -> None:
    async with Runtime(folder, kv_tokens=2048) as lm:
        base = lm.transcript(user("The quick brown fox"))
        whole = [(await (base + user(str(i))).gen(str, max_tokens=TURN)).text for i in range(4)]
        async with (
            (base + user("0")).stream(str, max_tokens=TURN) as a,
            (base + user("1")).stream(str, max_tokens=TURN) as b,
            (base + user("2")).stream(str, max_tokens=TURN) as c,
        ):
            first = await anext(aiter(a))
            # Nobody reads a, b and c now; other work goes on and ends.
            other = await (base + user("3")).gen(str, max_tokens=TURN)
            assert other.text == whole[3]
            await idle(lm)
            assert first + "".join([piece async for piece in a]) == whole[0]
            assert "".join([piece async for piece in b]) == whole[1]
            del c
        await idle(lm)


@pytest.mark.asyncio
async def test_a_loop_that_blocks_holds_up_no_other_loop(folder: Path) -> None:
    async with Runtime(folder, kv_tokens=2048) as lm:
        done: list[str] = []

        def elsewhere() -> None:
            async def work() -> None:
                for i in range(3):
                    made = await lm.transcript(user(f"Number {i}")).gen(str, max_tokens=8)
                    done.append(made.text)

            anyio.run(work)

        async with lm.transcript(user("Stream")).stream(str, max_tokens=TURN):
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join(60)  # blocks this loop, on purpose
        assert len(done) == 3
        await idle(lm)


async def agent(lm: Runtime, number: int, turns: int, said: dict[int, list[str]]) -> None:
    """An L1 agent: a fork whose branches are held while it waits for its tools."""
    rng = random.Random(number)
    t: Transcript = lm.transcript(user("You are one of many agents."), user(f"Number {number}"))
    async with t.fork(1) as kids:
        kid = kids[0]
        for _ in range(turns):
            made = await kid.gen(str, max_tokens=12)
            said.setdefault(number, []).append(made.text)
            await anyio.sleep(rng.random() * 0.01)
            kid = made.transcript + user(f"result {rng.randrange(100)}")


@pytest.mark.asyncio
async def test_two_hundred_agents_on_a_pool_for_twenty(folder: Path) -> None:
    said: dict[int, list[str]] = {}
    async with Runtime(folder, kv_tokens=20 * 110) as lm:
        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(agent, lm, number, 2, said)
        await idle(lm)
        stats = lm.stats()
        assert stats.leased == 0, "scopes are over"
    assert len(said) == 200 and all(len(turns) == 2 for turns in said.values())
    alone: dict[int, list[str]] = {}
    async with Runtime(folder, kv_tokens=2048) as lm:
        for number in (0, 57, 199):
            await agent(lm, number, 2, alone)
    assert {number: said[number] for number in alone} == alone


@pytest.mark.asyncio
async def test_cancelling_half_of_them_in_the_middle(folder: Path) -> None:
    said: dict[int, list[str]] = {}
    async with Runtime(folder, kv_tokens=20 * 110) as lm:
        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(agent, lm, number, 2, said)
            with anyio.move_on_after(0.3) as scope:
                async with anyio.create_task_group() as doomed:
                    for number in range(100, 180):
                        doomed.start_soon(agent, lm, number, 50, said)
            assert scope.cancelled_caught
        assert all(len(said[number]) == 2 for number in range(40))
        await idle(lm)
        assert lm.stats().leased == 0
        assert (await lm.transcript(user("Still there?")).gen(str, max_tokens=5)).text is not None


async def _left(base: Transcript) -> None:
    async with base.stream(str, max_tokens=1000) as stream:
        await anext(aiter(stream))


async def _never_read(base: Transcript) -> None:
    async with base.stream(str, max_tokens=1000):
        pass


async def _raising(base: Transcript) -> None:
    with pytest.raises(ZeroDivisionError):
        async with base.stream(str, max_tokens=1000) as stream:
            async for _ in stream:
                _ = 1 / 0


async def _cancelled(base: Transcript) -> None:
    reading = anyio.Event()

    async def client() -> None:
        async with base.stream(str, max_tokens=1000) as stream:
            async for _ in stream:
                reading.set()

    async with anyio.create_task_group() as group:
        group.start_soon(client)
        await reading.wait()
        group.cancel_scope.cancel()


@pytest.mark.parametrize("end", [_left, _never_read, _raising, _cancelled])
@pytest.mark.asyncio
async def test_a_client_that_dies_in_the_middle_of_a_stream(
    folder: Path, end: Callable[[Transcript], Awaitable[None]]
) -> None:
    async with Runtime(folder, kv_tokens=2048) as lm:
        base = lm.transcript(user("The quick brown fox"))
        for _ in range(3):
            await end(base)
        await idle(lm)
        assert lm.stats().sampled_tokens < 2000, "the rest was not generated"
        assert (await base.gen(str, max_tokens=5)).usage.output_tokens == 5


@pytest.mark.asyncio
async def test_closing_in_the_middle_leaves_no_private_slot(folder: Path) -> None:
    lm = Runtime(folder, kv_tokens=2048)
    failed: list[BaseException] = []

    async def one(t: Transcript) -> None:
        try:
            await t.gen(str, max_tokens=400)
        except RuntimeClosed as error:
            failed.append(error)

    async with anyio.create_task_group() as group:
        async with lm:
            for number in range(8):
                group.start_soon(one, lm.transcript(user(f"Number {number}")))
            await until(lambda: lm.stats().private > 0)
        stats = lm.stats()
        assert stats.private == 0 and stats.free + stats.tree == stats.pool
    assert failed


def test_an_interrupt_in_the_middle_of_a_load_leaves_it_closed(folder: Path) -> None:
    lm = Runtime(folder, kv_tokens=2048)

    def ctrl_c() -> None:
        raise KeyboardInterrupt

    interrupting = lm.bus.subscribe(ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        lm.__enter__()
    lm.bus.unsubscribe(interrupting)
    with pytest.raises(RuntimeClosed, match="closed"):
        lm.transcript()
    with lm:
        assert lm.stats().free == 2048


SCRIPT = """
import asyncio, sys
sys.path.insert(0, {tests!r})
from agentree import Runtime, user
from test_lm_load import agent

async def main():
    async with Runtime({folder!r}, kv_tokens=2200) as lm:
        said = {{}}
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(agent(lm, number, 500, said))
            while len(said) < 5:
                await asyncio.sleep(0.01)
            print("running", flush=True)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_in_the_middle_ends_everything_soon(folder: Path, how: signal.Signals) -> None:
    code = textwrap.dedent(SCRIPT).format(tests=str(Path(__file__).parent), folder=str(folder))
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=env, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        assert [told["pid"] for told in running()] == [process.pid]
        process.send_signal(how)
        rest, _ = process.communicate(timeout=60)
    assert list(running()) == []
    assert rest == ("interrupted\n" if how is signal.SIGINT else "")
    assert process.returncode == (0 if how is signal.SIGINT else -signal.SIGKILL)
