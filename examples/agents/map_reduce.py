"""Reviews are read side by side, each on a branch of its own, and what was found becomes one report.

agentree run examples/agents/map_reduce.py --input '["Great pasta, fast service.", "Cold soup, rude waiter."]'
agentree plan examples/agents/map_reduce.py
"""

import sys
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from agentree import map_reduce

REVIEWS = [
    "The pasta was wonderful and came within minutes.",
    "Cold soup, a rude waiter, and the bill was wrong.",
    "A quiet place with honest food. We will be back.",
    "Forty minutes for a salad! The dessert was good though.",
]


class Finding(BaseModel):
    about: Literal["food", "service", "price", "place"]
    rating: Annotated[int, Field(ge=1, le=5)]


class Report(BaseModel):
    best: Literal["food", "service", "price", "place"]
    worst: Literal["food", "service", "price", "place"]
    summary: Annotated[str, Field(min_length=20, max_length=120)]


agent = map_reduce(
    item=Finding,
    output=Report,
    instructions="You read reviews of a restaurant. Say what a review is about, and rate it from 1 to 5.",
    parallel=16,
)

if __name__ == "__main__":
    print(agent.run_sync(sys.argv[1:] or REVIEWS))
