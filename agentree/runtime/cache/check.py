"""All invariants, checked the slow way."""

from collections import Counter
from itertools import pairwise

import numpy as np

from agentree.runtime.cache.errors import CacheError
from agentree.runtime.cache.holds import Holds
from agentree.runtime.cache.node import WIDTH, Digests, Node
from agentree.runtime.cache.slots import TREE, Slots
from agentree.runtime.cache.tree import Tree


def check(slots: Slots, tree: Tree, holds: Holds) -> None:
    """Raise CacheError unless slots, tree, locks, leases, references and the order of eviction agree."""
    slots.check()
    nodes = _nodes(tree)
    for node in nodes:
        _check_node(node)
    _require(len(nodes) == tree.nodes, f"{len(nodes)} nodes, counted as {tree.nodes}")
    owned = np.concatenate([node.slots for node in nodes]) if nodes else np.empty(0, np.int32)
    _require(len(owned) == slots.tree, f"nodes hold {len(owned)} slots, {slots.tree} are the tree's")
    slots.require(owned, TREE)

    _check_paths(nodes, tree, holds)
    _require(tree.locked == sum(len(n) for n in nodes if n.locks), "locked tokens are miscounted")
    _require(holds.leased == sum(len(n) for n in nodes if n.leases), "leased tokens are miscounted")
    idle = sum(len(n) for n in nodes if n.leases and not n.locks)
    _require(tree.idle == idle, "leased tokens without a lock are miscounted")
    _require(holds.leased <= holds.budget, f"{holds.leased} tokens leased, {holds.budget} allowed")
    _require(holds.referenced == sum(len(n) for n in nodes if n.references), "referenced are miscounted")

    entries = list(tree.order)
    _require(all(a[:2] < b[:2] for a, b in pairwise(entries)), "order is not sorted")
    _require(all(entry[2].entry is entry for entry in entries), "an entry of the order is stale")
    leaves = {n.number for n in nodes if not n.children and not n.locks}
    _require({entry[1] for entry in entries} == leaves, "the order does not hold exactly the unlocked leaves")
    for entry in entries:
        _require(entry[0] == tree.rank(entry[2]), f"{entry[2]!r} stands in a wrong place of the order")


def _nodes(tree: Tree) -> list[Node]:
    found: list[Node] = []
    for space, root in tree.roots.items():
        _require(root.space == space and bool(root.children), f"the root of {space!r} should not be there")
        stack = list(root.children.values())
        while stack:
            node = stack.pop()
            found.append(node)
            stack.extend(node.children.values())
    return found


def _check_node(node: Node) -> None:
    parent = node.parent
    _require(parent is not None and node.attached, f"{node!r} is in the tree and detached")
    assert parent is not None
    _require(parent.children[node.key[:WIDTH]] is node, f"{node!r} is filed under another token")
    _require(
        len(node) > 0 and len(node.key) == WIDTH * len(node), f"{node!r} has {len(node.key)} bytes of key"
    )
    _require(node.start == parent.start + len(parent), f"{node!r} does not begin where its parent ends")
    _require(parent.parent is None or node.last_use <= parent.last_use, f"{node!r} was used after its parent")
    _require(parent.parent is None or node.born >= parent.born, f"{node!r} was published before its parent")
    digest = Digests.extend(parent.digest, node.key, node.start)
    _require(
        node.digest == digest and node.space == parent.space, f"{node!r} has another's digest or namespace"
    )


def _check_paths(nodes: list[Node], tree: Tree, holds: Holds) -> None:
    """Counts on paths are sums over receipts."""
    locks = _covered([lock.node for lock in tree.locks])
    leases = _covered([lease.node for lease in holds.leases])
    references = _covered([reference.node for reference in holds.references])
    for node in nodes:
        counts = (node.locks, node.leases, node.references)
        right = (locks[id(node)], leases[id(node)], references[id(node)])
        _require(counts == right, f"{node!r} counts {counts} locks, leases, references; receipts say {right}")
    for hold in (*holds.leases, *holds.references):
        here = (*(hold.node.leased_by or ()), *(hold.node.referred_by or ()))
        _require(hold.state == "held" and hold in here, f"{hold!r} is not filed at its node")
        _require(hold.node.attached, f"{hold!r} holds what is gone")


def _covered(held: list[Node]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for start in held:
        node: Node | None = start
        while node is not None:
            counts[id(node)] += 1
            node = node.parent
    return counts


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise CacheError(f"broken invariant: {otherwise}")
