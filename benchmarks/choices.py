"""How to decide between options: token by token under the mask, or by the score of each option as a whole.

    python -m benchmarks.choices --n 100

Every prompt of the function-calling leaderboard that has a choice of tools is asked for the tool's name by
three rules: greedy under the mask (what `gen(Choice(...))` does), the highest total log-probability, and the
highest mean per token. All three read the same logits; the leaderboard knows the right tool.
"""

import argparse
import asyncio
import sys
from collections import Counter

from agentree import Choice, Runtime, Transcript, user
from benchmarks.bfcl import Task, tasks

RULES = ("greedy", "total", "mean")


def prompt(task: Task) -> str:
    """The question and what there is to choose from."""
    tools = "\n".join(f"- {t.name}: {t.description}" for t in task.tools)
    return f"Tools:\n{tools}\n\nTask: {task.question}\n\nAnswer with the name of the one tool that fits."


async def choose(task: Task, t: Transcript) -> dict[str, str]:
    """The chosen name by each rule."""
    names = [tool.name for tool in task.tools]
    greedy = (await t.gen(Choice(names), max_tokens=64)).value
    scores = await t.score(names)
    tokens = [len(t._session.tokenizer.encode(name)) for name in names]
    total = max(range(len(names)), key=lambda i: scores[i])
    mean = max(range(len(names)), key=lambda i: scores[i] / tokens[i])
    return {"greedy": greedy, "total": names[total], "mean": names[mean]}


async def measure(n: int) -> None:
    """Ask all and print the table."""
    asked = [t for t in tasks(1000) if len(t.tools) > 1 and len(t.expected) == 1][:n]
    right: Counter[str] = Counter()
    shortest: Counter[str] = Counter()
    differ: Counter[str] = Counter()
    async with Runtime() as lm:
        for number, task in enumerate(asked, 1):
            chosen = await choose(task, lm.transcript(user(prompt(task))))
            short = min((t.name for t in task.tools), key=len)
            for rule in RULES:
                right[rule] += chosen[rule] in task.expected
                shortest[rule] += chosen[rule] == short
                differ[rule] += chosen[rule] != chosen["greedy"]
            print(f"\r{number}/{len(asked)}", end="", file=sys.stderr, flush=True)
    names = sum(min((t.name for t in task.tools), key=len) in task.expected for task in asked)
    options = sum(len(task.tools) for task in asked) / len(asked)
    print(f"\n{len(asked)} prompts, {options:.1f} options each; the shortest name is right in {names}\n")
    print("| rule | right | takes the shortest name | differs from greedy |\n| --- | ---: | ---: | ---: |")
    for rule in RULES:
        print(f"| {rule} | {right[rule]} | {shortest[rule]} | {differ[rule]} |")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=100)
    asyncio.run(measure(parser.parse_args().n))


if __name__ == "__main__":
    main()
