"""The offline optimum: evict what is needed farthest in the future, knowing the whole future (Belady)."""

import heapq
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from agentree.runtime.cache import Cache, Node
from benchmarks.traces import Ids


class Segments:
    """All sequences of a replay as one tree, cut so that every edge is used as a whole or not at all."""

    def __init__(self, sequences: Sequence[tuple[Ids, int]]) -> None:
        """`sequences`: (prompt and output, length of the prompt), in the order of their use."""
        cache = Cache(sum(len(ids) for ids, _ in sequences))
        for ids, prompt in sequences:
            cache.publish(ids, cache.allocate(len(ids)), 0)
            cache.match(ids[:prompt])
        self.tokens = cache.tree
        """Distinct tokens: those that differ in themselves or in what lies before them."""
        self.length: dict[int, int] = {}
        self.prompts: list[list[int]] = []
        """For each sequence, the numbers of the edges of its prompt from the root on."""
        self.paths: list[list[int]] = []
        self.uses: dict[int, list[int]] = {}
        for time, (ids, prompt) in enumerate(sequences):
            whole = cache.match(ids).node
            path = self._path(whole)
            self.paths.append([node.number for node in path])
            self.prompts.append([node.number for node in path if node.start < prompt])
            for node in path:
                self.length[node.number] = len(node)
                self.uses.setdefault(node.number, []).append(time)

    @staticmethod
    def _path(node: Node) -> list[Node]:
        path: list[Node] = []
        at = node
        while at.parent is not None:
            path.append(at)
            at = at.parent
        return path[::-1]


def belady(segments: Segments, pool: int) -> list[int]:
    """For each sequence, how many of its prompt's tokens the best possible eviction still has."""
    have: dict[int, int] = dict.fromkeys(segments.length, 0)
    depth: dict[int, int] = {}
    heap: list[tuple[float, int, int]] = []
    free, hits = pool, list[int]()
    for time, (prompt, path) in enumerate(zip(segments.prompts, segments.paths, strict=True)):
        hits.append(sum(have[edge] for edge in prompt))
        busy = set(path)
        needed = sum(segments.length[edge] - have[edge] for edge in path)
        while free < needed:
            _, _, edge = heapq.heappop(heap)
            if edge in busy or not have[edge]:
                continue
            taken = min(have[edge], needed - free)
            have[edge] -= taken
            free += taken
            if have[edge]:
                heapq.heappush(heap, (-_next(segments.uses[edge], time), -depth[edge], edge))
        free -= needed
        for level, edge in enumerate(path):
            have[edge] = segments.length[edge]
            depth[edge] = level
            heapq.heappush(heap, (-_next(segments.uses[edge], time), -level, edge))
    return hits


def _next(uses: list[int], time: int) -> float:
    at = bisect_right(uses, time)
    return uses[at] if at < len(uses) else float("inf")


def first_uses(segments: Segments) -> list[int]:
    """For each sequence, how many of its prompt's tokens no earlier one had: nothing could save those."""
    seen: set[int] = set()
    fresh: list[int] = []
    for prompt, path in zip(segments.prompts, segments.paths, strict=True):
        fresh.append(sum(segments.length[edge] for edge in prompt if edge not in seen))
        seen |= set(path)
    return fresh


def peak(segments: Segments, live: Sequence[Sequence[int]]) -> int:
    """The most distinct tokens that any of the sets of sequences in `live` holds together."""
    return max(
        (sum(segments.length[e] for e in {e for s in group for e in segments.paths[s]}) for group in live),
        default=0,
    )


def concatenated(prompt: Ids, output: Ids) -> Ids:
    """Prompt and output as one sequence."""
    return np.concatenate([prompt, output])
