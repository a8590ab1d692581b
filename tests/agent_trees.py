"""Random agent trees over an engine: free and forced turns, tool results, forks and aborts."""

import random
from dataclasses import dataclass, field

from engine_harness import submit

from agentree.runtime.constraint import JSONSchema, Regex, TokenConstraint, compile_constraint, tool_calls
from agentree.runtime.engine import Engine
from agentree.runtime.request import Hold, Request, Sampling

END = frozenset({2})
CALCULATOR = {
    "type": "object",
    "properties": {"expression": {"type": "string", "maxLength": 8}},
    "required": ["expression"],
    "additionalProperties": False,
}
REPORT = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 6},
        "pages": {"type": "integer", "minimum": 0, "maximum": 999},
        "tags": {"type": "array", "items": {"enum": ["new", "old"]}, "maxItems": 2},
    },
    "required": ["title", "pages", "tags"],
    "additionalProperties": False,
}


@dataclass(eq=False)
class Agent:
    """One branch of a tree: its transcript so far, and a generator of its own for what it does next."""

    path: str
    ids: tuple[int, ...]
    rng: random.Random
    turns: int
    said: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    unsure: bool = False
    """A greedy pick on the way here had two best logits that rounding may order either way."""


@dataclass(eq=False)
class Said:
    """What each branch said in each turn; and which of them may differ between two runs."""

    turns: dict[str, list[tuple[int, ...]]] = field(default_factory=dict[str, list[tuple[int, ...]]])
    unsure: set[str] = field(default_factory=set[str])


def constraints(engine: Engine) -> list[TokenConstraint]:
    """What forced turns are forced to: a call of a tool, a value, a pattern, a constant."""
    vocabulary = engine._model.tokenizer.vocabulary()
    compiled = (
        tool_calls([("calculator", CALCULATOR)], None, False),
        compile_constraint(JSONSchema(REPORT)),
        compile_constraint(Regex(r"The answer is (-?[0-9]{1,4}|unknown)\.")),
        compile_constraint(Regex("Nothing to do.")),
    )
    return [one.bind(vocabulary) for one in compiled]


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


def grow(agents: list[Agent], engine: Engine, *, wave: int, holds: bool) -> Said:
    """Run all agents to their ends, `wave` requests at a time."""
    said = Said()
    forced_to = constraints(engine)
    live = list(agents)
    while live:
        batch, live = live[:wave], live[wave:]
        requests = [request_of(agent, forced_to, holds=holds) for agent in batch]
        doomed = [Request(prompt=(*a.ids, 7), max_tokens=30) for a in batch if a.rng.random() < 0.2]
        tickets = submit(engine, *requests, *doomed)
        for ticket, _ in tickets[len(requests) :]:
            engine.abort(ticket)
        for agent, (_, waiter) in zip(batch, tickets, strict=False):
            result = waiter.wait()
            agent.said.append(result.output)
            agent.ids += result.output
            agent.unsure = agent.unsure or result.near_ties > 0
            said.turns[agent.path] = agent.said
            if agent.unsure:
                said.unsure.add(agent.path)
            live += continue_from(agent)
    return said


def request_of(agent: Agent, forced_to: list[TokenConstraint], *, holds: bool) -> Request:
    """The agent's next turn: greedy, or sampled with a seed of its own; free, or forced."""
    hot = agent.rng.random() < 0.3
    constraint = agent.rng.choice(forced_to) if agent.rng.random() < 0.4 else None
    spare = agent.rng.randint(1, 14)
    return Request(
        prompt=agent.ids,
        max_tokens=spare + (constraint.min_tokens if constraint is not None else 0),
        end_ids=END,
        constraint=constraint,
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
            ids = agent.ids + tool_result(rng)
            kids.append(Agent(f"{agent.path}/[{i}]", ids, rng, agent.turns, unsure=agent.unsure))
        return kids
    agent.ids += tool_result(agent.rng)
    return [agent]
