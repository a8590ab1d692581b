"""The cache as the engine sees it: slots, the radix tree that shares them, and who may be evicted when."""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from agentree.runtime.cache.check import check
from agentree.runtime.cache.errors import CacheError, OutOfSlots
from agentree.runtime.cache.explain import Miss, find_miss
from agentree.runtime.cache.ghosts import Ghost, Ghosts
from agentree.runtime.cache.holds import Holds, Lease, Reference, Revocation
from agentree.runtime.cache.node import WIDTH, Node, typed
from agentree.runtime.cache.policy import POLICIES, Policy
from agentree.runtime.cache.results import Discarded, Eviction, Held, Match, Published, Report
from agentree.runtime.cache.show import outline, owners
from agentree.runtime.cache.slots import FREE, PRIVATE, TREE, Ints, Slots
from agentree.runtime.cache.tree import Lock, Tree

SHOWN = 24
"""Characters of a prompt that the words about a miss show, and how many tokens are spelled for them."""
SPARE = 512
"""One in so many slots is freed in advance where one has to be: who decodes asks for one at a time."""
REPORTS = 10_000
"""Reports kept for a caller that does not take them."""


class Cache:
    """KV-cache bookkeeping over `slots` slots, one token each. Not thread-safe: one thread owns it.

    A request's row is [slots of the tree | private slots]; what it uses of the tree it must lock. Ids, rows
    and slots are int32 arrays of one dimension. `policy` orders evictions. At most `lease_budget` tokens are
    leased at a time (None: no limit but the pool). Misuse raises CacheError.
    """

    def __init__(
        self, slots: int, *, policy: Literal["lru", "plan"] | Policy = "plan", lease_budget: int | None = None
    ) -> None:
        if isinstance(policy, str):
            if policy not in POLICIES:
                raise ValueError(f"no eviction policy {policy!r}: choose one of {sorted(POLICIES)}")
            policy = POLICIES[policy]
        self._slots = Slots(slots)
        self._tree = Tree(policy)
        self._reports: deque[Report] = deque(maxlen=REPORTS)
        budget = slots if lease_budget is None else lease_budget
        self._holds = Holds(self._tree, budget=budget, report=self._revoked)
        self._ghosts = Ghosts(records=4096, tokens=4 * slots)
        self.evicted_tokens = 0
        """Tokens evicted so far."""
        self.revoked_leases = 0
        """Leases revoked so far."""

    # ---------------------------------------------------------------------------- counts, in tokens

    @property
    def size(self) -> int:
        """Slots of the pool."""
        return self._slots.size

    @property
    def free(self) -> int:
        """Slots that nobody owns."""
        return self._slots.free

    @property
    def private(self) -> int:
        """Slots owned by requests."""
        return self._slots.private

    @property
    def tree(self) -> int:
        """Slots owned by the tree."""
        return self._slots.tree

    @property
    def locked(self) -> int:
        """Tokens of the tree under a lock."""
        return self._tree.locked

    @property
    def evictable(self) -> int:
        """Tokens of the tree that may be evicted: all that is not locked, leased tokens included."""
        return self._slots.tree - self._tree.locked

    @property
    def leased(self) -> int:
        """Tokens under at least one lease."""
        return self._holds.leased

    @property
    def idle(self) -> int:
        """Tokens under a lease that no lock protects: what evicting them costs is known."""
        return self._tree.idle

    @property
    def referenced(self) -> int:
        """Tokens under at least one reference."""
        return self._holds.referenced

    @property
    def nodes(self) -> int:
        """Nodes of the tree, roots not counted."""
        return self._tree.nodes

    @property
    def clock(self) -> int:
        """Logical time."""
        return self._tree.clock

    # ---------------------------------------------------------------------------- private slots

    def allocate(self, n: int, *, by: str = "") -> Ints:
        """`n` private slots, evicting on behalf of `by` if need be. Raises OutOfSlots and changes nothing."""
        if n < 0:
            raise ValueError(f"cannot allocate {n!r} slots")
        missing = n - self.free
        if missing > 0:
            if missing > self.evictable:
                raise OutOfSlots(needed=n, free=self.free, evictable=self.evictable)
            unclaimed = self.evictable - self.idle
            self.evict(max(missing, min(missing + self.size // SPARE, unclaimed)), by=by)
        return self._slots.take(n)

    def release(self, slots: npt.ArrayLike) -> None:
        """Free private slots."""
        given = _ints(slots)
        self._slots.require(given, PRIVATE)
        self._slots.move(given, PRIVATE, FREE)

    # ---------------------------------------------------------------------------- the tree

    def match(self, ids: npt.ArrayLike, namespace: Hashable = ()) -> Match:
        """The longest cached prefix of `ids`, refreshed as a whole; an edge is split where it ends."""
        root = self._tree.root(typed(namespace))
        node, size = self._tree.descend(root, _ints(ids).tobytes())
        return Match(node, size // WIDTH, _path_slots(node))

    def following(self, ids: npt.ArrayLike, namespace: Hashable, n: int) -> Ints:
        """Up to `n` tokens that the tree has after exactly `ids`, each time of the branch that was used
        last. Refreshes nothing.
        """
        data = _ints(ids).tobytes()
        node, inside, size = self._tree.peek(typed(namespace), data)
        if size < len(data):
            return np.empty(0, np.int32)
        rest = node.key[inside:]
        while node.children and len(rest) < n * WIDTH:
            node = max(node.children.values(), key=lambda child: child.last_use)
            rest += node.key
        return np.frombuffer(rest[: n * WIDTH], np.int32)

    def publish(
        self, ids: npt.ArrayLike, row: npt.ArrayLike, owned: int, namespace: Hashable = ()
    ) -> Published:
        """Put all of `ids` into the tree. `row[:owned]` is the tree's, which the caller has locked; the rest
        is private and passes to the tree, or is freed where the tree has the token already.

        Go on with the returned slots: they are the row. Raises CacheError where `row[:owned]` is not what
        the tree has or the rest is not private, and moves nothing then.
        """
        tokens, row = _ints(ids), _ints(row)
        if len(tokens) != len(row) or not 0 <= owned <= len(row):
            raise ValueError(f"{len(tokens)} ids, {len(row)} slots and {owned} owned do not fit together")
        data = tokens.tobytes()
        root = self._tree.root(typed(namespace))
        node, size = self._tree.descend(root, data)
        known = size // WIDTH
        slots = _path_slots(node)
        if known < owned or not np.array_equal(slots[:owned], row[:owned]):
            raise CacheError(
                f"row[:{owned}] is not what the tree has for these ids: lock what you match, and go on "
                f"with the slots that publish returns"
            )
        self._slots.require(row[owned:], PRIVATE)
        self._slots.move(row[owned:known], PRIVATE, FREE)
        if known < len(row):
            fresh = row[known:].copy()
            self._slots.move(fresh, PRIVATE, TREE)
            self._ghosts.revive(node.space, node.digest, data[size:], known)
            node = self._tree.attach(node, data[size:], fresh)
            slots = np.concatenate([slots, fresh]) if known else fresh.copy()
        return Published(node, slots, len(row) - known, known - owned)

    def path(self, node: Node) -> Ints:
        """The slots of all tokens up to the end of a node."""
        return _path_slots(node)

    def lock(self, node: Node) -> Lock:
        """Keep a node and its path from eviction until the receipt is given back. For requests in flight."""
        return self._tree.lock(node)

    def unlock(self, lock: Lock) -> None:
        """Give a lock back, exactly once."""
        self._tree.unlock(lock)

    # ---------------------------------------------------------------------------- leaving the tree

    def evict(self, n: int, *, by: str = "") -> int:
        """Free up to `n` tokens of the tree in the order of the policy; returns how many.

        Works from the ends of leaves and takes no more than asked for. A leased leaf costs its leases, which
        comes last. Visits only the nodes that it shortens and their parents.
        """
        tree, freed, last_use = self._tree, 0, 0
        gone: list[Ints] = []
        while freed < n:
            entry = tree.order.first()
            if entry is None:
                break
            node = entry[2]
            if node.leased_by or node.referred_by:
                self._holds.drop(node, by=by)
            if len(node) > n - freed:
                tree.split(node, len(node) - (n - freed))
            self._bury(node, "evicted" if node.revoked is None else "revoked", by)
            gone.append(node.slots)
            last_use = max(last_use, node.last_use)
            freed += len(node)
        if gone:
            self._slots.move(np.concatenate(gone), TREE, FREE)
            self.evicted_tokens += freed
            self._reports.append(Eviction(freed, by, tree.clock, tree.clock - last_use))
        return freed

    def mark(self) -> int:
        """A point in time for `discard_since`."""
        return self._tree.clock

    def discard_since(self, mark: int) -> Discarded:
        """Take out every token published after `mark`: its K and V were never computed.

        Their locks must have been given back: raises CacheError otherwise, and changes nothing. Leases on
        them end as revoked.
        """
        fresh: list[Node] = []
        stack = list(self._tree.roots.values())
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            if node.born > mark and node.parent is not None:
                fresh.append(node)
        for node in fresh:
            if node.locks:
                raise CacheError(f"{node!r} is still locked: unlock it before it is discarded")
        revoked: list[Lease] = []
        for node in reversed(fresh):
            revoked += node.leased_by or ()
            self._holds.drop(node, by="")
            self._bury(node, "discarded", "")
            self._slots.move(node.slots, TREE, FREE)
        return Discarded(sum(map(len, fresh)), tuple(revoked))

    # ---------------------------------------------------------------------------- leases and references

    def lease(self, node: Node, *, owner: str, next_use: float) -> Lease:
        """Ask to evict a node and its path last, because `owner` needs it at `next_use`, on any clock that
        all leases share. Where the budget does not suffice, the leases with the farthest next use are
        revoked at once: look at `state`. Take it while a lock holds the node.
        """
        return self._holds.lease(node, owner=owner, next_use=next_use)

    def renew(self, lease: Lease, *, next_use: float) -> bool:
        """Say anew when a lease is needed; False if it is over."""
        return self._holds.renew(lease, next_use)

    def end(self, lease: Lease, *, last_use: bool = False, start: int = 0) -> bool:
        """End a lease; harmless in any state. With `last_use` its tokens from position `start` on go first
        under `plan`, as far as nobody else holds or shares them. False if the lease was over already.
        """
        held = self._holds.end(lease)
        if last_use:
            self._holds.retire(lease.node, start)
        return held

    def refer(self, node: Node, *, owner: str, next_use: float = float("inf")) -> Reference:
        """Ask to evict a node and its path after what nobody refers to. Weaker than a lease."""
        return self._holds.refer(node, owner=owner, next_use=next_use)

    def unrefer(self, reference: Reference) -> bool:
        """End a reference; harmless in any state."""
        return self._holds.unrefer(reference)

    def retire(self, node: Node, *, start: int = 0) -> int:
        """Nobody will use the tokens from `start` to the end of `node` again: they go first under `plan`.

        Leaves alone what is held or shared with a living branch, and forgives: a later match revives them.
        Returns how many tokens are marked.
        """
        return self._holds.retire(node, start)

    # ---------------------------------------------------------------------------- telling

    def take_reports(self) -> list[Report]:
        """What was evicted and which leases were revoked since the last call, oldest first."""
        reports = list(self._reports)
        self._reports.clear()
        return reports

    def find_miss(self, ids: npt.ArrayLike, namespace: Hashable = ()) -> Miss | None:
        """Why the tokens past the longest cached prefix are absent; None if none is. Changes nothing."""
        return find_miss(self._tree, self._ghosts, typed(namespace), _ints(ids).tobytes())

    def explain_miss(
        self,
        ids: npt.ArrayLike,
        namespace: Hashable = (),
        text: Callable[[Sequence[int]], str] | None = None,
    ) -> str:
        """`find_miss` in words; "" where nothing is absent but new text at the end of a known prefix.

        With `text`, which spells tokens, the words show where a prompt parts from what is cached.
        """
        miss = self.find_miss(ids, namespace)
        if miss is None or (miss.reason == "unseen" and miss.at):
            return ""
        if text is None or miss.reason != "diverged":
            return miss.words
        before = text(_ints(ids)[max(0, miss.at - SHOWN) : miss.at].tolist())
        return miss.words + (f", after {before[-SHOWN:]!r}" if before else "")

    def owners(self) -> dict[str, Held]:
        """What each owner of leases and references has claimed."""
        return owners(self._holds)

    def outline(self, *, limit: int = 100) -> list[str]:
        """The tree for people: one line a node, most recently used branches first, at most `limit` lines."""
        return outline(self._tree, limit)

    def check(self) -> None:
        """Walk everything and raise CacheError on any broken invariant. Slow: linear in the pool."""
        check(self._slots, self._tree, self._holds)

    def _bury(self, node: Node, reason: Literal["evicted", "revoked", "discarded"], by: str) -> None:
        owner = node.revoked or "" if reason == "revoked" else ""
        ghost = Ghost(node.key, node.start, self._tree.clock, reason, by, owner)
        before = self._tree.detach(node).digest
        self._ghosts.add(node.space, before, node.digest, ghost)

    def _revoked(self, revocation: Revocation) -> None:
        self.revoked_leases += 1
        self._reports.append(revocation)


def _ints(values: npt.ArrayLike) -> Ints:
    return np.ascontiguousarray(values, dtype=np.int32)


def _path_slots(node: Node) -> Ints:
    parts: list[Ints] = []
    at = node
    while at.parent is not None:
        parts.append(at.slots)
        at = at.parent
    if len(parts) == 1:
        return parts[0].copy()
    parts.reverse()
    return np.concatenate(parts) if parts else at.slots
