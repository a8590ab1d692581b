"""Speculation changes how many forwards a text takes, and nothing else."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_harness import engine_over, load, reckless, run
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import tiny_llama

from agentree import JSONSchema, compile_constraint
from agentree.runtime.cache import Cache
from agentree.runtime.engine import Engine
from agentree.runtime.model.load import LoadedModel
from agentree.runtime.request import Request, Result, Sampling
from agentree.runtime.speculate import LONGEST, SHORTEST, Costs, lookup

END = frozenset({2})
ids = st.lists(st.integers(0, 3), max_size=60)


def naive(context: list[int], n: int) -> list[int]:
    """The same rule, place by place."""
    best, longest = 0, 0
    for place in range(1, len(context)):
        common = 0
        while common < min(place, LONGEST) and context[place - 1 - common] == context[-1 - common]:
            common += 1
        if common >= max(longest, SHORTEST):
            best, longest = place, common
    return context[best : best + n] if longest else []


@given(ids, st.integers(1, 9))
def test_lookup_finds_what_followed_the_longest_last_place(context: list[int], n: int) -> None:
    assert lookup(np.asarray(context, np.int32), n).tolist() == naive(context, n)


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), max_size=8), ids, st.integers(1, 9))
def test_following_is_a_text_of_the_tree(texts: list[list[int]], start: list[int], n: int) -> None:
    cache = Cache(500)
    for text in texts:
        row = cache.allocate(len(text))
        cache.publish(np.asarray(text, np.int32), row, 0, "a")
    found = cache.following(np.asarray(start, np.int32), "a", n).tolist()
    longer = [t for t in texts if t[: len(start)] == start and len(t) > len(start)]
    assert bool(found) == bool(longer)
    assert len(found) <= n
    if found:
        assert any(t[: len(start) + len(found)] == start + found for t in longer)
        assert len(found) == n or any(t == start + found for t in texts)
    assert not len(cache.following(np.asarray(start, np.int32), "b", n))


def test_costs_are_fitted_to_what_was_seen() -> None:
    costs = Costs()
    rng = random.Random(0)
    for _ in range(256):
        rows = rng.randint(1, 8)
        queries = rows + rng.randint(0, 8)
        costs.observe(rows, queries, 0.02 + 0.004 * rows + 0.002 * queries)
    assert costs.fixed / costs.query == pytest.approx(10, rel=0.2)
    assert costs.row / costs.query == pytest.approx(2, rel=0.2)
    assert costs.worth(1) <= costs.worth(8) < costs.worth(8, 3) < costs.worth(16, 3) < 1


def test_costs_of_rows_and_guesses_are_told_apart_only_once_there_were_guesses() -> None:
    costs, believed = Costs(), Costs()
    for rows in (1, 2, 4, 8) * 64:
        costs.observe(rows, rows, 8.0 + 2.0 * rows)
    assert costs.row == pytest.approx(costs.query, rel=0.1)
    assert costs.worth(4) == pytest.approx(believed.worth(4), rel=0.1)
    for _ in range(64):
        costs.observe(100, 700, 1.0)  # prefill
    assert costs.worth(4) == pytest.approx(believed.worth(4), rel=0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("speculate"))


def eager(engine: Engine) -> Engine:
    """As if a query cost nothing: guesses are always made."""
    assert engine._speculator is not None
    engine._speculator.costs = Always()
    return engine


class Always(Costs):
    def worth(self, rows: int, queries: int = 1) -> float:
        return 1e-9


def outputs(results: list[Result]) -> list[tuple[Any, ...]]:
    return [(r.output, r.text, r.finish, r.end_token, r.scores, r.counts.sampled) for r in results]


def requests(seed: int, n: int = 12, tokens: int = 40) -> list[Request]:
    """Prompts that share prefixes and repeat themselves, greedy and drawn."""
    rng = random.Random(seed)
    made: list[Request] = []
    for i in range(n):
        stem = made[rng.randrange(len(made))].prompt[: rng.randint(1, 30)] if made and i % 2 else ()
        piece = tuple(rng.randrange(4, 512) for _ in range(rng.randint(2, 8)))
        sampling = Sampling(temperature=rng.choice([0.0, 0.3, 1.0]), seed=rng.randrange(4))
        made.append(
            Request(
                prompt=stem + piece * rng.randint(1, 4),
                max_tokens=rng.randint(1, tokens),
                end_ids=END,
                sampling=sampling,
            )
        )
    return made


@pytest.mark.parametrize("seed", range(4))
def test_what_is_said_is_the_same(folder: Path, seed: int) -> None:
    many = requests(seed)
    model = load(folder)
    with engine_over(model, speculate=False) as engine:
        expected = outputs(run(engine, *many) + run(engine, *many))
        plain = engine.stats()
    with engine_over(model) as engine:
        eager(engine)
        assert outputs(run(engine, *many) + run(engine, *many)) == expected
        stats = engine.stats()
    assert stats.forward_passes < plain.forward_passes
    assert 0 < stats.confirmed_tokens <= stats.guessed_tokens
    assert plain.guessed_tokens == 0
    assert stats.sampled_tokens == plain.sampled_tokens


def test_what_was_said_before_is_said_in_few_forwards(folder: Path) -> None:
    ask = Request(prompt=(5, 9, 11, 40, 8), max_tokens=41)
    with engine_over(load(folder)) as engine:
        eager(engine)
        first, second = run(engine, ask)[0], run(engine, ask)[0]
    assert first.output == second.output
    assert second.counts.forward_passes <= 1 + 41 // 8 + 1


@pytest.mark.parametrize("seed", range(3))
def test_a_small_pool_and_small_steps_change_nothing(folder: Path, seed: int) -> None:
    many = requests(seed, 10, 60)
    with engine_over(load(folder), speculate=False) as engine:
        expected = outputs(run(engine, *many))
    with engine_over(load(folder, kv_tokens=150), max_batch_tokens=16) as engine:
        reckless(eager(engine))
        assert outputs(run(engine, *many)) == expected


def test_guesses_stop_where_they_are_never_right(folder: Path) -> None:
    rng = random.Random(5)
    # Nothing is said twice at this temperature, but the prompt is full of places to guess from.
    prompt = tuple(rng.randrange(4, 12) for _ in range(300))
    ask = Request(prompt=prompt, max_tokens=200, sampling=Sampling(temperature=2.0, seed=3))
    with engine_over(load(folder)) as engine:
        assert engine._speculator is not None
        engine._speculator.costs.observe = lambda rows, queries, seconds: None
        run(engine, ask)
        stats = engine.stats()
    assert stats.guessed_tokens < 60


def test_what_was_never_right_is_tried_again_by_those_who_come_later(folder: Path) -> None:
    with engine_over(load(folder)) as engine:
        assert engine._speculator is not None
        engine._speculator._odds = 0.0
        engine._speculator.costs.observe = lambda rows, queries, seconds: None
        for ask in requests(3, n=12) * 2:
            run(engine, ask)
        assert engine.stats().confirmed_tokens > 0


def test_nothing_is_guessed_where_a_query_costs_as_much_as_a_forward(folder: Path) -> None:
    class Never(Costs):
        def worth(self, rows: int, queries: int = 1) -> float:
            return 1.0

    ask = Request(prompt=(5, 9, 11, 40, 8) * 3, max_tokens=40)
    with engine_over(load(folder)) as engine:
        assert engine._speculator is not None
        engine._speculator.costs = Never()
        run(engine, ask)
        run(engine, ask)
        assert engine.stats().guessed_tokens == 0


SCHEMA = {
    "type": "object",
    "properties": {
        "tool": {"type": "string", "enum": ["look", "ask", "close"]},
        "reason": {"type": "string", "maxLength": 24},
        "last": {"type": "boolean"},
    },
    "required": ["tool", "reason", "last"],
    "additionalProperties": False,
}


@pytest.mark.model
def test_real_text_and_forced_json_are_the_same_in_fewer_forwards(smollm2: Path) -> None:
    model: LoadedModel = load(smollm2, kv_tokens=8192, weights="auto")
    call = '{"tool": "ask", "reason": "the key is lost", "last": false}'
    turn = "<|im_start|>user\nWhat next?<|im_end|>\n<|im_start|>assistant\n"
    talk = f"<|im_start|>system\nCall a tool, like {call}<|im_end|>\n{turn}{call}<|im_end|>\n{turn}"
    constraint = compile_constraint(JSONSchema(SCHEMA)).bind(model.tokenizer.vocabulary())
    prompt = tuple(model.tokenizer.encode(talk, special=True))
    free = tuple(model.tokenizer.encode(turn.replace("What next?", "Count to ten, twice."), special=True))
    end = model.tokenizer.end_ids
    asks = [
        Request(prompt=prompt, max_tokens=32, end_ids=end, constraint=constraint),
        Request(prompt=prompt, max_tokens=32, end_ids=end, constraint=constraint, jump_forward=False),
        Request(prompt=free, max_tokens=32, end_ids=end),
    ]
    with engine_over(model, speculate=False) as engine:
        plain = [run(engine, ask)[0] for ask in asks]
    with engine_over(model) as engine:
        eager(engine)
        quick = [run(engine, ask)[0] for ask in asks]
    assert [r.output for r in quick] == [r.output for r in plain]
    assert [r.counts.forced for r in quick] == [r.counts.forced for r in plain]
    for a, b in zip(quick, plain, strict=True):
        assert a.logprob == pytest.approx(b.logprob, abs=1e-3)
    assert quick[0].counts.forward_passes < plain[0].counts.forward_passes
    assert quick[1].counts.forward_passes < plain[1].counts.forward_passes / 2
