"""Forks: one wave, fork order, seeds of their own, and leases that end with the scope."""

import pytest
from lm_scripted import result, scripted, tokenizer

from agentree.errors import InvalidArgument
from agentree.events import Bus, Forked
from agentree.lm.forks import Forks, branches
from agentree.messages import user
from agentree.runtime.request import Request, Result, Scope

pytestmark = pytest.mark.asyncio


def by_seed(request: Request) -> Result:
    """An answer that tells branches apart."""
    return result(f"branch {request.sampling.seed}", request)


async def test_one_wave_in_fork_order() -> None:
    made = scripted(by_seed)
    start = made.empty + user("Go")
    async with start.fork(5) as kids:
        assert isinstance(kids, Forks) and len(kids) == 5
        assert all(k == start for k in kids) and list(kids[1:3]) == [start, start]
        out = await kids.gen(str, seed=9)
    assert [len(wave) for wave in made.engine.waves] == [5]
    assert [g.text for g in out] == [f"branch {r.sampling.seed}" for r in made.engine.requests]
    assert len({g.seed for g in out}) == 5
    assert {r.sampling.temperature for r in made.engine.requests} == {1.0}
    assert [r.scope.path for r in made.engine.requests] == ["[0]", "[1]", "[2]", "[3]", "[4]"]


async def test_a_branchs_seed_gives_the_same_alone() -> None:
    made = scripted(by_seed)
    start = made.empty + user("Go")
    async with start.fork(3) as kids:
        out = await kids.gen(str, seed=9)
        alone = await kids[1].gen(str, seed=out[1].seed, temperature=1.0)
    assert alone.text == out[1].text
    async with start.fork(3) as kids:
        assert [g.seed for g in await kids.gen(str, seed=9)] == [g.seed for g in out]
        assert [g.seed for g in await kids.gen(str)] != [g.seed for g in out]


async def test_thoughts_are_one_wave_and_values_another() -> None:
    made = scripted(lambda request: "7" if request.constraint else "hm")
    async with (made.empty + user("Go")).fork(3) as kids:
        assert [g.value for g in await kids.gen(int, think=4)] == [7, 7, 7]
    assert [len(wave) for wave in made.engine.waves] == [3, 3]


async def test_a_branch_that_fails_aborts_the_others() -> None:
    def script(request: Request) -> BaseException | None:
        return RuntimeError("branch 1") if request.scope.path == "[1]" else None

    made = scripted(script)
    async with made.empty.fork(3) as kids:
        with pytest.raises(RuntimeError, match="branch 1"):
            await kids.gen(str)
    assert {1, 3} <= set(made.engine.aborted) and not made.engine.open


async def test_leases_end_with_the_scope() -> None:
    made = scripted(by_seed)
    start = made.empty + user("Go")
    async with start.fork(3) as kids:
        assert list(made.engine.held.values()) == [len(start)]
        out = await kids.gen(str, seed=1)
        longer = await (out[0].transcript + user("more")).gen(str, seed=1)
        assert sorted(made.engine.held.values()) == sorted(
            [len(start), len(longer.transcript), len(out[1].transcript), len(out[2].transcript)]
        )
        assert kids.keep([out[2]]) == [out[2].transcript]
    assert made.engine.held == {}
    ended = dict(made.engine.last_used)
    assert len(ended) == 2 and set(ended.values()) == {len(start)}, (
        "the branches that were not kept, past the trunk"
    )
    await longer.transcript.gen(str)
    assert made.engine.held == {}, "a transcript that outlives its scope holds nothing"


async def test_survivors_move_to_the_enclosing_scope() -> None:
    made = scripted(by_seed)
    start = made.empty + user("Go")
    async with start.fork(2) as outer:
        first = await outer.gen(str, seed=1)
        before = set(made.engine.held)
        async with first[0].transcript.fork(3) as inner:
            out = await inner.gen(str, seed=2)
            kept = inner.keep(out[:2])
        taken = {o: n for o, n in made.engine.held.items() if o not in before}
        assert sorted(taken.values()) == sorted(len(t) for t in kept)
        on = await (kept[0] + user("on")).gen(str)
        assert len(on.transcript) in made.engine.held.values()
    assert made.engine.held == {}


async def test_leases_of_a_fork_end_when_the_block_fails() -> None:
    made = scripted(by_seed)
    with pytest.raises(ZeroDivisionError):
        async with (made.empty + user("Go")).fork(2) as kids:
            await kids.gen(str)
            _ = 1 / 0
    assert made.engine.held == {}


async def test_keep_takes_branches_only() -> None:
    made = scripted(by_seed)
    start = made.empty + user("Go")
    async with start.fork(2) as kids:
        out = await kids.gen(str)
        assert kids.keep(iter(out)) == [g.transcript for g in out]
        asked = out[1].transcript + user("Good?")
        async with asked.fork(2) as votes:
            inner = await votes.gen(str)
            assert kids.keep([inner[0]]) == [inner[0].transcript]
        with pytest.raises(InvalidArgument, match="does not continue a branch"):
            kids.keep([start])
    for late in (lambda: kids.keep([]), lambda: kids.gen(str)):
        with pytest.raises(InvalidArgument, match="scope of this fork is over"):
            got = late()
            if not isinstance(got, list):
                await got


async def test_no_branches() -> None:
    made = scripted()
    async with made.empty.fork(0) as kids:
        assert len(kids) == 0 and await kids.gen(str) == [] and kids.keep([]) == []
    assert not made.engine.waves
    with pytest.raises(InvalidArgument, match="fork: n=-1"):
        async with made.empty.fork(-1):
            pass


async def test_one_branch_costs_nothing() -> None:
    made = scripted()
    async with (made.empty + user("Go")).fork() as kids:
        assert len(kids) == 1
    assert not made.engine.waves


async def test_events_name_fork_and_branches() -> None:
    bus = Bus()
    seen = bus.subscribe(lambda: None)
    made = scripted(bus=bus)
    start = (made.empty + user("Go"))._at(Scope("r", "solve"))
    async with start.fork(2) as kids, kids[1].fork(2) as inner:
        await inner.gen(str)
    forked = [e for e in seen.take() if isinstance(e, Forked)]
    assert [(e.run, e.path, e.n, e.shared_tokens) for e in forked] == [
        ("r", "solve", 2, len(start)),
        ("r", "solve[1]", 2, len(start)),
    ]
    assert [r.scope.path for r in made.engine.requests] == ["solve[1][0]", "solve[1][1]"]


async def test_branches_of_a_beam_are_named_through() -> None:
    made = scripted(by_seed)
    beam = [made.empty + user(text) for text in ("a", "b")]
    async with branches([t for t in beam for _ in range(2)], made.session, made.empty._seeds) as kids:
        out = await kids.gen(str, seed=1)
    assert [g.transcript.token_ids[: len(beam[0])] for g in out[:2]] == [beam[0].token_ids] * 2
    assert [r.scope.path for r in made.engine.requests] == ["[0]", "[1]", "[2]", "[3]"]
    assert made.engine.held == {} and tokenizer().size
