"""Seeds: where one is not given, and one for each branch of a fork."""

import itertools
from hashlib import blake2b

from agentree.lm.arguments import whole

LIMIT = 2**63


def derive(seed: int, *parts: int | str) -> int:
    """A seed in [0, 2**63) that is a pure function of a seed and of what it is for."""
    text = "\x1f".join([str(seed), *(f"{type(p).__name__}:{p}" for p in parts)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") % LIMIT


class Seeds:
    """The seeds of one scope: of a runtime, or of one visit of a node. The n-th draw is always the same."""

    def __init__(self, seed: int, path: str = "") -> None:
        self._seed = check(seed)
        self._path = path
        self._count = itertools.count()

    def draw(self) -> int:
        """The next seed. Safe from any thread."""
        return derive(self._seed, self._path, next(self._count))


def check(seed: object) -> int:
    """The seed itself. Raises InvalidArgument if it is none."""
    return whole("seed", seed, "a seed is an integer from 0 to 2**63 - 1", least=0, below=LIMIT)
