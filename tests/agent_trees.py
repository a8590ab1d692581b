"""Random agent trees over an engine: turns, tool results, forks and aborts, the same for any engine."""

import random
from dataclasses import dataclass, field

from engine_harness import submit

from agentree.runtime.engine import Engine
from agentree.runtime.request import Hold, Request, Sampling

END = frozenset({2})


@dataclass(eq=False)
class Agent:
    """One branch of a tree: its transcript so far, and a generator of its own for what it does next."""

    path: str
    ids: tuple[int, ...]
    rng: random.Random
    turns: int
    said: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])


def plant(seed: int, trees: int, *, vocab: int = 512) -> list[Agent]:
    """The roots: most start from one of a few shared system prompts."""
    rng = random.Random(seed)
    heads = [tuple(rng.randrange(4, vocab) for _ in range(rng.randint(10, 40))) for _ in range(4)]
    return [
        Agent(
            path=f"tree{i}",
            ids=(*rng.choice(heads), *(rng.randrange(4, vocab) for _ in range(rng.randint(1, 12)))),
            rng=random.Random(f"{seed}/{i}"),
            turns=rng.randint(1, 4),
        )
        for i in range(trees)
    ]


def grow(agents: list[Agent], engine: Engine, *, wave: int, holds: bool) -> dict[str, list[tuple[int, ...]]]:
    """Run all agents to their ends, `wave` requests at a time; returns what each branch said in each turn."""
    said: dict[str, list[tuple[int, ...]]] = {}
    live = list(agents)
    while live:
        batch, live = live[:wave], live[wave:]
        requests = [request_of(agent, holds=holds) for agent in batch]
        doomed = [Request(prompt=(*a.ids, 7), max_tokens=30) for a in batch if a.rng.random() < 0.2]
        tickets = submit(engine, *requests, *doomed)
        for ticket, _ in tickets[len(requests) :]:
            engine.abort(ticket)
        for agent, (_, waiter) in zip(batch, tickets, strict=False):
            agent.said.append(waiter.wait().output)
            agent.ids += agent.said[-1]
            said[agent.path] = agent.said
            live += continue_from(agent)
    return said


def request_of(agent: Agent, *, holds: bool) -> Request:
    """The agent's next turn: greedy, or sampled with a seed of its own."""
    hot = agent.rng.random() < 0.3
    return Request(
        prompt=agent.ids,
        max_tokens=agent.rng.randint(1, 14),
        end_ids=END,
        sampling=Sampling(0.8, 0.9, seed=agent.rng.randrange(1 << 60)) if hot else Sampling(),
        hold=Hold(agent.path) if holds else None,
    )


def tool_result(rng: random.Random) -> tuple[int, ...]:
    """Tokens that no model generated."""
    return tuple(rng.randrange(4, 512) for _ in range(rng.randint(1, 20)))


def continue_from(agent: Agent) -> list[Agent]:
    """The agent after its turn: it goes on with a tool result, forks, or is over."""
    agent.turns -= 1
    if agent.turns <= 0:
        return []
    if agent.rng.random() < 0.4:
        kids: list[Agent] = []
        for i in range(agent.rng.randint(2, 3)):
            rng = random.Random(agent.rng.random())
            kids.append(Agent(f"{agent.path}/[{i}]", agent.ids + tool_result(rng), rng, agent.turns))
        return kids
    agent.ids += tool_result(agent.rng)
    return [agent]
