"""The runtime over the real engine and a tiny model: opening, closing, and what the cache does for it."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import anyio
import anyio.lowlevel
import pytest
import torch
from engine_harness import reference_logits
from lm_scripted import until
from pydantic import BaseModel, Field
from tiny_models import tiny_llama

from agentree.errors import AgentreeError, ContextOverflow, InvalidArgument, ModelError, RuntimeClosed
from agentree.events import Event, Forked, GenerationEnded, ModelLoading, ModelReady
from agentree.lm import Runtime, Transcript
from agentree.messages import raw, system, user
from agentree.runtime.engine import Engine
from agentree.runtime.request import Scope
from agentree.tools import ToolCalls, tool

LONG = "The quick brown fox jumps over the lazy dog while the other animals watch from the hill. " * 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("models"))


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setenv("AGENTREE_CHECK", "1")
    before = threading.active_count()
    yield
    engines = [t for t in threading.enumerate() if t.name == "agentree-engine"]
    assert not engines, f"an engine outlived its runtime ({before} threads before)"


def tiny(folder: Path, **options: Any) -> Runtime:
    options.setdefault("kv_tokens", 4096)
    return Runtime(folder, device="cpu", weights="fp32", **options)


def test_making_a_runtime_loads_nothing() -> None:
    code = (
        "import sys; from agentree import Runtime; lm = Runtime('no such model');"
        "heavy = ('torch', 'transformers', 'tokenizers', 'jinja2', 'networkx', 'httpx');"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kv_tokens": 0}, "kv_tokens=0"),
        ({"max_batch_tokens": 0}, "max_batch_tokens=0"),
        ({"gpu_memory_fraction": 0.0}, "gpu_memory_fraction"),
        ({"eviction": "random"}, "'random'"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_settings_are_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Runtime("any", **options)


@pytest.mark.asyncio
async def test_use_before_opening_says_what_to_write() -> None:
    lm = Runtime("some-model")
    for use in (lm.transcript, lm.stats, lambda: lm.template_report):
        with pytest.raises(RuntimeClosed, match=r"'some-model' is not open yet: write `async with Runtime"):
            use()
    with pytest.raises(RuntimeClosed):
        async with lm.fork([]):
            pass
    assert not hasattr(lm, "connect")


@pytest.mark.asyncio
async def test_open_use_close_and_open_again(folder: Path) -> None:
    lm = tiny(folder)
    async with lm as same:
        assert same is lm
        t = lm.transcript(user("Hi"))
        first = await t.gen(str, max_tokens=8)
        with pytest.raises(AgentreeError, match="open already"):
            async with lm:
                pass
        assert (await t.gen(str, max_tokens=8)).value == first.value
    assert lm.stats().sampled_tokens > 0, "the counters can still be read"
    with pytest.raises(RuntimeClosed, match="is closed"):
        lm.transcript()
    with pytest.raises(RuntimeClosed):
        await t.gen(str)
    async with lm:
        with pytest.raises(RuntimeClosed):
            await t.gen(str)
        with pytest.raises(InvalidArgument, match="earlier opening"):
            async with lm.fork([t]):
                pass
        assert (await lm.transcript(user("Hi")).gen(str, max_tokens=8)).value == first.value


def test_a_script_without_a_loop(folder: Path) -> None:
    with tiny(folder) as lm:
        t = lm.transcript(user("Hi"))

        async def say() -> str:
            return (await t.gen(str, max_tokens=8)).value

        assert anyio.run(say) == anyio.run(say, backend="trio")


def test_trio(folder: Path) -> None:
    async def main() -> None:
        async with tiny(folder) as lm:
            async with lm.events() as events, lm.transcript(user("Hi")).fork(3) as kids:
                assert len(await kids.gen(str, max_tokens=8)) == 3
                with anyio.move_on_after(0.01):
                    await kids.gen(str, max_tokens=1500)
            assert isinstance(events, object)
            assert len(await lm.transcript(user("Go")).score(["a", "b"])) == 2
            stats = lm.stats()
            assert stats.free + stats.private + stats.tree == stats.pool

    anyio.run(main, backend="trio")


@pytest.mark.asyncio
async def test_a_model_that_can_not_be_loaded(tmp_path: Path) -> None:
    lm = Runtime(tmp_path / "nothing")
    with pytest.raises(ModelError):
        async with lm:
            pass
    with pytest.raises(RuntimeClosed):
        lm.transcript()


@pytest.mark.asyncio
async def test_cancelled_while_loading(folder: Path) -> None:
    for _ in range(3):
        lm = tiny(folder)
        with anyio.move_on_after(0.002) as scope:
            async with lm:
                await anyio.sleep(0.01)
        assert scope.cancelled_caught
        await until(lambda: not any(t.name == "agentree-engine" for t in threading.enumerate()))


@pytest.mark.asyncio
async def test_events_from_loading_to_the_end(folder: Path) -> None:
    lm = tiny(folder)
    seen: list[Event] = []

    async def read(events: Any) -> None:
        seen.extend([event async for event in events])

    async with lm.events() as events, anyio.create_task_group() as group:
        group.start_soon(read, events)
        async with lm:
            scope = Scope("r", "node")
            async with lm.transcript(user("Hi"))._at(scope).fork(2) as kids:
                await kids.gen(str, max_tokens=4)
    kinds = [type(event) for event in seen]
    assert kinds.index(ModelLoading) < kinds.index(ModelReady) < kinds.index(Forked)
    ended = [e for e in seen if isinstance(e, GenerationEnded)]
    assert [(e.run, e.path) for e in ended] in (
        [("r", "node[0]"), ("r", "node[1]")],
        [("r", "node[1]"), ("r", "node[0]")],
    )
    assert [e.seq for e in seen] == sorted(e.seq for e in seen)


@pytest.mark.asyncio
async def test_a_fork_computes_its_trunk_once(folder: Path) -> None:
    async with tiny(folder) as lm:
        trunk = lm.transcript(user(LONG))
        assert len(trunk) > 500
        async with trunk.fork(2) as kids:
            out = await kids.gen(str, max_tokens=6)
        computed = [g.usage.computed_tokens for g in out]
        assert sum(c or 0 for c in computed) <= len(trunk._opened()) + 1
        assert all(
            (g.usage.cached_tokens or 0) + (g.usage.computed_tokens or 0) == g.usage.prompt_tokens
            for g in out
        )


@pytest.mark.asyncio
async def test_a_next_turn_finds_all_of_the_last_one(folder: Path) -> None:
    async with tiny(folder) as lm:
        t = lm.transcript(system("Rules."), user(LONG))
        for turn in range(4):
            answer = await t.gen(str, max_tokens=12, temperature=1.0, seed=turn)
            longer = answer.transcript + user(f"Turn {turn}.")
            following = await longer.gen(str, max_tokens=4)
            # The last sampled token's K and V are computed with the next turn.
            assert (following.usage.cached_tokens or 0) >= len(answer.transcript) - 1
            t = longer


@pytest.mark.asyncio
async def test_score_equals_a_plain_forward(folder: Path) -> None:
    async with tiny(folder) as lm:
        t = lm.transcript(user("The capital of France is"))
        texts = ["Paris", " Paris", "Berlin is in Germany", "", "P", "é東"]
        scores = await t.score(texts)
        opened = t._opened()
        for text, score in zip(texts, scores, strict=True):
            ids = tuple(opened._session.tokenizer.encode(text))
            whole = (*opened.token_ids, *ids)
            logprobs = torch.log_softmax(reference_logits(folder, whole), dim=-1)
            start = len(opened)
            plain = sum(float(logprobs[start + i - 1, token]) for i, token in enumerate(ids))
            assert score == pytest.approx(plain, abs=1e-3)
        assert await t.score(texts[::-1]) == pytest.approx(scores[::-1], abs=1e-4)
        raw_text = lm.transcript(raw("The"))
        assert len(await raw_text.score([" quick"])) == 1


@pytest.mark.asyncio
async def test_a_seed_makes_a_generation_a_function_of_its_arguments(folder: Path) -> None:
    async def say(lm: Runtime, t: Transcript) -> list[str]:
        return [(await t.gen(str, max_tokens=12, temperature=1.0, seed=s)).text for s in range(4)]

    async with tiny(folder) as lm:
        t = lm.transcript(user("Hello"))
        cold = await say(lm, t)
        assert await say(lm, t) == cold and len(set(cold)) > 1
        async with lm.fork([t, lm.transcript(user("Other"))], each=4) as kids:
            out = await kids.gen(str, max_tokens=12, seed=5)
        for branch, generation in zip(kids, out, strict=True):
            alone = await branch.gen(str, max_tokens=12, temperature=1.0, seed=generation.seed)
            assert alone.text == generation.text
    async with tiny(folder, seed=3) as lm, tiny(folder, seed=3) as other:
        drawn = [await x.transcript(user("Hi")).gen(str, max_tokens=4) for x in (lm, other)]
        assert drawn[0].seed == drawn[1].seed and drawn[0].text == drawn[1].text


@pytest.mark.asyncio
async def test_what_can_not_fit_is_refused_before_it_runs(folder: Path) -> None:
    async with tiny(folder, kv_tokens=256) as lm:
        with pytest.raises(ContextOverflow) as caught:
            await lm.transcript(user(LONG)).gen(str, max_tokens=8)
        assert caught.value.limit == 256 < caught.value.needed
        assert lm.stats().computed_tokens == 0
        assert await lm.transcript(user("Hi")).gen(str, max_tokens=8)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_cancelled_generations_leave_nothing_behind(folder: Path, backend: str) -> None:
    """Once whoever waited goes on, the engine has given back all that they held: no step later."""

    async def main() -> None:
        async with tiny(folder) as lm:

            def clean() -> bool:
                stats = lm.stats()
                return stats.private == stats.leased == 0 and stats.free + stats.tree == stats.pool

            t = lm.transcript(user(LONG))
            for delay in (0.0, 0.002, 0.005, 0.01, 0.02):
                with anyio.move_on_after(delay) as scope:
                    await t.gen(str, max_tokens=500)
                assert scope.cancelled_caught
                assert clean()
                with anyio.move_on_after(delay):
                    async with t.fork(4) as kids:
                        await kids.gen(str, max_tokens=500)
                assert clean()
                async with t.stream(str, max_tokens=500) as stream:
                    async for _ in stream:
                        break
                assert clean()
            async with anyio.create_task_group() as group:
                for _ in range(4):
                    group.start_soon(t.gen, str)
                await until(lambda: lm.stats().private > 0)
                group.cancel_scope.cancel()
            assert clean()

    anyio.run(main, backend=backend)


@pytest.mark.asyncio
async def test_a_task_that_is_cancelled_twice_does_not_wait_for_the_engine(folder: Path) -> None:
    """As by a second Ctrl-C."""
    async with tiny(folder) as lm:
        stop, step = threading.Event(), threading.Event()

        def hold_up() -> None:
            step.set()
            stop.wait(20)

        engine = cast("Engine", lm._home.session.engine())
        task = asyncio.ensure_future(lm.transcript(user(LONG)).gen(str, max_tokens=500))
        await until(lambda: lm.stats().private > 0)
        engine.post(hold_up)
        await until(step.is_set)
        task.cancel()
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stop.set()
        await until(lambda: lm.stats().private == 0)


@pytest.mark.asyncio
async def test_tenants_share_no_cache(folder: Path) -> None:
    async with tiny(folder) as lm:
        for salt, hit in (("", 0), ("a", 0), ("b", 0), ("a", 1)):
            usage = await lm.transcript(user(LONG), salt=salt).prefill()
            assert ((usage.cached_tokens or 0) > 0) == bool(hit)


@pytest.mark.asyncio
async def test_tools_are_part_of_the_head(folder: Path) -> None:
    @tool
    def now() -> str:
        """Tell the time."""
        return "noon"

    async with tiny(folder) as lm:
        t = lm.transcript(system("Rules."), user("Time?"), tools=[now])
        said = (system("Rules."), user("Time?"))
        assert t == lm.transcript(tools=[now]) + said
        assert '"name": "now"' in t.text and t.text.index("Rules.") < t.text.index('"now"')
        assert lm.template_report.fallbacks == ("tools are described in the system message",)
        assert lm.template_report.drifts == ()


@pytest.mark.asyncio
async def test_a_scoped_runtime_names_its_transcripts(folder: Path) -> None:
    async with tiny(folder) as lm:
        scoped = lm._at(Scope("run1", "step"), seed=4)
        again = lm._at(Scope("run1", "step"), seed=4)
        seeds = [(await x.transcript(user("a")).gen(str, max_tokens=2)).seed for x in (scoped, again)]
        assert seeds[0] == seeds[1] and scoped.transcript()._scope.path == "step"
        with lm._holding("run1"):
            held = await scoped.transcript(user(LONG)).gen(str, max_tokens=2)
            assert await leased(lm) >= len(held.transcript) - 1
        assert await leased(lm) == 0


async def leased(lm: Runtime) -> int:
    """Leased tokens after one more step of the engine."""
    await lm.transcript(user("x")).prefill()
    return lm.stats().leased


@pytest.mark.asyncio
async def test_branches_with_words_of_their_own_share_the_trunk(folder: Path) -> None:
    async with tiny(folder) as lm:
        trunk = lm.transcript(system(LONG))
        beam = [trunk + user(f"Question {i}: {i * 17}?") for i in range(8)]
        async with lm.fork(beam) as kids:
            out = await kids.gen(str, max_tokens=2)
        opened = [list(t._opened().token_ids) for t in beam]
        unique = len({tuple(ids[:n]) for ids in opened for n in range(1, len(ids) + 1)})
        assert sum(g.usage.computed_tokens or 0 for g in out) == unique
        assert lm.stats().computed_tokens == unique


class Item(BaseModel):
    kind: Literal["book", "film"]
    title: str = Field(max_length=12)
    year: int = Field(ge=1900, le=2099)


@pytest.mark.asyncio
async def test_forced_values_of_a_model_that_knows_nothing(folder: Path) -> None:
    @tool
    def lookup(title: Annotated[str, Field(max_length=8)], exact: bool) -> str:
        """Look a title up."""
        return title

    async with tiny(folder) as lm:
        t = lm.transcript(system("Rules."), user("An item."), tools=[lookup])
        async with t.fork(8) as kids:
            items = await kids.gen(Item, max_tokens=60, seed=3)
        assert all(isinstance(i.value, Item) and (i.usage.forced_tokens or 0) > 0 for i in items)
        assert len({i.text for i in items}) > 1
        for item in items[:2]:
            again = await t.gen(Item, max_tokens=60, temperature=1.0, seed=item.seed)
            assert again.text == item.text and again.transcript == item.transcript
        for seed in range(4):
            turn = await t._at(Scope("r", "n"), seed=seed).call(
                [lookup], output=Item, max_tokens=80, temperature=1.0, parallel=seed > 1, think=seed
            )
            assert isinstance(turn.value, ToolCalls | Item)
        numbers = [await t.gen(int, max_tokens=12), await t.gen(bool), await t.gen(Literal["yes", "no"])]
        assert [type(n.value) for n in numbers] == [int, bool, str]
        async with t.stream(Item, max_tokens=60) as stream:
            text = "".join([piece async for piece in stream])
        assert text == stream.generation.text and isinstance(stream.generation.value, Item)
