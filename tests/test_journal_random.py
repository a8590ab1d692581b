"""Random graphs that are stopped at two writes of their journal: in all they do what they do at once."""

from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from journal_harness import MEMORY, ended, facts, generated, stopping
from test_graph_random import Boom, Built, Tree, script, trees

from agentree.errors import JournalError
from agentree.graph import Limits
from agentree.graph.journal.past import Past, tokens_of
from agentree.testing import ScriptedRuntime


@pytest.mark.parametrize(("backend", "examples"), [("asyncio", 14), ("trio", 6)])
def test_random_graphs_survive(backend: str, examples: int) -> None:
    @settings(
        max_examples=examples,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(tree=trees(), x=st.integers(0, 50), stops=st.tuples(st.integers(0, 60), st.integers(0, 60)))
    def check(tree: Tree, x: int, stops: tuple[int, int]) -> None:
        survives(tree, x, stops, backend)

    check()


@pytest.mark.parametrize("stop", range(0, 30, 5))
def test_every_kind_of_part_survives(stop: int) -> None:
    llm, step = Tree("llm"), Tree("step")
    bad = Tree("step", fails=True)
    inner = Tree("fork", (Tree("seq", (llm, step)), bad, llm), "winner", "collect")
    tree = Tree(
        "seq", (llm, Tree("map", (inner,), "fork"), Tree("loop", (Tree("map", (llm,), "none"),)), llm)
    )
    survives(tree, 27, (stop, 3), "asyncio")


def survives(tree: Tree, x: int, stops: tuple[int, int], backend: str) -> None:
    built = Built()
    tail = built.build(tree, built.step(built.g.start, 0, fn=int))
    built.g.edge(tail, built.g.end)
    program = built.g.compile(limits=Limits(turns=10_000, seconds=600))
    try:
        expected: int | Boom = built.value(tree, x)
    except Boom as boom:
        expected = boom

    async def main(folder: Path) -> None:
        async with ScriptedRuntime(script, kv_tokens=1 << 18) as lm:
            whole, parts = folder / "whole", folder / "parts"
            outcome: object = None
            try:
                assert await program.run(x, lm=lm, journal=whole, run_id="run", seed=1) == expected
            except Exception as e:
                outcome = e
            seen, built.seen = sorted(built.seen), []
            for number, stop in enumerate(stops):
                with stopping(stop):
                    try:
                        if number == 0:
                            await program.run(x, lm=lm, journal=parts, run_id="run", seed=1)
                        else:
                            await program.resume("run", lm=lm, journal=parts)
                    except Exception as e:
                        assert isinstance(e, JournalError) or isinstance(expected, Boom), e
            if outcome is not None:
                with pytest.raises(type(outcome)):
                    await program.resume("run", lm=lm, journal=parts)
                return
            assert await program.resume("run", lm=lm, journal=parts) == expected
            lm.check()
            assert generated(parts) == generated(whole)
            assert ended(parts) == ended(whole)
            recorded = [tokens_of(fact.body) for fact in facts(parts) if fact.kind == "generation"]
            assert Past(facts(parts)).spent("").tokens == sum(recorded)
            assert set(built.seen) == set(seen)
            stats = lm.stats()
            assert stats.leased == stats.private == 0

    with TemporaryDirectory(dir=MEMORY) as folder:
        anyio.run(main, Path(folder), backend=backend)
