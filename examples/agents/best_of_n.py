"""Self-consistency: nine answers are sampled on branches of one transcript, and the most frequent one wins.

agentree run examples/agents/best_of_n.py --input "What is the capital of Norway?"
agentree plan examples/agents/best_of_n.py
"""

import sys
from typing import Annotated

from pydantic import BaseModel, Field

from agentree import best_of_n


class Answer(BaseModel):
    """A pattern that leaves nothing but the name open makes answers comparable."""

    sentence: Annotated[str, Field(pattern=r"^The capital of [A-Z][a-z]+ is [A-Z][a-z]{2,12}\.$")]


agent = best_of_n(output=Answer, n=9, instructions="Answer in one sentence.")

if __name__ == "__main__":
    print(agent.run_sync(" ".join(sys.argv[1:]) or "What is the capital of Norway?").sentence)
