"""Prompts that are submitted at once compute each unique token once, however long, whatever the budget."""

from functools import cache

import pytest
from engine_histories import play
from engine_steps import Stepped, ask, decoder, expected, recall_model, stepped
from hypothesis import given, settings
from hypothesis import strategies as st

from agentree.runtime.constraint import JSONSchema, Regex, TokenConstraint, compile_constraint
from agentree.runtime.request import Request, Result

Prompt = tuple[int, ...]

CHOICES = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 60), st.integers(0, 3)), min_size=2, max_size=9
)
"""Per prompt: which earlier one it goes along, for how long, and how many tokens of its own it has."""


def overlapping(choices: list[tuple[int, int, int]]) -> list[Prompt]:
    made: list[Prompt] = [tuple(range(10, 70))]
    for which, length, own in choices:
        made.append(
            (*made[which % len(made)][:length], *range(100 + 4 * len(made), 100 + 4 * len(made) + own))
        )
    return made


def unique(prompts: list[Prompt]) -> int:
    return len({p[:n] for p in prompts for n in range(1, len(p) + 1)})


def full_hits(prompts: list[Prompt]) -> int:
    """Prompts that are wholly contained in another."""
    return sum(any(q[: len(p)] == p for j, q in enumerate(prompts) if j != i) for i, p in enumerate(prompts))


@settings(max_examples=60, deadline=None)
@given(CHOICES, st.sampled_from([4, 16, 50, 512]))
def test_each_unique_token_is_computed_once(choices: list[tuple[int, int, int]], budget: int) -> None:
    prompts = overlapping(choices)
    with stepped(max_batch_tokens=budget) as engine:
        results = engine.answer(*(ask(p, 3) for p in prompts))
        computed = sum(r.counts.computed for r in results)
        assert engine.stats().computed_tokens == computed
        assert unique(prompts) <= computed <= unique(prompts) + full_hits(prompts)
        if budget == 512:
            assert computed == unique(prompts)
    for prompt, result in zip(prompts, results, strict=True):
        assert result.output == expected(prompt, 3)
        assert result.counts.cached + result.counts.computed == len(prompt)


@cache
def constraint(name: str) -> TokenConstraint:
    specs = {
        "regex": Regex(r'\{"answer": "[a-f]{2,6}", "sure": (true|false)\}'),
        "json": JSONSchema(
            {
                "type": "object",
                "properties": {"title": {"type": "string", "maxLength": 6}, "sold": {"type": "boolean"}},
                "required": ["title", "sold"],
                "additionalProperties": False,
            }
        ),
        "constant": Regex(r"The answer is 391\."),
    }
    tokenizer = recall_model(8).tokenizer
    return compile_constraint(specs[name]).bind(tokenizer.vocabulary())


def forced(prompt: Prompt, name: str, **options: object) -> Request:
    return Request(prompt=prompt, max_tokens=60, constraint=constraint(name), **options)  # type: ignore[arg-type]


def one_by_one(requests: list[Request]) -> list[Result]:
    results: list[Result] = []
    for request in requests:
        with stepped() as engine:
            results += engine.answer(request)
    return results


@pytest.mark.parametrize("name", ["regex", "json", "constant"])
@pytest.mark.parametrize("budget", [7, 40, 512])
def test_forced_first_runs_are_part_of_what_is_shared(name: str, budget: int) -> None:
    trunk = tuple(range(10, 110))
    prompts = [trunk, trunk, trunk, (*trunk, 300), (*trunk, 301), trunk[:50]]
    requests = [forced(p, name) for p in prompts]
    alone = one_by_one(requests)
    with stepped(max_batch_tokens=budget) as engine:
        before = decoder(engine).queries
        together = engine.answer(*requests)
        queries = decoder(engine).queries - before
    assert [r.output for r in together] == [r.output for r in alone]
    assert all(r.counts.forced > 0 and r.counts.sampled + r.counts.forced == len(r.output) for r in together)
    computed = sum(r.counts.computed for r in together)
    assert unique(prompts) <= computed <= unique(prompts) + full_hits(prompts)
    if name == "constant":
        # Forced to the end: nobody reads logits, and what the next turn needs is computed with the prompt.
        assert all(r.counts.sampled == 0 and r.text == "The answer is 391." for r in together)
        assert queries == unique([(*p, *r.output) for p, r in zip(prompts, together, strict=True)])
    if budget == 512 and name != "constant":
        first_run = alone[0].output[: first_forced(name)]
        assert first_run
        assert all(r.output[: len(first_run)] == first_run for r in together)


def first_forced(name: str) -> int:
    return len(constraint(name).matcher(60).forced(None))


def test_jump_forward_saves_passes() -> None:
    prompts = [tuple(range(10, 10 + n)) for n in (5, 30, 31)]
    for name in ("regex", "json"):
        with stepped() as engine:
            on = engine.answer(*(forced(p, name) for p in prompts))
        with stepped() as engine:
            off = engine.answer(*(forced(p, name, jump_forward=False) for p in prompts))
        assert all(r.counts.forced == 0 for r in off)
        assert sum(r.counts.forward_passes for r in on) < sum(r.counts.forward_passes for r in off)


def test_a_run_that_crosses_the_stop_of_its_budget_is_refused_up_front() -> None:
    with stepped() as engine:
        short = Request(prompt=(5, 6), max_tokens=2, constraint=constraint("regex"))
        ((_, waiter),) = engine.put(short)
        engine.settle()
        with pytest.raises(Exception, match="2"):
            waiter.wait()
        assert engine.answer(ask((5, 6), 4))[0].output == expected((5, 6), 4)


def test_a_fork_of_a_running_generation_shares_all_of_it() -> None:
    prompt = tuple(range(30, 50))
    said = expected(prompt, 40)
    with stepped() as engine:
        ((_, waiter),) = engine.put(ask(prompt, 40))
        for _ in range(21):
            engine.turn()
        forks = engine.put(*(ask((*prompt, *said[:19], 300 + i), 4) for i in range(5)))
        engine.settle()
        assert waiter.wait().output == said
        for _, fork in forks:
            assert fork.wait().counts.cached == len(prompt) + 19
            assert fork.wait().counts.computed == 1


def test_a_failed_trunk_is_computed_again_by_the_siblings_that_come_later() -> None:
    trunk = tuple(range(10, 70))
    engine: Stepped
    with stepped(max_batch_tokens=20) as engine:
        decoder(engine).fail_at = frozenset({2})
        first = engine.put(*(ask((*trunk, 100 + i), 4) for i in range(3)))
        engine.settle()
        assert any(w.error for _, w in first)
        decoder(engine).fail_at = frozenset()
        results = engine.answer(*(ask((*trunk, 100 + i), 4) for i in range(3)))
        assert [r.output for r in results] == [expected((*trunk, 100 + i), 4) for i in range(3)]


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_are_always_right(seed: int) -> None:
    assert play(seed, steps=60) > 10


@pytest.mark.parametrize("twins", [2, 3])
def test_twins_that_decode_share_a_running_prefix_without_losing_a_write(twins: int) -> None:
    """Publishing one twin frees what the other was about to write to, in the middle of planning a step."""
    prompt = tuple(range(30, 50))
    said = expected(prompt, 30)
    with stepped() as engine:
        put = engine.put(*(ask(prompt, 30) for _ in range(twins)))
        for i in range(6, 24):
            engine.turn()
            put += engine.put(ask((*prompt, *said[: i - 5], 300 + i), 6), ask(range(60 + i, 90 + i), 2))
        engine.settle()
        for ticket, waiter in put:
            assert waiter.wait().output == expected(ticket.request.prompt, ticket.request.max_tokens)
        assert (engine._scheduler._query_of == -1).all()
