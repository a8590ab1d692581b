"""The engine against a plain reference, whatever the cache, the batch, the budget and the pool are like."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_harness import (
    Waiter,
    engine_over,
    load,
    reckless,
    reference_greedy,
    reference_logits,
    run,
    settle,
    submit,
)
from tiny_models import tiny_llama

from agentree.errors import AgentreeError, ContextOverflow, RuntimeClosed
from agentree.events import Bus, LeaseRevoked
from agentree.runtime.engine import Engine
from agentree.runtime.model.load import LoadedModel
from agentree.runtime.request import Hold, Request, Sampling

END = frozenset({2})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load(folder)


@pytest.fixture
def small(folder: Path) -> Iterator[LoadedModel]:
    yield load(folder, kv_tokens=160)


def prompts(seed: int, n: int, *, low: int = 3, high: int = 60) -> list[tuple[int, ...]]:
    """Random prompts, many of which share prefixes with earlier ones."""
    rng = random.Random(seed)
    made: list[tuple[int, ...]] = []
    for _ in range(n):
        stem: tuple[int, ...] = ()
        if made and rng.random() < 0.6:
            other = rng.choice(made)
            stem = other[: rng.randint(1, len(other))]
        tail = tuple(rng.randrange(4, 512) for _ in range(rng.randint(low, high) - min(low, len(stem))))
        made.append((stem + tail)[:high] or (5,))
    return made


def ask(prompt: tuple[int, ...], n: int = 12, **options: Any) -> Request:
    return Request(prompt=prompt, max_tokens=n, end_ids=END, **options)


def test_greedy_equals_reference_cold_warm_and_in_a_batch(folder: Path, model: LoadedModel) -> None:
    many = prompts(0, 20)
    expected = [reference_greedy(folder, p, 12, END) for p in many]
    with engine_over(model) as engine:
        alone = [list(run(engine, ask(p))[0].output) for p in many]
        warm = [list(run(engine, ask(p))[0].output) for p in many]
    with engine_over(model) as engine:
        batched: list[list[int]] = []
        for i in range(0, len(many), 8):
            batched += [list(r.output) for r in run(engine, *(ask(p) for p in many[i : i + 8]))]
    assert alone == expected
    assert warm == expected
    assert batched == expected


@pytest.mark.parametrize("budget", [1, 7, 32])
def test_chunks_do_not_change_tokens(folder: Path, model: LoadedModel, budget: int) -> None:
    many = prompts(1, 10)
    with engine_over(model, max_batch_tokens=budget) as engine:
        results = run(engine, *(ask(p) for p in many))
    assert [list(r.output) for r in results] == [reference_greedy(folder, p, 12, END) for p in many]


def test_a_small_pool_preempts_and_changes_nothing(folder: Path, small: LoadedModel) -> None:
    many = prompts(2, 12, low=20, high=40)
    with engine_over(small) as engine:
        reckless(engine)
        results = run(engine, *(ask(p, 60) for p in many))
        assert engine.stats().preempted_requests > 0
    assert [list(r.output) for r in results] == [reference_greedy(folder, p, 60, END) for p in many]


@pytest.mark.parametrize("budget", [16, 512])
def test_a_wave_computes_each_unique_token_once(model: LoadedModel, budget: int) -> None:
    trunk = tuple(range(10, 110))
    wave = [trunk, trunk, *((*trunk, 200 + i, 201 + i) for i in range(6)), trunk[:50], trunk[:50]]
    unique = {p[: i + 1] for p in wave for i in range(len(p))}
    with engine_over(model, max_batch_tokens=budget) as engine:
        results = run(engine, *(ask(p, 4) for p in wave))
        assert all(r.counts.cached + r.counts.computed == r.counts.prompt for r in results)
        computed = sum(r.counts.computed for r in results)
        assert engine.stats().computed_tokens == computed
    # Within one step even the last row of identical prompts is shared; across steps each full hit costs one.
    full_hits = 3
    assert len(unique) <= computed <= len(unique) + full_hits
    if budget == 512:
        assert computed == len(unique)


def test_a_full_hit_computes_one_token(model: LoadedModel) -> None:
    with engine_over(model) as engine:
        first, second = run(engine, ask((5, 6, 7, 8)))[0], run(engine, ask((5, 6, 7, 8)))[0]
    assert first.output == second.output
    assert (first.counts.computed, second.counts.computed, second.counts.cached) == (4, 1, 3)


def test_the_next_turn_finds_what_was_generated(model: LoadedModel) -> None:
    prompt = tuple(range(20, 60))
    with engine_over(model) as engine:
        first = run(engine, ask(prompt, 30))[0]
        assert len(first.output) == 30
        second = run(engine, ask((*prompt, *first.output, 9, 9), 2))[0]
    # The last sampled token never went through the model.
    assert second.counts.cached == len(prompt) + 29
    assert second.counts.computed == 3


def test_a_running_generation_shares_what_it_has(model: LoadedModel) -> None:
    prompt = tuple(range(30, 50))
    with engine_over(model) as engine:
        whole = run(engine, ask(prompt, 40))[0].output
    with engine_over(model) as engine:
        seen = threading.Event()
        waiter = Waiter()
        sink = waiter.sink()
        half: list[int] = []

        def progress(p: Any) -> None:
            half.append(p.tokens)
            if p.tokens >= 20:
                seen.set()

        sink.progress = progress
        engine.submit(ask(prompt, 40), sink)
        assert seen.wait(60)
        fork = run(engine, ask((*prompt, *whole[:15], 7), 2))[0]
        assert tuple(waiter.wait().output) == whole
    assert fork.counts.cached >= len(prompt) + 15


def test_scores_equal_reference(folder: Path, model: LoadedModel) -> None:
    prefix = tuple(range(40, 70))
    tails = [(7, 8, 9), (7, 8, 10), (100,), (7,)]
    requests = [Request(prompt=prefix + t, max_tokens=0, score_from=len(prefix)) for t in tails]
    with engine_over(model) as engine:
        cold = run(engine, *requests)
        warm = run(engine, *requests)
    for tail, *results in zip(tails, cold, warm, strict=True):
        logprobs = torch.log_softmax(reference_logits(folder, prefix + tail), dim=-1)
        expected = [float(logprobs[len(prefix) - 1 + i, t]) for i, t in enumerate(tail)]
        for result in results:
            assert list(result.scores) == pytest.approx(expected, abs=1e-4)
    assert sum(r.counts.computed for r in cold) == len(prefix) + 3 + 1 + 1


def test_prefill_alone(model: LoadedModel) -> None:
    with engine_over(model) as engine:
        first, again = (run(engine, ask(tuple(range(10, 40)), 0))[0] for _ in range(2))
    assert (first.counts.computed, first.output) == (30, ())
    assert (again.counts.cached, again.counts.forward_passes) == (30, 0)


def test_sampling_depends_on_seed_alone(model: LoadedModel) -> None:
    hot = [ask((9, 9, 9, i), 20, sampling=Sampling(1.5, 0.95, seed=i)) for i in range(8)]
    with engine_over(model) as engine:
        alone = [run(engine, r)[0].output for r in hot]
    with engine_over(model, max_batch_tokens=9) as engine:
        together = [r.output for r in run(engine, *hot)]
    assert alone == together
    assert len(set(alone)) == len(hot)


def test_a_stop_string_cuts_text_and_tree(model: LoadedModel) -> None:
    prompt = (11, 12, 13)
    with engine_over(model) as engine:
        free = run(engine, ask(prompt, 20))[0]
        stop = free.text[6:9]
        waiter = submit(engine, ask(prompt, 20, stop=(stop,)))[0][1]
        cut = waiter.wait()
        assert cut.text == free.text[: free.text.find(stop)] == waiter.text
        assert cut.finish == "stop"
        decoded = b"".join(model.tokenizer.token_bytes(t) or b"" for t in cut.output)
        assert decoded.decode(errors="replace") == cut.text


def test_aborts_leak_nothing_and_disturb_nobody(folder: Path, small: LoadedModel) -> None:
    rng = random.Random(3)
    many = prompts(4, 40, low=5, high=40)
    expected = {p: reference_greedy(folder, p, 10, END) for p in set(many)}
    with engine_over(small, max_batch_tokens=24) as engine:
        live = submit(engine, *(ask(p, 10) for p in many))
        doomed = rng.sample(range(len(many)), 15)
        for i in doomed:
            engine.abort(live[i][0])
        for i, (_, waiter) in enumerate(live):
            if i not in doomed:
                assert list(waiter.wait().output) == expected[many[i]]


class Tripwire:
    """Stands in for a model's decoder and fails the forwards that it is told to."""

    def __init__(self, model: LoadedModel, fail_at: set[int]) -> None:
        self.inner = model.decoder
        self.fail_at = fail_at
        self.calls = 0

    def forward(self, *args: Any) -> torch.Tensor:
        self.calls += 1
        if self.calls in self.fail_at:
            raise FloatingPointError(f"forward {self.calls} failed")
        return self.inner.forward(*args)


@pytest.mark.parametrize("fail_at", [1, 2, 3, 6])
def test_a_failed_forward_fails_its_requests_alone(folder: Path, fail_at: int) -> None:
    model = load(folder, kv_tokens=512)
    wire = Tripwire(model, {fail_at})
    object.__setattr__(model, "decoder", wire)
    trunk = tuple(range(10, 60))
    with engine_over(model, max_batch_tokens=20) as engine:
        live = submit(engine, *(ask((*trunk, i), 8) for i in (100, 101, 102)))
        errors = 0
        for _, waiter in live:
            try:
                waiter.wait()
            except FloatingPointError:
                errors += 1
        assert errors
        after = run(engine, ask((*trunk, 100), 8))[0]
        assert list(after.output) == reference_greedy(folder, (*trunk, 100), 8, END)


def test_an_engine_that_cannot_go_on_fails_everybody(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(model, bus=Bus())

    def broken() -> None:
        raise OSError("broken scheduler")

    monkeypatch.setattr(engine._scheduler, "plan", broken)
    live = submit(engine, ask((5, 6), 4), ask((5, 7), 4))
    for _, waiter in live:
        with pytest.raises(RuntimeClosed, match="broken scheduler") as caught:
            waiter.wait()
        assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(RuntimeClosed):
        engine.submit(ask((5,), 1), Waiter().sink())
    engine.close()


def test_closing_fails_what_is_still_waiting(model: LoadedModel) -> None:
    engine = Engine(model, bus=Bus())
    waiters = [w for _, w in submit(engine, *(ask((5, i + 9), 200) for i in range(20)))]
    engine.close()
    engine.close()
    ended = 0
    for waiter in waiters:
        assert waiter.over.is_set()
        ended += isinstance(waiter.error, RuntimeClosed)
    assert ended
    with pytest.raises(RuntimeClosed, match="open a new one"):
        engine.submit(ask((5,), 1), Waiter().sink())


def test_what_can_never_fit_is_refused_with_numbers(small: LoadedModel) -> None:
    with engine_over(small) as engine:
        with pytest.raises(ContextOverflow, match="holds 160") as caught:
            engine.submit(ask(tuple(range(100)), 61), Waiter().sink())
        assert (caught.value.needed, caught.value.limit) == (161, 160)
        with pytest.raises(AgentreeError, match="at least one token"):
            engine.submit(ask((), 5), Waiter().sink())
        settle(engine)


def test_a_lease_outlives_churn_and_ends_with_its_run(small: LoadedModel) -> None:
    kept = tuple(range(10, 50))
    with engine_over(small) as engine:
        run(engine, ask(kept, 4, hold=Hold("run-1/agent")))
        assert engine.stats().leased >= len(kept)
        for i in range(12):
            run(engine, ask(tuple(range(60 + 40 * (i % 10), 95 + 40 * (i % 10))), 4))
        assert engine.stats().evicted_tokens > 0
        again = run(engine, ask(kept, 4, hold=Hold("run-1/agent")))[0]
        assert again.counts.cached == len(kept) - 1
        engine.release_run("run-1")
        settle(engine)
        run(engine, ask((1, 2), 1))
        assert engine.stats().leased == 0


def test_leases_beyond_the_pool_are_revoked_and_everybody_finishes(folder: Path, small: LoadedModel) -> None:
    bus = Bus()
    told = bus.subscribe(lambda: None)
    many = [tuple(range(4 + 50 * i, 44 + 50 * i)) for i in range(8)]
    with engine_over(small, bus=bus) as engine:
        for _ in range(2):
            results = run(engine, *(ask(p, 10, hold=Hold(f"run-{i}")) for i, p in enumerate(many)))
            for prompt, result in zip(many, results, strict=True):
                assert list(result.output) == reference_greedy(folder, prompt, 10, END)
        assert engine.stats().revoked_leases == sum(isinstance(e, LeaseRevoked) for e in told.take()) > 0
