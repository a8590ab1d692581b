"""The game of 24 as a search: fork, let the model propose moves, keep legal ones only, score, keep the best.

agentree run examples/agents/tree_of_thought.py --input "1 2 3 4"
"""

import asyncio
import sys

from agentree import Generation, Regex, Runtime, assistant, system, user

MOVE = Regex(r"[1-9][0-9]{0,2} [-+*/] [1-9][0-9]{0,2}")
BREADTH, WIDTH = 8, 4
SHOTS = (
    user("Numbers: 2 5 8"),
    assistant("8 - 2"),
    user("Numbers: 6 5"),
    assistant("6 * 5"),
    user("Numbers: 3 9 12 2"),
    assistant("12 / 3"),
)
Numbers = tuple[tuple[int, str], ...]
"""Values that are left, each with the expression that made it."""


def play(numbers: Numbers, move: str) -> Numbers | None:
    """The numbers after a move, None if it is not legal."""
    a, op, b = move.split()
    left = list(numbers)
    picked = [next((i for i in left if i[0] == int(n) and left.remove(i) is None), None) for n in (a, b)]
    if picked[0] is None or picked[1] is None:
        return None
    (x, x_text), (y, y_text) = picked[0], picked[1]
    if op == "/" and x % y:
        return None
    value = {"+": x + y, "-": x - y, "*": x * y, "/": x // y}[op]
    return (*left, (value, f"({x_text} {op} {y_text})")) if value > 0 else None


def ask(numbers: Numbers) -> str:
    return "Numbers: " + " ".join(str(value) for value, _ in numbers)


async def main(lm: Runtime, text: str) -> str:
    numbers: Numbers = tuple((int(word), word) for word in text.split())
    start = lm.transcript(system("Make 24. Pick two numbers and an operation."), *SHOTS, user(ask(numbers)))
    beam = [(start, numbers)]
    for _ in numbers[1:]:
        async with lm.fork([transcript for transcript, _ in beam], each=BREADTH) as kids:
            moves = await kids.gen(MOVE, max_tokens=16)
            legal: dict[Numbers, Generation[str]] = {}
            for i, move in enumerate(moves):
                if after := play(beam[i // BREADTH][1], move.value):
                    legal.setdefault(after, move)
            asked = [
                move.transcript + user(f"{ask(left)}. Can they make 24?") for left, move in legal.items()
            ]
            scores = await asyncio.gather(*(question.score(["yes", "no"]) for question in asked))
            ranked = sorted(zip(scores, legal, strict=True), key=lambda pair: pair[0][1] - pair[0][0])[:WIDTH]
            kept = kids.keep([legal[left] for _, left in ranked])
            beam = [(t + user(ask(left)), left) for t, (_, left) in zip(kept, ranked, strict=True)]
    found = [left[0][1] for _, left in beam if left[0][0] == 24]
    return f"{found[0]} = 24" if found else "no way to 24 among the moves that were kept"


if __name__ == "__main__":
    with Runtime() as runtime:
        print(asyncio.run(main(runtime, " ".join(sys.argv[1:]) or "1 2 3 4")))
