"""A cache that is too simple to be wrong: one object per token, every question answered by looking at all."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(eq=False)
class Token:
    """One cached token."""

    id: int
    parent: "Token | None"
    born: int
    last_use: int
    children: "dict[int, Token]" = field(default_factory=dict[int, "Token"])
    locks: int = 0
    leases: "list[Claim]" = field(default_factory=list["Claim"])
    references: "list[Claim]" = field(default_factory=list["Claim"])
    dead: bool = False
    gone: bool = False

    def path(self) -> "list[Token]":
        """From this token up to the first one."""
        found: list[Token] = []
        at = self
        while at.parent is not None:
            found.append(at)
            at = at.parent
        return found

    def below(self) -> "Iterator[Token]":
        """This token and all behind it."""
        yield self
        for child in self.children.values():
            yield from child.below()

    def is_leased(self) -> bool:
        return any(token.leases for token in self.below())

    def is_referenced(self) -> bool:
        return any(token.references for token in self.below())

    def is_locked(self) -> bool:
        return any(token.locks for token in self.below())

    def next_use(self) -> float:
        return min((claim.next_use for claim in (*self.leases, *self.references)), default=float("inf"))


@dataclass(eq=False)
class Claim:
    """A lease or a reference."""

    owner: str
    next_use: float
    token: Token
    state: str = "held"


class Reference:
    """Counts instead of slots; otherwise every operation of the real cache."""

    def __init__(self, slots: int, *, policy: str, lease_budget: int) -> None:
        self.free = slots
        self.private = 0
        self.policy = policy
        self.lease_budget = lease_budget
        self.clock = 0
        self.roots: dict[Hashable, Token] = {}
        self.revocations: list[tuple[str, int, str]] = []
        self.absent: dict[tuple[Hashable, tuple[int, ...]], tuple[str, str, str]] = {}
        self.bared: dict[Token, str] = {}

    # ---------------------------------------------------------------------------- looking

    def tokens(self) -> list[Token]:
        return [t for root in self.roots.values() for t in root.below() if t.parent is not None]

    def contents(self) -> set[tuple[Hashable, tuple[int, ...]]]:
        return {(ns, self.prefix(t)) for ns, root in self.roots.items() for t in root.below() if t.parent}

    @staticmethod
    def prefix(token: Token) -> tuple[int, ...]:
        return tuple(t.id for t in reversed(token.path()))

    def locked(self) -> int:
        return sum(t.is_locked() for t in self.tokens())

    def leased(self) -> int:
        return sum(t.is_leased() for t in self.tokens())

    def referenced(self) -> int:
        return sum(t.is_referenced() for t in self.tokens())

    def leases(self) -> list[Claim]:
        roots = [claim for root in self.roots.values() for claim in root.leases]
        return [claim for token in self.tokens() for claim in token.leases] + roots

    def root(self, namespace: Hashable) -> Token:
        return self.roots.setdefault(namespace, Token(-1, None, 0, 0))

    # ---------------------------------------------------------------------------- the tree

    def match(self, ids: Sequence[int], namespace: Hashable) -> tuple[Token, int]:
        self.clock += 1
        at, n = self.root(namespace), 0
        for token_id in ids:
            if token_id not in at.children:
                break
            at, n = at.children[token_id], n + 1
            at.last_use, at.dead = self.clock, False
        return at, n

    def publish(self, ids: Sequence[int], owned: int, namespace: Hashable) -> tuple[Token, int]:
        at, known = self.match(ids, namespace)
        for i in range(known, len(ids)):
            at.children[ids[i]] = Token(ids[i], at, self.clock, self.clock)
            at = at.children[ids[i]]
            self.absent.pop((namespace, tuple(ids[: i + 1])), None)
        self.private -= len(ids) - owned
        self.free += known - owned
        return at, known

    def lock(self, token: Token) -> None:
        token.locks += 1

    def unlock(self, token: Token) -> None:
        token.locks -= 1

    # ---------------------------------------------------------------------------- slots

    def allocate(self, n: int, by: str) -> bool:
        evictable = len(self.tokens()) - self.locked()
        if n > self.free + evictable:
            return False
        self.evict(max(0, n - self.free), by)
        self.free -= n
        self.private += n
        return True

    def release(self, n: int) -> None:
        self.private -= n
        self.free += n

    def rank(self, token: Token) -> tuple[float, ...]:
        if token.leases:
            return (3, -token.next_use())
        if self.policy == "lru":
            return (0, token.last_use)
        if token.dead:
            return (0, token.last_use)
        if not token.references:
            return (1, token.last_use)
        return (2, -token.next_use())

    def evict(self, n: int, by: str) -> int:
        for done in range(n):
            leaves = [t for t in self.tokens() if not t.children and not t.locks]
            if not leaves:
                return done
            leaf = min(leaves, key=self.rank)
            key = self.key(leaf)
            self.remove(leaf, by)
            owner = self.bared.get(leaf)
            self.absent[key] = ("evicted", by, "") if owner is None else ("revoked", by, owner)
            self.free += 1
        return n

    def key(self, token: Token) -> tuple[Hashable, tuple[int, ...]]:
        return next(ns for ns, root in self.roots.items() if token in root.below()), self.prefix(token)

    def remove(self, leaf: Token, by: str) -> None:
        for claim in list(leaf.leases):
            self.revoke(claim, by)
        for claim in leaf.references:
            claim.state = "lost"
        leaf.references.clear()
        leaf.gone = True
        assert leaf.parent is not None
        del leaf.parent.children[leaf.id]

    def discard_since(self, mark: int) -> int:
        fresh = [t for t in self.tokens() if t.born > mark]
        for token in sorted(fresh, key=lambda t: -len(t.path())):
            key = self.key(token)
            self.remove(token, "")
            self.absent[key] = ("discarded", "", "")
            self.free += 1
        return len(fresh)

    # ---------------------------------------------------------------------------- holds

    def lease(self, token: Token, owner: str, next_use: float) -> Claim:
        claim = Claim(owner, next_use, token)
        token.leases.append(claim)
        for t in token.path():
            t.dead = False
            self.bared.pop(t, None)
        if len(token.path()) > self.lease_budget:
            self.revoke(claim, owner)
        while self.leased() > self.lease_budget:
            self.revoke(max(self.leases(), key=lambda c: c.next_use), owner)
        return claim

    def end(self, claim: Claim) -> bool:
        if claim.state != "held":
            return False
        claim.state = "ended"
        self._bare(claim, None)
        return True

    def revoke(self, claim: Claim, by: str) -> None:
        claim.state = "revoked"
        self.revocations.append((claim.owner, self._bare(claim, claim.owner), by))

    def _bare(self, claim: Claim, revoked: str | None) -> int:
        claim.token.leases.remove(claim)
        bare = [t for t in claim.token.path() if not t.is_leased()]
        for t in bare:
            self.bared.pop(t, None)
            if revoked is not None:
                self.bared[t] = revoked
        return len(bare)

    def refer(self, token: Token, owner: str, next_use: float) -> Claim:
        claim = Claim(owner, next_use, token)
        token.references.append(claim)
        for t in token.path():
            t.dead = False
        return claim

    def unrefer(self, claim: Claim) -> bool:
        if claim.state != "held":
            return False
        claim.state = "ended"
        claim.token.references.remove(claim)
        return True

    def retire(self, token: Token, start: int) -> int:
        marked = 0
        for t in token.path() if not token.gone else []:
            alive = any(not child.dead for child in t.children.values())
            if len(t.path()) <= start or alive or t.is_leased() or t.is_referenced():
                break
            t.dead = True
            marked += 1
        return marked
