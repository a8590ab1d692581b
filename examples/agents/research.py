"""A research graph with three branches: the topic is read once, three questions are answered side by side.

agentree run examples/agents/research.py --input "tides"
agentree plan examples/agents/research.py
"""

import sys
from typing import Annotated

from pydantic import BaseModel, Field

from agentree import Ctx, Graph, Message, collect, user

Sentence = Annotated[str, Field(min_length=10, max_length=100)]


class Finding(BaseModel):
    claim: Sentence
    sure: bool


class Report(BaseModel):
    summary: Annotated[str, Field(min_length=20, max_length=400)]
    complete: bool


g = Graph("research", input=str, output=Report)


@g.llm(str, max_tokens=60, system="You are a researcher. Answer in one short sentence.")
def introduce(ctx: Ctx, topic: str) -> Message:
    return user(f"What are {topic}?")


@g.step
async def questions(ctx: Ctx, introduction: str) -> list[str]:
    return ["What causes them?", "Why do they matter?", "What is not known about them?"]


@g.llm(Finding, max_tokens=80)
def answer(ctx: Ctx, question: str) -> Message:  # each on a branch of the introduction
    return user(question)


@g.llm(Report, max_tokens=160)
def write(ctx: Ctx, found: list[Finding]) -> Message:  # goes on from where the branches began
    return user("Sum up in two sentences:\n" + "\n".join(f"- {finding.claim}" for finding in found))


g.edge(g.start, introduce)
g.edge(introduce, questions)
g.edge(g.join(g.map(questions, answer), collect(Finding), keep="fork"), write)
g.edge(write, g.end)
agent = g.compile()

if __name__ == "__main__":
    print(agent.run_sync(" ".join(sys.argv[1:]) or "tides"))
