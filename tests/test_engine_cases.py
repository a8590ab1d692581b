"""Faults that users of other engines met, as small as they get; `cases/README.md` has the list."""

import pytest
from engine_harness import reckless
from engine_steps import ask, expected, stepped

from agentree.runtime.request import Hold

A = tuple(range(10, 50))


def test_one_request_with_a_long_answer_in_small_chunks_gives_everything_back() -> None:
    with stepped(300, max_batch_tokens=4) as engine:
        (result,) = engine.answer(ask(A, 200))
        assert result.output == expected(A, 200)
        cache = engine._scheduler.cache
        # The last token that was sampled never went through the model.
        assert cache.tree == len(A) + len(result.output) - (result.end_token is None)


@pytest.mark.parametrize("slots", range(62, 90, 3))
def test_one_ends_in_the_step_in_which_another_is_preempted(slots: int) -> None:
    """Lengths are such that over these pools every order of ending and preempting occurs."""
    with stepped(slots, max_batch_tokens=32) as engine:
        reckless(engine)
        requests = [ask(range(10 + 60 * i, 26 + 60 * i), 6 + 4 * i) for i in range(4)]
        results = engine.answer(*requests)
        assert [r.output for r in results] == [expected(r.prompt, r.max_tokens) for r in requests]


def test_a_preemption_frees_what_is_private_and_leaves_the_rest_to_eviction() -> None:
    with stepped(100, max_batch_tokens=64) as engine:
        engine.put(ask(A, 30), ask(range(100, 120), 30))
        for _ in range(11):
            engine.turn()
        scheduler, cache = engine._scheduler, engine._scheduler.cache
        oldest, victim = scheduler.running
        private, published = victim.have - victim.owned, victim.owned
        free, evictable = cache.free, cache.evictable
        assert private == 10 and published == 20 and evictable == 0
        assert scheduler._preempt(victim) == private
        assert (cache.free, cache.evictable) == (free + private, published)
        scheduler.check()
        engine.settle()
        assert oldest.ticket.number == 1


def test_what_an_agent_went_back_from_goes_before_what_it_holds_now() -> None:
    """The newer state of an agent supersedes the older one, however recently that was used."""
    with stepped(150, max_batch_tokens=64) as engine:
        left = (*A, *range(100, 130))
        stranger = tuple(range(200, 220))
        engine.answer(ask(stranger, 1))
        engine.answer(ask(left, 1, hold=Hold("agent")))
        engine.answer(ask((*A, *range(150, 180)), 1, hold=Hold("agent")))
        engine.answer(ask(range(300, 345), 5))
        cache = engine._scheduler.cache
        assert cache.match(left).length < len(left)
        assert cache.match((*A, *range(150, 180))).length == len(A) + 30
        assert cache.match(stranger).length == len(stranger)


def test_a_prompt_that_is_wholly_cached_still_runs_one_query_whatever_happened_before() -> None:
    with stepped(70, max_batch_tokens=64) as engine:
        reckless(engine)
        engine.answer(ask(A, 4))
        engine.put(ask(A, 20), ask(range(100, 120), 20))
        engine.settle()
        (again,) = engine.answer(ask(A, 4))
        assert again.output == expected(A, 4)
        assert again.counts.computed >= 1


def test_the_slots_of_a_full_hit_are_the_same_at_every_step() -> None:
    with stepped(200) as engine:
        engine.answer(ask(A, 4))
        engine.put(ask(A, 14))
        rows: list[list[int]] = []
        while engine.turn():
            rows += [s.row[: len(A)].tolist() for s in engine._scheduler.running]
        assert len(rows) >= 8 and all(row == rows[0] for row in rows)


def test_cancelled_and_tried_again_at_once_changes_nothing_for_others() -> None:
    for steps in range(6):
        with stepped(400, max_batch_tokens=24) as engine:
            others = engine.put(*(ask((*A, 100 + i), 10) for i in range(4)))
            ((ticket, _),) = engine.put(ask((*A, 104), 10))
            for _ in range(steps):
                engine.turn()
            engine.abort(ticket)
            again = engine.put(ask((*A, 104), 10))
            engine.settle()
            for t, waiter in (*others, *again):
                assert waiter.wait().output == expected(t.request.prompt, 10)


def test_what_was_generated_is_evicted_before_the_prompt_that_others_may_share() -> None:
    """The prompt is a node of its own: published at its end, whatever comes after it."""
    prompt = tuple(range(10, 30))
    with stepped(200, max_batch_tokens=8) as engine:
        (result,) = engine.answer(ask(prompt, 6))
        cache = engine._scheduler.cache
        generated = len(result.output) - (result.end_token is None)  # the last one was not computed
        lines = [line.split()[0] for line in cache.outline()[1:]]
        assert generated > 1 and lines[-1] == f"20+{generated}"
        assert sum(int(line.split("+")[1]) for line in lines[:-1]) == 20
        cache.evict(generated)
        assert cache.match(prompt).length == cache.tree == 20
