"""In which order leaves are evicted. A policy is a key function: the smallest key goes first."""

from collections.abc import Callable
from typing import TypeAlias

from agentree.runtime.cache.node import Node
from agentree.runtime.cache.order import Key

Policy: TypeAlias = Callable[[Node], Key]
"""Must depend only on what the cache re-sorts for: `start`, `last_use`, `dead`, and the holds on the node."""


def lru(node: Node) -> Key:
    """Least recently used first."""
    return (node.last_use,)


def plan(node: Node) -> Key:
    """What nobody will use again first, then what nobody refers to, then the farthest next use.

    Among the unreferenced no next use is known and the least recent use stands in for it. Among equal next
    uses the cheapest to compute again goes first: a token's cost grows with its position, because its
    attention reads all positions before it.
    """
    if node.dead:
        return (0, node.last_use)
    if not node.referred_by:
        return (1, node.last_use)
    return (2, -node.next_use, node.start, node.last_use)


POLICIES: dict[str, Policy] = {"lru": lru, "plan": plan}


def rank(node: Node, policy: Policy) -> Key:
    """Leases come after everything else under every policy: farthest next use first, then the cheapest."""
    if node.leased_by:
        return (1, (-node.next_use, node.start, node.last_use))
    return (0, policy(node))
