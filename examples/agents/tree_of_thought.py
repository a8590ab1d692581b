"""The game of 24 as a search: fork, let the model pick among legal moves, score what is left, keep the best.

agentree run examples/agents/tree_of_thought.py --input "1 2 3 4"
"""

import asyncio
import sys
from itertools import permutations

from agentree import Choice, Runtime, assistant, system, user

BREADTH, WIDTH = 8, 4
RULES = system("Make 24. In each turn pick two of the numbers and calculate.")
SHOT = (user("Numbers: 2 5 8"), assistant("8 - 2"), user("Numbers: 5 6"), assistant("5 * 6"))
Numbers = tuple[tuple[int, str], ...]  # the values that are left, each with the expression that made it


def legal_moves(numbers: Numbers) -> dict[str, Numbers]:
    """The numbers after each legal move: results are whole and above zero."""
    moves: dict[str, Numbers] = {}
    for i, j in permutations(range(len(numbers)), 2):
        (x, left), (y, right) = numbers[i], numbers[j]
        others = tuple(number for k, number in enumerate(numbers) if k not in (i, j))
        results = {"+": x + y, "-": x - y, "*": x * y, "/": x // y if x % y == 0 else 0}
        for sign, result in results.items():
            if result > 0:
                moves[f"{x} {sign} {y}"] = (*others, (result, f"({left} {sign} {right})"))
    return moves


def shown(numbers: Numbers) -> str:
    return "Numbers: " + " ".join(str(value) for value, _ in numbers)


async def main(lm: Runtime, text: str) -> str:
    numbers: Numbers = tuple((int(word), word) for word in (text or "1 2 3 4").split())
    beam = [(lm.transcript(RULES, *SHOT, user(shown(numbers))), numbers)]
    for _ in numbers[1:]:
        after = [legal_moves(left) for _, left in beam for _ in range(BREADTH)]
        async with lm.fork([transcript for transcript, _ in beam], each=BREADTH) as kids:
            picks = (
                kid.gen(Choice(list(moves)), temperature=1.0) for kid, moves in zip(kids, after, strict=True)
            )
            thoughts = await asyncio.gather(*picks)
            unique = {moves[thought.value]: thought for moves, thought in zip(after, thoughts, strict=True)}
            asked = [t.transcript + user(f"{shown(left)}. Can they make 24?") for left, t in unique.items()]
            scores = await asyncio.gather(*(question.score(["yes", "no"]) for question in asked))
            ranked = sorted(zip(scores, unique, strict=True), key=lambda pair: pair[0][1] - pair[0][0])
            best = [left for _, left in ranked[:WIDTH]]
            kept = kids.keep([unique[left] for left in best])
            beam = [(t + user(shown(left)), left) for t, left in zip(kept, best, strict=True)]
        if solved := [left[0][1] for left in unique if len(left) == 1 and left[0][0] == 24]:
            return f"{solved[0]} = 24"
    return f"24 is not among what was kept: {', '.join(f'{t} = {v}' for _, ((v, t),) in beam)}"


if __name__ == "__main__":
    with Runtime() as runtime:
        print(asyncio.run(main(runtime, " ".join(sys.argv[1:]))))
