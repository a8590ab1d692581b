"""Who is served when: agents in progress first, depth first, nobody too late; counted in steps."""

import random

import pytest
from engine_harness import reckless
from engine_steps import ask, expected, stepped

from agentree.runtime.queue import PATIENCE
from agentree.runtime.request import Hold, Request, Scope

HOT = tuple(range(4, 44))


def steps_until_over(cold: Request, before: list[Request], after: list[Request], *, budget: int) -> int:
    """Steps until the cold request is over that came between the others; eight a step come after it."""
    with stepped(600, max_batch_tokens=budget) as engine:
        engine.put(*before)
        engine.turn()
        began = engine.steps
        ((_, waiter),) = engine.put(cold)
        while not waiter.over.is_set():
            engine.put(*after[:8])
            del after[:8]
            engine.turn()
        assert waiter.wait().output == expected(cold.prompt, cold.max_tokens)
        taken = engine.steps - began
        while engine.turn():
            pass
        return taken


@pytest.mark.parametrize("agent", [None, "old"])
@pytest.mark.parametrize("budget", [24, 512])
def test_a_thousand_hot_requests_delay_a_cold_one_by_a_bounded_number_of_steps(
    budget: int, agent: str | None
) -> None:
    rng = random.Random(budget)
    cold = ask([rng.randrange(4, 512) for _ in range(200)], 8)
    # Requests of an older agent are served before the cold one however late they come.
    hot = [ask((*HOT, rng.randrange(4, 512), i % 500), 8, agent=agent) for i in range(1000)]
    alone = steps_until_over(cold, hot[:1], [], budget=budget)
    crowded = steps_until_over(cold, hot[:8], hot[8:], budget=budget)
    assert alone <= 24
    assert crowded <= alone + PATIENCE + 24
    if agent is not None and budget == 24:
        assert crowded > PATIENCE, "it was not overtaken: this tests nothing"


def test_an_aged_request_goes_before_all_that_came_after_it() -> None:
    with stepped(80, max_batch_tokens=64) as engine:
        # The old agent comes again as soon as it has ended, and the pool holds one request at a time.
        (live,) = engine.put(ask(HOT, 30, agent="old"))
        engine.turn()
        ((_, cold),) = engine.put(ask(range(100, 140), 30, agent="new"))
        served = 0
        while not cold.over.is_set():
            if live[1].over.is_set():
                served += 1
                (live,) = engine.put(ask((*HOT, served), 30, agent="old"))
            engine.turn()
        assert 1 <= served <= PATIENCE // 10
        engine.settle()


def admission_order(slots: int, requests: list[Request], *, first: list[Request]) -> list[int]:
    """In which order requests come to their ends while the pool holds one at a time."""
    with stepped(slots, max_batch_tokens=64) as engine:
        engine.put(*first)
        engine.turn()
        put = engine.put(*requests)
        ended: list[int] = []
        while len(ended) < len(put):
            engine.turn()
            ended += [i for i, (_, w) in enumerate(put) if w.over.is_set() and i not in ended]
        engine.settle()
        return ended


def scoped(path: str, i: int, *, run: str = "run") -> Request:
    return ask(range(50 + 40 * i, 90 + 40 * i), 4, scope=Scope(run, path))


def test_inside_a_run_the_lower_branch_goes_first_with_all_that_follows_on_it() -> None:
    paths = ["solve[1]", "solve[0]", "refine[0][1]", "refine[0][0]", "solve[10]", "solve[2]"]
    order = admission_order(60, [scoped(p, i) for i, p in enumerate(paths)], first=[scoped("plan", 9)])
    assert [paths[i] for i in order] == [
        "solve[0]", "refine[0][0]", "refine[0][1]", "solve[1]", "solve[2]", "solve[10]",
    ]  # fmt: skip


def test_agents_in_progress_are_finished_before_new_ones_begin() -> None:
    with stepped(60, max_batch_tokens=64) as engine:
        put = engine.put(*(scoped("turn", i, run=f"run-{i}") for i in range(4)))
        ended: list[str] = []
        while any(not w.over.is_set() for _, w in put):
            engine.turn()
            for t, w in list(put):
                name = f"{t.request.scope.run} {t.request.scope.path}"
                if w.over.is_set() and name not in ended:
                    ended.append(name)
                    if t.request.scope.path == "turn":
                        again = (*t.request.prompt, *w.wait().output, 7)
                        put += engine.put(ask(again, 4, scope=Scope(t.request.scope.run, "turn#2")))
    assert ended == [f"run-{i} {turn}" for i in range(4) for turn in ("turn", "turn#2")]


def test_an_agent_that_ended_is_forgotten() -> None:
    with stepped(60, max_batch_tokens=64) as engine:
        engine.answer(scoped("turn", 0, run="a"), scoped("turn", 1, run="b"))
        engine.release_run("a")
        engine.turn()
        put = engine.put(scoped("turn", 2, run="a"), scoped("turn", 3, run="b"))
        engine.turn()
        while not any(w.over.is_set() for _, w in put):
            engine.turn()
        assert put[1][1].over.is_set() and not put[0][1].over.is_set()
        engine.settle()


def test_prompts_get_half_of_each_step_however_many_decode() -> None:
    with stepped(4096, max_batch_tokens=32) as engine:
        engine.put(*(ask((9, i + 10), 12) for i in range(60)))
        for _ in range(8):
            engine.turn()
        assert len(engine._scheduler.running) == 16


def test_preempted_requests_resume_with_the_same_tokens_in_any_order() -> None:
    rng = random.Random(5)
    many = [ask([rng.randrange(4, 512) for _ in range(rng.randint(5, 40))], 50) for _ in range(24)]
    with stepped(150, max_batch_tokens=40) as engine:
        reckless(engine)
        results = engine.answer(*many)
        assert engine.stats().preempted_requests > 5
    assert [r.output for r in results] == [expected(r.prompt, 50) for r in many]
    for r, result in zip(many, results, strict=True):
        assert result.counts.cached + result.counts.computed == len(r.prompt)


def test_a_pool_for_twenty_serves_two_hundred_agents_without_computing_everything_again() -> None:
    rng = random.Random(6)
    system = tuple(rng.randrange(4, 512) for _ in range(60))
    agents = {f"run-{i}": (*system, *(rng.randrange(4, 512) for _ in range(20))) for i in range(200)}
    turns = dict.fromkeys(agents, 3)
    with stepped(20 * 60, max_batch_tokens=128) as engine:
        live = {name: engine.put(turn_of(name, ids))[0] for name, ids in agents.items()}
        while live:
            engine.turn()
            for name, (ticket, waiter) in list(live.items()):
                if not waiter.over.is_set():
                    continue
                turns[name] -= 1
                del live[name]
                if turns[name]:
                    ids = (*ticket.request.prompt, *waiter.wait().output, *(rng.randrange(4, 512),) * 5)
                    live[name] = engine.put(turn_of(name, ids))[0]
                else:
                    engine.release_run(name)
        stats = engine.stats()
    # System prompt, question, and each turn's new tokens once; some is revoked and computed again.
    once = 60 + 200 * (20 + 2 * 6)
    assert stats.computed_tokens < 1.25 * once


def turn_of(run: str, ids: tuple[int, ...]) -> Request:
    return ask(ids, 12, scope=Scope(run, "answer"), hold=Hold(run))
