"""Leases and references: claims on cached tokens that bias the order of eviction and never prevent it."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan
from typing import Literal

from agentree.runtime.cache.errors import CacheError
from agentree.runtime.cache.node import Node
from agentree.runtime.cache.order import Entry, Order
from agentree.runtime.cache.tree import Tree


@dataclass(eq=False, slots=True)
class Lease:
    """An agent's claim on a node and its path, from first use to last use: evicted last, but revocable."""

    owner: str
    next_use: float
    """When the owner will need it, on a clock of the caller's; the farthest is revoked first."""
    node: Node
    state: Literal["held", "ended", "revoked"] = "held"
    entry: Entry["Lease"] | None = None
    """Where it stands in the order of revocation."""

    @property
    def tokens(self) -> int:
        """Length of the leased prefix."""
        return self.node.start + len(self.node)


@dataclass(eq=False, slots=True)
class Reference:
    """A live user of a node and its path, such as the parent of running branches: weaker than a lease."""

    owner: str
    next_use: float
    node: Node
    state: Literal["held", "ended", "lost"] = "held"
    """`lost`: evicted while it was held."""


@dataclass(frozen=True, slots=True)
class Revocation:
    """A lease was taken back. `tokens`: of its prefix, how many no other lease covers."""

    owner: str
    tokens: int
    by: str
    """Whose need for room it was."""
    clock: int
    lease: Lease


class Holds:
    """Bookkeeping of leases and references over one tree."""

    def __init__(self, tree: Tree, *, budget: int, report: Callable[[Revocation], None]) -> None:
        self.leases: set[Lease] = set()
        self.references: set[Reference] = set()
        self.leased = 0
        """Tokens under at least one lease."""
        self.referenced = 0
        """Tokens under at least one reference."""
        self.budget = budget
        self._tree = tree
        self._report = report
        self._farthest: Order[Lease] = Order()
        self._numbers = 0

    # ---------------------------------------------------------------------------- leases

    def lease(self, node: Node, *, owner: str, next_use: float) -> Lease:
        """Claim a node and its path. Revokes the farthest leases, perhaps this one, to keep the budget.

        One that could not fit alone is revoked at once, and costs nobody else anything.
        """
        _usable(node, next_use)
        lease = Lease(owner, next_use, node)
        self.leases.add(lease)
        self._queue(lease)
        node.leased_by = [*(node.leased_by or ()), lease]
        at: Node | None = node
        while at is not None:
            if not at.leases:
                self.leased += len(at.slots)
                self._tree.idle += 0 if at.locks else len(at.slots)
            at.leases += 1
            at.dead, at.revoked = False, None
            at = at.parent
        self._resort(node)
        if lease.tokens > self.budget:
            self.revoke(lease, by=owner)
        while self.leased > self.budget:
            entry = self._farthest.first()
            assert entry is not None
            self.revoke(entry[2], by=owner)
        return lease

    def renew(self, lease: Lease, next_use: float) -> bool:
        """Say anew when it is needed. False if the lease is over; nothing happens then."""
        if isnan(next_use):
            raise ValueError("next_use must be a number, not NaN")
        if lease.state != "held":
            return False
        lease.next_use = next_use
        self._queue(lease)
        self._resort(lease.node)
        return True

    def end(self, lease: Lease) -> bool:
        """Give a lease back. In any other state than held this does nothing and returns False."""
        if lease.state != "held":
            return False
        lease.state = "ended"
        self._remove(lease)
        return True

    def revoke(self, lease: Lease, *, by: str) -> None:
        """Take a held lease back and report it."""
        lease.state = "revoked"
        tokens = self._remove(lease, revoked=lease.owner)
        self._report(Revocation(lease.owner, tokens, by, self._tree.clock, lease))

    # ---------------------------------------------------------------------------- references

    def refer(self, node: Node, *, owner: str, next_use: float) -> Reference:
        """Say that a node and its path have a live user."""
        _usable(node, next_use)
        reference = Reference(owner, next_use, node)
        self.references.add(reference)
        node.referred_by = [*(node.referred_by or ()), reference]
        at: Node | None = node
        while at is not None:
            if not at.references:
                self.referenced += len(at.slots)
            at.references += 1
            at.dead = False
            at = at.parent
        self._resort(node)
        return reference

    def unrefer(self, reference: Reference) -> bool:
        """End a reference. In any other state than held this does nothing and returns False."""
        if reference.state != "held":
            return False
        reference.state = "ended"
        self._forget(reference)
        return True

    # ---------------------------------------------------------------------------- the end of tokens

    def retire(self, node: Node, start: int) -> int:
        """Mark the tokens from position `start` to the end of `node` as used for the last time.

        Stops where others depend on a token: below a node with a hold or with a branch that still lives.
        Returns how many tokens are marked.
        """
        marked = 0
        at = node
        while at.attached and at.parent is not None and at.start + len(at) > start:
            if at.leases or at.references or not all(child.dead for child in at.children.values()):
                break
            if at.start < start:
                self._tree.split(at, start - at.start)
            at.dead = True
            marked += len(at)
            self._resort(at)
            at = at.parent
        return marked

    def drop(self, node: Node, *, by: str) -> None:
        """The leaf is about to be detached: nobody holds it any more."""
        for lease in node.leased_by or ():
            self.revoke(lease, by=by)
        for reference in node.referred_by or ():
            reference.state = "lost"
            self._forget(reference)

    def _remove(self, lease: Lease, *, revoked: str | None = None) -> int:
        node = lease.node
        self.leases.remove(lease)
        if lease.entry is not None:
            self._farthest.remove(lease.entry)
            lease.entry = None
        node.leased_by = [other for other in node.leased_by or () if other is not lease] or None
        bared = 0
        at: Node | None = node
        while at is not None:
            at.leases -= 1
            if not at.leases:
                bared += len(at.slots)
                self._tree.idle -= 0 if at.locks else len(at.slots)
                at.revoked = revoked
            at = at.parent
        self.leased -= bared
        self._resort(node)
        return bared

    def _forget(self, reference: Reference) -> None:
        node = reference.node
        self.references.remove(reference)
        node.referred_by = [other for other in node.referred_by or () if other is not reference] or None
        at: Node | None = node
        while at is not None:
            at.references -= 1
            if not at.references:
                self.referenced -= len(at.slots)
            at = at.parent
        self._resort(node)

    def _queue(self, lease: Lease) -> None:
        if lease.entry is not None:
            self._farthest.remove(lease.entry)
        self._numbers += 1
        lease.entry = ((-lease.next_use,), self._numbers, lease)
        self._farthest.add(lease.entry)

    def _resort(self, node: Node) -> None:
        if node.entry is not None:
            self._tree.place(node)


def _usable(node: Node, next_use: float) -> None:
    if isnan(next_use):
        raise ValueError("next_use must be a number, not NaN")
    if not node.attached:
        raise CacheError(f"{node!r} has been evicted: lease or refer to it while a lock holds it")
