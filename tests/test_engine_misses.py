"""Why a prompt was not in the cache, told through the engine; who has what; and the snapshot of it all."""

import json
import logging
import re

import pytest
from engine_harness import Waiter
from engine_steps import Stepped, ask, decoder, expected, stepped

from agentree.events import Bus, Evicted, GenerationEnded, LeaseRevoked, Subscription
from agentree.runtime.request import Hold, Request, Scope

A = tuple(range(10, 50))
B = tuple(range(100, 140))
C = tuple(range(200, 240))
COUNTERS = ("lookup_tokens", "hit_tokens", "computed_tokens", "sampled_tokens", "forward_passes")


def misses(told: Subscription) -> list[str]:
    return [e.miss for e in told.take() if isinstance(e, GenerationEnded)]


def by(name: str, prompt: tuple[int, ...], n: int = 4, **options: object) -> Request:
    return ask(prompt, n, scope=Scope("run", name), **options)


def test_never_seen_is_told_and_new_text_after_a_known_prefix_is_no_miss() -> None:
    bus = Bus()
    told = bus.subscribe(lambda: None)
    with stepped(bus=bus) as engine:
        engine.answer(by("a", A))
        engine.answer(by("a", (*A, *expected(A, 4)[:3], 7, 8)))
    first, second = misses(told)
    assert first == "40 tokens from position 0 were never seen"
    assert second == ""


def test_evicted_names_who_needed_the_room() -> None:
    bus = Bus()
    told = bus.subscribe(lambda: None)
    with stepped(60, bus=bus) as engine:
        engine.answer(by("first", A))
        engine.answer(by("second", B))
        told_of = [e for e in told.take() if isinstance(e, Evicted)]
        engine.answer(by("first", A))
        (miss,) = misses(told)
    assert {(e.run, e.path) for e in told_of} == {("run", "second")}
    assert re.fullmatch(
        r"\d+ tokens from position \d+ were evicted to make room for run/second, \d+ cache operations ago",
        miss,
    )


def test_revoked_names_the_lease_and_who_needed_the_room() -> None:
    bus = Bus()
    told = bus.subscribe(lambda: None)
    with stepped(60, bus=bus) as engine:
        engine.answer(by("first", A, hold=Hold("run")))
        engine.answer(by("second", B))
        (revoked,) = (e for e in told.take() if isinstance(e, LeaseRevoked))
        engine.answer(by("first", A))
        (miss,) = misses(told)
    assert (revoked.owner, revoked.run, revoked.path) == ("run", "run", "second")
    assert "leased by 'run', were revoked to make room for run/second" in miss


def test_new_text_after_a_branch_names_the_token() -> None:
    bus = Bus()
    told = bus.subscribe(lambda: None)
    with stepped(bus=bus) as engine:
        engine.answer(by("a", A))
        engine.answer(by("b", (*A[:17], *B)))
    assert re.search(
        r" tokens from position 17 are new: what is cached goes on differently there, after .{1,40}$",
        misses(told)[1],
    )


def test_another_namespace_is_told_and_shares_nothing() -> None:
    bus = Bus()
    told = bus.subscribe(lambda: None)
    spaces = [("m", "a"), ("m", "b"), ("ma", ""), (1,), (1.0,), (True,), ("1",)]
    with stepped(bus=bus) as engine:
        for space in spaces:
            assert engine.answer(by("a", A, namespace=space))[0].counts.cached == 0
        for space in spaces:
            assert engine.answer(by("a", A, namespace=space))[0].counts.cached == len(A) - 1
    found = misses(told)
    assert found[1 : len(spaces)] == ["40 tokens from position 0 are cached only in another namespace"] * 6


def test_discarded_by_a_failed_step() -> None:
    bus = Bus()
    told = bus.subscribe(lambda: None)
    with stepped(bus=bus) as engine:
        decoder(engine).fail_at = frozenset({1})
        engine.put(by("a", A))
        engine.settle()
        decoder(engine).fail_at = frozenset()
        engine.answer(by("a", A))
    assert "were dropped when a step failed" in misses(told)[1]


def test_each_token_is_counted_once_and_counters_only_grow() -> None:
    bus = Bus()
    told = bus.subscribe(lambda: None)
    with stepped(90, max_batch_tokens=8, bus=bus) as engine:
        before = engine.stats()
        for prompt in (A, (*A, 5), B, A, C, (*C, 5, 6), A):
            engine.put(ask(prompt, 9))
            while engine.turn():
                now = engine.stats()
                for name in (
                    "lookup_tokens",
                    "hit_tokens",
                    "computed_tokens",
                    "sampled_tokens",
                    "forward_passes",
                ):
                    assert getattr(now, name) >= getattr(before, name)
                before = now
    ended = [e for e in told.take() if isinstance(e, GenerationEnded)]
    assert all(e.cached_tokens + e.computed_tokens == e.prompt_tokens for e in ended)
    assert sum(e.prompt_tokens for e in ended) == before.lookup_tokens
    assert sum(e.cached_tokens for e in ended) == before.hit_tokens


def agents(engine: Stepped) -> dict[str, dict[str, int]]:
    seen: list[dict[str, object]] = []
    engine.snapshot(seen.append)
    engine.turn()
    (one,) = seen
    rows: list[dict[str, int | str]] = one["agents"]  # pyright: ignore[reportAssignmentType]
    return {str(row.pop("agent")): {k: int(v) for k, v in row.items()} for row in rows}


def test_what_each_agent_holds_leases_and_could_lose() -> None:
    with stepped(200) as engine:
        engine.answer(by("a", A, hold=Hold("one")))
        # Output of 4: the last token sampled never went through the model.
        assert agents(engine) == {"one": {"held": 0, "leased": 43, "evictable": 43}}
        engine.put(by("a", (*A, *expected(A, 4), 7), 8, hold=Hold("one")), by("b", B, 8))
        engine.turn()
        found = agents(engine)
        assert found["one"]["held"] > 43 and found["one"]["leased"] == 43 and found["one"]["evictable"] == 0
        assert found["run/b"]["held"] >= len(B) and found["run/b"]["leased"] == 0
        engine.settle()
        engine.release_run("one")
        engine.turn()
        assert agents(engine) == {}


def test_a_snapshot_is_plain_json_without_any_text() -> None:
    with stepped(150, max_batch_tokens=16) as engine:
        engine.put(*(by(f"n[{i}]", (*A, i + 60), 40) for i in range(9)))
        for _ in range(6):
            engine.turn()
        seen: list[dict[str, object]] = []
        engine.snapshot(seen.append)
        engine.turn()
        shot = json.loads(json.dumps(seen[0]))
        assert shot["stats"]["pool"] == 150
        assert shot["stats"]["running"] == len(shot["running"]) > 0
        assert shot["stats"]["waiting"] == len(shot["waiting"]) > 0
        assert set(shot["running"][0]) == {
            "request", "run", "path", "prompt", "cached", "generated", "slots", "private", "seconds",
        }  # fmt: skip
        assert shot["tree"][0].startswith("namespace")
        engine.settle()


def test_a_claim_that_was_revoked_is_no_claim(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with stepped(60) as engine:
        engine.answer(by("a", A, hold=Hold("one")))
        engine.answer(by("b", B))
        engine.expect("one", 5.0)
        engine.expect("nobody", 5.0)
        assert agents(engine) == {}
        waiter = Waiter()
        engine.submit(by("a", A, hold=Hold("one", 0.0)), waiter.sink())
        engine.settle()
        assert agents(engine)["one"]["leased"] > 0
    assert not caplog.records
