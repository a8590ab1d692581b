"""Recorded agent work, run again as programs: every prompt token that is computed is accounted for."""

from itertools import islice

import pytest

from benchmarks.agents import Prefixes, replay
from benchmarks.programs import DATASETS
from benchmarks.traces import folder

pytestmark = pytest.mark.anyio
SUBSET = {"tau-bench airline": 6, "ReAct HotpotQA": 12, "ToolBench searches": 3, "game of 24": 3}


def test_prefixes_count_a_token_again_where_its_past_differs() -> None:
    seen = Prefixes()
    assert [seen.add(ids) for ids in ((1, 2, 3), (1, 2, 3), (1, 2, 4), (2, 3), ())] == [3, 0, 1, 2, 0]


@pytest.mark.parametrize("name", DATASETS)
async def test_computed_is_unique_and_full_hits(name: str) -> None:
    try:
        root = folder()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    account = await replay(islice(DATASETS[name](root), SUBSET[name]), model=None)
    assert account.calls > 20
    assert account.computed == account.unique + account.full_hits
    assert account.full_hits < account.calls
    assert account.computed < 0.25 * account.prompt
