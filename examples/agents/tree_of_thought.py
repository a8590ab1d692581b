"""The game of 24 as a search: the model picks among legal moves, no other can be written, and judges each.

agentree run examples/agents/tree_of_thought.py --input "1 2 3 4"
"""

import sys
from enum import Enum
from itertools import permutations

from agentree import assistant, tree_of_thought, user


def left(task: str, moves: list[str]) -> list[int]:
    """The numbers that are left after some moves."""
    text = moves[-1].partition("left: ")[2].rstrip(")") if moves else task
    return [int(word) for word in text.split()]


def legal_moves(task: str, moves: list[str]) -> list[str]:
    """Every move on two of the numbers left; results are whole and above zero."""
    numbers = left(task, moves)
    found: list[str] = []
    for i, j in permutations(range(len(numbers)), 2):
        x, y = numbers[i], numbers[j]
        others = [number for k, number in enumerate(numbers) if k not in (i, j)]
        results = {"+": x + y, "-": x - y, "*": x * y, "/": x // y if x % y == 0 else 0}
        for sign, result in results.items():
            if result > 0 and (sign in "-/" or x >= y):
                rest = " ".join(map(str, sorted([*others, result])))
                found.append(f"{x} {sign} {y} = {result} (left: {rest})")
    return found


class Verdict(Enum):
    SURE = "sure"
    LIKELY = "likely"
    IMPOSSIBLE = "impossible"


SHOTS = (
    *(user("2 3 4"), assistant("3 * 4 = 12 (left: 2 12)")),
    *(user("Next step."), assistant("12 * 2 = 24 (left: 24)")),
)
agent = tree_of_thought(
    thought=str,
    value=Verdict,
    breadth=8,
    width=4,
    depth=3,
    instructions="Make 24. In each step calculate with two of the numbers that are left.",
    judge="Can the numbers that are left still make 24?",
    votes=3,
    examples=SHOTS,
    options=legal_moves,
    solved=lambda task, moves: left(task, moves) == [24],
)

if __name__ == "__main__":
    print(*agent.run_sync(" ".join(sys.argv[1:]) or "1 2 3 4"), sep="\n")
