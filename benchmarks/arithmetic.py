"""How often the embedded model answers `a op b` through the calculator.

    python -m benchmarks.arithmetic --seed 1 --questions 20

Draws the questions from the seed, asks the `react` template with the calculator, and counts answers that are
right and came through the tool. Every call is also validated against the tool's schema.
"""

import argparse
import asyncio
import json
import random
from dataclasses import dataclass, field

from pydantic import BaseModel, TypeAdapter, ValidationError

from agentree import AgentreeError, Runtime, react
from agentree.events import ToolEnded, ToolStarted
from agentree.tools import calculator


class Answer(BaseModel):
    """The final answer."""

    answer: str


@dataclass
class Outcome:
    """One question, and what came of it."""

    question: str
    expected: float
    answer: str = ""
    error: str = ""
    calls: list[str] = field(default_factory=list[str])
    results: list[str] = field(default_factory=list[str])
    invalid: int = 0

    @property
    def right(self) -> bool:
        """Whether the answer is right and the calculator had given it."""
        return close(self.answer, self.expected) and any(close(r, self.expected) for r in self.results)


def close(text: str, expected: float) -> bool:
    """Whether a text is the number, to six significant digits."""
    try:
        value = float(text.strip().rstrip(".").replace(",", ""))
    except ValueError:
        return False
    return abs(value - expected) <= 1e-6 * max(1.0, abs(expected))


def draw(seed: int, n: int) -> list[Outcome]:
    """Questions `What is a op b?` with numbers up to 999 and the four operations."""
    rng = random.Random(seed)
    outcomes: list[Outcome] = []
    for _ in range(n):
        a, b, op = rng.randint(1, 999), rng.randint(1, 999), rng.choice("+-*/")
        expected = {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[op]
        outcomes.append(Outcome(f"What is {a} {op} {b}?", expected))
    return outcomes


async def ask(outcome: Outcome, lm: Runtime) -> None:
    """Put one question to the agent."""
    arguments = TypeAdapter(dict[str, str])
    agent = react(tools=[calculator], output=Answer)
    try:
        async with agent.stream(outcome.question, lm=lm) as run:
            async for event in run:
                if isinstance(event, ToolStarted):
                    outcome.calls.append(event.arguments)
                    try:
                        args = arguments.validate_json(event.arguments)
                        outcome.invalid += event.tool != "calculator" or set(args) != {"expression"}
                    except ValidationError:
                        outcome.invalid += 1
                elif isinstance(event, ToolEnded):
                    outcome.results.append(event.content)
        outcome.answer = run.output.answer
    except AgentreeError as error:
        outcome.error = str(error)


async def measure(seed: int, n: int) -> list[Outcome]:
    """Ask all questions, one after the other."""
    outcomes = draw(seed, n)
    async with Runtime() as lm:
        for outcome in outcomes:
            await ask(outcome, lm)
    return outcomes


def main() -> None:
    """Print a line for each question and the totals."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--questions", type=int, default=20)
    options = parser.parse_args()
    outcomes = asyncio.run(measure(options.seed, options.questions))
    for o in outcomes:
        verdict = "right" if o.right else "WRONG"
        print(f"{verdict}  {o.question:24} {o.calls} -> {o.results} -> {o.answer!r} {o.error}")
    right = sum(o.right for o in outcomes)
    calls = sum(len(o.calls) for o in outcomes)
    invalid = sum(o.invalid for o in outcomes)
    print(
        json.dumps(
            {"seed": options.seed, "right": right, "of": len(outcomes), "calls": calls, "invalid": invalid}
        )
    )


if __name__ == "__main__":
    main()
