"""What a running engine looks like at one moment, as plain JSON values. Tells sizes and names, never text."""

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice
from typing import Any

from agentree.runtime.cache import Cache
from agentree.runtime.scheduler import Scheduler
from agentree.runtime.sequence import Sequence
from agentree.runtime.stats import EngineStats

MOST = 100
"""Requests, agents and lines of the tree that a snapshot lists."""


def snapshot(stats: EngineStats, cache: Cache, scheduler: Scheduler) -> dict[str, Any]:
    """State of an engine between two steps; sizes in tokens.

    Returns:
        `stats`: counters and pool, `idle` being what is leased and not locked. `running`, `waiting`: the
        first requests of each. `agents`: who has the most, by owner: `held` by its running requests, which
        nothing can evict, `leased`, and of its leased tokens how many are `evictable` now. `tree`: the most
        recently used branches, a line each.
    """
    return {
        "stats": asdict(stats)
        | {
            "evictable": cache.evictable,
            "idle": cache.idle,
            "locked": cache.locked,
            "nodes": cache.nodes,
        },
        "running": _requests(scheduler.running),
        "waiting": _requests(scheduler.waiting),
        "agents": _agents(cache, scheduler),
        "tree": cache.outline(limit=MOST),
    }


def _requests(sequences: Iterable[Sequence]) -> list[dict[str, Any]]:
    now = time.monotonic()
    return [
        {
            "request": s.ticket.number,
            "run": s.request.scope.run,
            "path": s.request.scope.path,
            "prompt": s.prompt_length,
            "cached": s.cached,
            "generated": s.generated,
            "slots": s.have,
            "private": s.have - s.owned,
            "seconds": round(now - s.started, 3),
        }
        for s in islice(sequences, MOST)
    ]


def _agents(cache: Cache, scheduler: Scheduler) -> list[dict[str, Any]]:
    held: defaultdict[str, int] = defaultdict(int)
    for s in scheduler.running:
        hold = s.request.hold
        held[hold.owner if hold is not None else s.request.scope.name] += s.have
    owners = cache.owners()
    claims = {
        name: (held.get(name, 0), owners[name].leased, owners[name].evictable)
        if name in owners
        else (held[name], 0, 0)
        for name in {**owners, **held}
    }
    largest = sorted(claims.items(), key=lambda claim: (-sum(claim[1][:2]), claim[0]))[:MOST]
    return [
        {"agent": name, "held": mine, "leased": leased, "evictable": evictable}
        for name, (mine, leased, evictable) in largest
    ]
