"""`agentree demo`: an agent with a calculator answers questions on the embedded model, and is checked."""

import argparse
from dataclasses import dataclass

from agentree.cli.report import FAILED, put, say
from agentree.cli.session import run_over
from agentree.events import ToolEnded
from agentree.graph import Program, react
from agentree.lm import Runtime, Usage
from agentree.tools import calculator
from agentree.trace.text import percent

QUESTIONS = (("What is 17*23?", "391"), ("What is 812-97?", "715"))
"""What is asked, and what the calculator must have said."""


@dataclass(frozen=True)
class Reply:
    """The answer to a question, the calculator's results on the way to it, and what it took."""

    question: str
    expected: str
    answer: str
    calculated: tuple[str, ...]
    usage: Usage

    @property
    def right(self) -> bool:
        """Whether the answer is right and came through the calculator."""
        return self.expected in self.calculated and self.expected in self.answer.replace(",", "")


def build_agent() -> Program[None, str, str]:
    """A ReAct agent whose only tool is the calculator."""
    return react(tools=[calculator], output=str)


async def ask(agent: Program[None, str, str], question: str, expected: str, lm: Runtime) -> Reply:
    """Run the agent on a question and note what the calculator said."""
    async with agent.stream(question, lm=lm) as run:
        ended = [event async for event in run if isinstance(event, ToolEnded) and not event.error]
    calculated = tuple(event.content for event in ended if event.tool == calculator.name)
    return Reply(question, expected, run.output, calculated, run.usage)


async def ask_all(lm: Runtime) -> list[Reply]:
    """Ask the questions one after the other: the second finds the first one's prefix in the cache."""
    agent = build_agent()
    return [await ask(agent, question, expected, lm) for question, expected in QUESTIONS]


def demo_command(arguments: argparse.Namespace) -> int:
    """Ask, print the answers and what was reused and forced; done only if all came through the calculator."""
    outcome = run_over(arguments.model, ask_all, trace=arguments.trace, quiet=arguments.quiet)
    replies = outcome.value
    for reply in replies:
        via = "through the calculator" if reply.right else f"wrong: it is {reply.expected}"
        put(f"{reply.question}  {reply.answer}  ({via})")
    cached = sum(reply.usage.cached_tokens or 0 for reply in replies)
    prompt = sum(reply.usage.prompt_tokens for reply in replies)
    forced = sum(reply.usage.forced_tokens or 0 for reply in replies)
    output = sum(reply.usage.output_tokens for reply in replies)
    put(f"hit rate {percent(cached, prompt)}, {forced} of {output} output tokens forced")
    wrong = [reply.question for reply in replies if not reply.right]
    if wrong:
        say(f"error: not answered through the calculator: {', '.join(wrong)}")
        return FAILED
    return outcome.code
