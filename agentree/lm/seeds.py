"""Seeds: where one is not given, and one for each branch of a fork."""

import itertools
from hashlib import blake2b

from agentree.errors import InvalidArgument

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


def check(seed: int) -> int:
    """The seed itself. Raises InvalidArgument if it is out of range."""
    if not 0 <= seed < LIMIT:
        raise InvalidArgument(f"seed={seed} is out of range: a seed lies in [0, 2**63)")
    return seed
