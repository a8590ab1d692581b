"""The radix tree over token ids: walking, splitting, growing, path locks, and the order of its leaves.

Radix tree with reference counts on paths after RadixAttention (arXiv 2312.07104), page size 1. What is new
here: receipts for locks, a logical clock, an order of eviction that persists.
"""

import numpy as np

from agentree.runtime.cache.errors import CacheError
from agentree.runtime.cache.node import WIDTH, Digests, Node, Space, common
from agentree.runtime.cache.order import Key, Order
from agentree.runtime.cache.policy import Policy, rank
from agentree.runtime.cache.slots import Ints

_NO_SLOTS: Ints = np.empty(0, np.int32)


class Lock:
    """Receipt for a lock on a node and all nodes above it; to be given back exactly once."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node


class Tree:
    """Nodes only: it neither owns slots nor decides when something is evicted."""

    def __init__(self, policy: Policy) -> None:
        self.clock = 0
        """Logical time: one tick for each match, publish and retirement."""
        self.roots: dict[Space, Node] = {}
        self.order: Order[Node] = Order()
        """The unlocked leaves, first to be evicted first."""
        self.locked = 0
        """Tokens under a lock."""
        self.idle = 0
        """Tokens under a lease and no lock."""
        self.nodes = 0
        self.locks: set[Lock] = set()
        self._policy = policy
        self._numbers = 0

    # ---------------------------------------------------------------------------- walking

    def root(self, space: Space) -> Node:
        """The root of a namespace: of the tree if it holds any token there, else a new one outside of it."""
        found = self.roots.get(space)
        if found is None:
            self._numbers += 1
            found = Node(
                number=self._numbers,
                parent=None,
                space=space,
                key=b"",
                slots=_NO_SLOTS,
                start=0,
                now=self.clock,
            )
        return found

    def peek(self, space: Space, data: bytes) -> tuple[Node, int, int]:
        """Where the longest known prefix of `data` ends: (node, bytes into its edge, bytes in all)."""
        node, at, size = self.root(space), 0, len(data)
        while at < size:
            child = node.children.get(data[at : at + WIDTH])
            if child is None:
                break
            node = child
            if data.startswith(child.key, at):
                at += len(child.key)
            else:
                inside = common(child.key, 0, data, at)
                return child, inside, at + inside
        return node, len(node.key), at

    def descend(self, root: Node, data: bytes) -> tuple[Node, int]:
        """Like `peek`, but splits where the prefix ends and refreshes the whole path: (node, bytes)."""
        self.clock = now = self.clock + 1
        node, at, size = root, 0, len(data)
        while at < size:
            child = node.children.get(data[at : at + WIDTH])
            if child is None:
                break
            if data.startswith(child.key, at):
                node = child
                at += len(child.key)
                node.last_use = now
                node.dead = False
            else:
                inside = common(child.key, 0, data, at)
                node = self.split(child, inside // WIDTH)
                node.last_use = now
                node.dead = False
                at += inside
                break
        if node.entry is not None:
            self.place(node)
        return node, at

    # ---------------------------------------------------------------------------- changing

    def attach(self, parent: Node, key: bytes, slots: Ints) -> Node:
        """A new leaf below `parent`, born now."""
        start = parent.start + len(parent)
        self._numbers += 1
        node = Node(
            number=self._numbers, parent=parent, space=parent.space, key=key, slots=slots, start=start,
            now=self.clock,
        )  # fmt: skip
        node.digest = Digests.extend(parent.digest, key, start)
        if parent.parent is None:
            self.roots[parent.space] = parent
        parent.children[key[:WIDTH]] = node
        self.nodes += 1
        self.place(parent)
        self.place(node)
        return node

    def split(self, node: Node, at: int) -> Node:
        """Cut an edge before its token `at`; returns the new upper part.

        The lower part stays the same object, so receipts and holds go on covering exactly their path.
        """
        parent = node.parent
        assert parent is not None and 0 < at < len(node)
        self._numbers += 1
        upper = Node(
            number=self._numbers, parent=parent, space=node.space, key=node.key[: at * WIDTH],
            slots=node.slots[:at].copy(), start=node.start, now=node.born,
        )  # fmt: skip
        upper.last_use, upper.dead, upper.revoked = node.last_use, node.dead, node.revoked
        upper.locks, upper.leases, upper.references = node.locks, node.leases, node.references
        upper.digest = Digests.extend(parent.digest, upper.key, upper.start)
        parent.children[upper.key[:WIDTH]] = upper
        node.parent = upper
        node.key = node.key[at * WIDTH :]
        node.slots = node.slots[at:].copy()
        node.start += at
        upper.children[node.key[:WIDTH]] = node
        self.nodes += 1
        if node.entry is not None:
            self.place(node)
        return upper

    def detach(self, node: Node) -> Node:
        """Take an unlocked leaf out; returns its parent, which may have become one."""
        parent = node.parent
        assert parent is not None and not node.children and not node.locks
        if node.entry is not None:
            self.order.remove(node.entry)
            node.entry = None
        del parent.children[node.key[:WIDTH]]
        node.attached = False
        self.nodes -= 1
        if parent.parent is None:
            if not parent.children:
                del self.roots[parent.space]
        else:
            self.place(parent)
        return parent

    def place(self, node: Node) -> None:
        """Put a node where it now belongs in the order of eviction, or out of it."""
        if node.entry is not None:
            self.order.remove(node.entry)
            node.entry = None
        if not node.children and not node.locks and node.parent is not None:
            node.entry = (self.rank(node), node.number, node)
            self.order.add(node.entry)

    def rank(self, node: Node) -> Key:
        """Where a leaf belongs in the order of eviction."""
        return rank(node, self._policy)

    # ---------------------------------------------------------------------------- locks

    def lock(self, node: Node) -> Lock:
        """Lock a node and its path. Raises CacheError if it has been evicted."""
        if not node.attached:
            raise CacheError(f"{node!r} has been evicted: lock what a match returns before allocating")
        if node.entry is not None:
            self.order.remove(node.entry)
            node.entry = None
        lock = Lock(node)
        self.locks.add(lock)
        at: Node | None = node
        while at is not None:
            if not at.locks:
                self.locked += len(at.slots)
                self.idle -= len(at.slots) if at.leases else 0
            at.locks += 1
            at = at.parent
        return lock

    def unlock(self, lock: Lock) -> None:
        """Give a lock back. Raises CacheError the second time."""
        try:
            self.locks.remove(lock)
        except KeyError:
            raise CacheError(f"the lock on {lock.node!r} is not held: it was given back before") from None
        at: Node | None = lock.node
        while at is not None:
            at.locks -= 1
            if not at.locks:
                self.locked -= len(at.slots)
                self.idle += len(at.slots) if at.leases else 0
            at = at.parent
        self.place(lock.node)
