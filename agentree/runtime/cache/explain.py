"""Why tokens are not in the cache."""

from dataclasses import dataclass
from itertools import islice
from typing import Literal

from agentree.runtime.cache.ghosts import Ghosts
from agentree.runtime.cache.node import WIDTH, Digests, Space, common
from agentree.runtime.cache.tree import Tree

NEIGHBOURS = 64
"""How many other namespaces are searched, the newest first: a miss must stay cheap with many tenants."""


@dataclass(frozen=True, slots=True)
class Miss:
    """Why the first token past a match is absent."""

    reason: Literal["unseen", "evicted", "revoked", "discarded", "diverged", "namespace"]
    """discarded: the step that would have computed them failed. unseen: nothing was ever known here.
    diverged: the tree goes on from here with other tokens. namespace: another namespace has them, which this
    one may not use."""
    at: int
    """Position of the first absent token: the length of the match."""
    tokens: int
    """How many tokens from there on this reason accounts for."""
    by: str = ""
    """evicted, revoked: whose need for room it was."""
    owner: str = ""
    """revoked: whose lease it was."""
    clock: int = 0
    """evicted, revoked, discarded: when, on the cache's logical clock."""
    ago: int = 0
    """And how many ticks of that clock have passed since."""

    @property
    def words(self) -> str:
        """The reason in a sentence."""
        several = self.tokens != 1
        what = f"{self.tokens} token{'s' * several} from position {self.at}"
        were = "were" if several else "was"
        room = f"to make room for {self.by or 'an unnamed request'}, {self.ago} cache operations ago"
        match self.reason:
            case "evicted":
                return f"{what} {were} evicted {room}"
            case "revoked":
                return f"{what}, leased by {self.owner!r}, {were} revoked {room}"
            case "discarded":
                return f"{what} {were} dropped when a step failed, {self.ago} cache operations ago"
            case "diverged":
                return f"{what} {'are' if several else 'is'} new: what is cached goes on differently there"
            case "namespace":
                return f"{what} {'are' if several else 'is'} cached only in another namespace"
            case "unseen":
                return f"{what} {were} never seen"


def find_miss(tree: Tree, ghosts: Ghosts, space: Space, data: bytes) -> Miss | None:
    """Why `data` is not wholly cached; None if it is. Changes nothing."""
    node, inside, matched = tree.peek(space, data)
    if matched == len(data):
        return None
    at = matched // WIDTH
    digest = node.digest
    if inside < len(node.key):
        assert node.parent is not None
        digest = Digests.extend(node.parent.digest, node.key[:inside], node.start)
    ghost = ghosts.find(space, digest, data[matched : matched + WIDTH])
    if ghost is not None:
        return Miss(
            reason=ghost.reason,
            at=at,
            tokens=common(ghost.key, 0, data, matched) // WIDTH,
            by=ghost.by,
            owner=ghost.owner,
            clock=ghost.clock,
            ago=tree.clock - ghost.clock,
        )
    others = islice((other for other in reversed(tree.roots) if other != space), NEIGHBOURS)
    elsewhere = max((tree.peek(other, data)[2] for other in others), default=0)
    if elsewhere > matched:
        return Miss("namespace", at, (elsewhere - matched) // WIDTH)
    tokens = len(data) // WIDTH - at
    if at and (inside < len(node.key) or node.children):
        return Miss("diverged", at, tokens)
    return Miss("unseen", at, tokens)
