"""Abort, failure and closing at every step of every phase: nothing leaks, and nobody else notices."""

from collections.abc import Callable

import pytest
from engine_harness import Waiter, reckless
from engine_steps import Stepped, ask, decoder, expected, recall_model, stepped

from agentree.errors import ContextOverflow, RuntimeClosed
from agentree.events import Bus, GenerationEnded
from agentree.runtime.request import Hold, Request, Sink

TRUNK = tuple(range(10, 60))


def siblings() -> list[Request]:
    """A fork on a trunk longer than a step's budget: the siblings wait for it."""
    return [ask((*TRUNK, 100 + i), 6) for i in range(3)]


def strangers() -> list[Request]:
    """Prompts that share nothing, on a pool that preempts some of them all the time."""
    return [ask(range(10 + 40 * i, 30 + 40 * i), 12) for i in range(3)]


def twins() -> list[Request]:
    """The same prompt three times: full hits, shared rows, and one that goes on along another's output."""
    return [ask(TRUNK, 8), ask(TRUNK, 8), ask((*TRUNK, *expected(TRUNK, 4)), 8)]


def held() -> list[Request]:
    """Leases on a pool that can't hold them all."""
    return [ask(range(10 + 50 * i, 45 + 50 * i), 7, hold=Hold(f"agent-{i}")) for i in range(4)]


SCENES: dict[str, tuple[Callable[[], list[Request]], int, int]] = {
    "siblings": (siblings, 200, 16),
    "strangers": (strangers, 50, 24),
    "twins": (twins, 200, 20),
    "held": (held, 90, 32),
}
"""Requests, slots of the pool, tokens a step may take."""


def run_scene(name: str, meddle: Callable[[Stepped, list[int]], None], *, bus: Bus | None = None) -> int:
    """Run a scene, meddling before each step; checks all who were not meddled with. Returns the steps."""
    make, slots, budget = SCENES[name]
    requests = make()
    with stepped(slots, max_batch_tokens=budget, bus=bus) as engine:
        reckless(engine)
        put = engine.put(*requests)
        doomed: list[int] = []
        meddle(engine, doomed)
        while engine.turn():
            meddle(engine, doomed)
        for request, (ticket, waiter) in zip(requests, put, strict=True):
            if ticket.number not in doomed:
                assert waiter.wait().output == expected(request.prompt, request.max_tokens)
        # Whatever is left in the tree must be right: the same again, now from the cache.
        for request, result in zip(requests, engine.answer(*requests), strict=True):
            assert result.output == expected(request.prompt, request.max_tokens)
        return engine.steps


@pytest.mark.parametrize("name", SCENES)
def test_abort_of_each_request_before_each_step(name: str) -> None:
    length = run_scene(name, lambda engine, doomed: None)
    requests = SCENES[name][0]()
    for victim in range(1, len(requests) + 1):
        for step in range(length // 2):

            def meddle(engine: Stepped, doomed: list[int], step: int = step, victim: int = victim) -> None:
                live = engine._sequences.get(victim)
                if engine.steps == step and not doomed:
                    doomed.append(victim)
                    if live is not None:
                        engine.abort(live.ticket)
                    elif step == 0:
                        engine.post(lambda: engine._abort(engine._sequences[victim].ticket))

            run_scene(name, meddle)


@pytest.mark.parametrize("name", SCENES)
def test_abort_of_all_at_once_before_each_step(name: str) -> None:
    for step in range(1, run_scene(name, lambda engine, doomed: None) // 2):

        def meddle(engine: Stepped, doomed: list[int], step: int = step) -> None:
            if engine.steps == step:
                for number, live in list(engine._sequences.items()):
                    doomed.append(number)
                    engine.abort(live.ticket)

        run_scene(name, meddle)


def test_the_scenes_reach_every_state_that_an_abort_can_meet() -> None:
    seen: set[str] = set()

    def look(engine: Stepped, doomed: list[int]) -> None:
        scheduler = engine._scheduler
        for s in scheduler.running:
            seen.add("mid-prefill" if s.prefilling else "mid-decode")
        for s in scheduler.waiting:
            seen.add("preempted" if s.admitted else "waiting")
            if any(
                r.prefilling and r.ids[: r.have].tolist() == s.ids[: r.have].tolist()
                for r in scheduler.running
            ):
                seen.add("waiting for a trunk")

    for name in SCENES:
        run_scene(name, look)
    assert seen == {"mid-prefill", "mid-decode", "preempted", "waiting", "waiting for a trunk"}


@pytest.mark.parametrize("name", SCENES)
def test_a_forward_fails_at_each_step(name: str) -> None:
    make, slots, budget = SCENES[name]
    for fail_at in range(1, 20):
        requests = make()
        with stepped(slots, max_batch_tokens=budget) as engine:
            reckless(engine)
            decoder(engine).fail_at = frozenset({fail_at})
            put = engine.put(*requests)
            engine.settle()
            failed = 0
            for request, (_, waiter) in zip(requests, put, strict=True):
                assert waiter.over.is_set()
                if waiter.error is not None:
                    assert isinstance(waiter.error, FloatingPointError)
                    failed += 1
                else:
                    assert waiter.wait().output == expected(request.prompt, request.max_tokens)
            assert bool(failed) == (decoder(engine).forwards >= fail_at)
            decoder(engine).fail_at = frozenset()
            for request, result in zip(requests, engine.answer(*requests), strict=True):
                assert result.output == expected(request.prompt, request.max_tokens)


def test_a_slot_allocation_that_fails_takes_nothing_with_it() -> None:
    """Between match and allocate: the pool has no room although the prefix was found."""
    with stepped(100, max_batch_tokens=64) as engine:
        reckless(engine)
        first = engine.answer(ask(TRUNK, 6))[0]
        put = engine.put(ask(range(200, 280), 15), ask((*TRUNK, *first.output, 7), 20))
        engine.settle()
        assert [w.wait().output for _, w in put] == [
            expected(tuple(range(200, 280)), 15),
            expected((*TRUNK, *first.output, 7), 20),
        ]


def test_aborted_before_it_was_taken_up() -> None:
    bus = Bus()
    told = bus.subscribe(lambda: None)
    with stepped(bus=bus) as engine:
        ((ticket, waiter),) = engine.put(ask(TRUNK))
        engine.abort(ticket)
        engine.abort(ticket)
        engine.settle()
        engine.abort(ticket)
        engine.settle()
        assert not waiter.over.is_set()
    ended = [e for e in told.take() if isinstance(e, GenerationEnded)]
    assert [(e.finish, e.cached_tokens, e.computed_tokens) for e in ended] == [("aborted", 0, 0)]


def test_after_an_abort_the_next_turn_of_the_same_agent_works() -> None:
    with stepped(200, max_batch_tokens=20) as engine:
        for steps in range(12):
            ((ticket, _),) = engine.put(ask(TRUNK, 10, hold=Hold("agent")))
            for _ in range(steps):
                engine.turn()
            engine.abort(ticket)
            engine.settle()
            assert engine.answer(ask(TRUNK, 3, hold=Hold("agent")))[0].output == expected(TRUNK, 3)
        engine.release("agent")


@pytest.mark.parametrize("steps", range(8))
def test_closing_answers_everybody_whatever_they_were_doing(steps: int) -> None:
    bus = Bus()
    heard = bus.subscribe(lambda: None)
    engine = Stepped(recall_model(300), bus=bus, max_batch_tokens=16)
    put = engine.put(*siblings(), *strangers())
    for _ in range(steps):
        engine.turn()
    late = engine.put(ask((5, 6), 2))
    engine.close()
    for _, waiter in (*put, *late):
        assert isinstance(waiter.error, RuntimeClosed) or waiter.result is not None
    with pytest.raises(RuntimeClosed):
        engine.put(ask((5, 6), 2))
    stats = engine.stats()
    assert (stats.private, stats.running, stats.waiting) == (0, 0, 0)
    assert stats.free + stats.tree == stats.pool
    ended = [event.request for event in heard.take() if isinstance(event, GenerationEnded)]
    assert sorted(ended) == sorted(ticket.number for ticket, _ in (*put, *late))


def test_requests_that_were_not_taken_up_fail_with_the_engine() -> None:
    engine = Stepped(recall_model(300), bus=Bus())

    def broken() -> None:
        raise OSError("broken")

    engine.post(broken)
    ((_, waiter),) = engine.put(ask((5, 6), 2))
    engine._run()
    assert isinstance(waiter.error, RuntimeClosed)
    assert isinstance(waiter.error.__cause__, OSError)


def test_an_engine_that_fails_in_mid_flight_holds_nothing_and_says_why() -> None:
    engine = Stepped(recall_model(300), bus=Bus(), max_batch_tokens=16)
    put = engine.put(*siblings(), *strangers())
    for _ in range(4):
        engine.turn()
    assert engine.stats().running

    def broken() -> None:
        raise OSError("broken")

    engine.post(broken)
    engine._run()
    for _, waiter in put:
        assert isinstance(waiter.error, RuntimeClosed) and isinstance(waiter.error.__cause__, OSError)
    stats = engine.stats()
    assert (stats.private, stats.running, stats.waiting) == (0, 0, 0)


def test_a_sink_that_raises_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("this sink is broken")

    with stepped() as engine:
        engine.submit(ask(TRUNK, 6), Sink(progress=refuse, done=refuse, failed=refuse))
        assert engine.answer(ask((*TRUNK, 7), 6))[0].output == expected((*TRUNK, 7), 6)
    assert "a sink raised" in caplog.text


def test_what_grows_past_the_pool_fails_alone_with_numbers() -> None:
    """Two fit when they are submitted, but a third party's lock leaves no room for the last one's output."""
    with stepped(64, max_batch_tokens=64) as engine:
        engine.answer(ask(range(10, 40), 2))
        cache = engine._scheduler.cache
        lock = cache.lock(cache.match(tuple(range(10, 40))).node)
        ((_, waiter),) = engine.put(ask(range(100, 130), 30))
        engine.settle()
        with pytest.raises(ContextOverflow, match="whole pool of 64"):
            waiter.wait()
        cache.unlock(lock)
        assert engine.answer(ask(range(100, 130), 30))[0].output == expected(tuple(range(100, 130)), 30)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (ask(range(4, 90), 20), "86 prompt tokens and up to 20 new ones need 106, but the KV pool holds 100"),
        (ask((), 5), "at least one token"),
        (ask((5, 512), 5), "0..511"),
        (ask((5, -1), 5), "0..511"),
        (ask((5, 6), 0, score_from=3), r"1\.\.2"),
        (ask((5,), 1, hold=Hold("a", float("nan"))), "NaN"),
    ],
)
def test_what_can_never_work_is_refused_when_it_is_submitted(request_: Request, message: str) -> None:
    with stepped(100) as engine:
        with pytest.raises(Exception, match=message):
            engine.submit(request_, Waiter().sink())
        with pytest.raises(TypeError, match="unhashable"):
            engine.submit(ask((5,), 1, namespace=["a"]), Waiter().sink())
