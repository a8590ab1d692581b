"""Drives the cache and its reference with the same operations, and compares them after each.

Plays the engine's part: requests with rows [tree | private], forks, finishes, aborts, failed steps. What a
forward would write to K and V is simulated: each slot remembers the prefix that it was computed for.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from agentree.runtime.cache import Cache, CacheError, Lease, Lock, Node, OutOfSlots, Reference, Revocation
from tests.cache_reference import Claim, Token
from tests.cache_reference import Reference as Model

SPACES: tuple[Hashable, ...] = (("m", ""), ("m", "salt"))


@dataclass(eq=False)
class Request:
    """A request in flight."""

    ids: list[int]
    namespace: Hashable
    row: list[int]
    owned: int
    node: Node
    token: Token
    lock: Lock
    started: int
    name: str


class Driver:
    """One cache beside one reference. Every operation takes small integers, so that anything can drive it."""

    def __init__(self, slots: int, *, policy: str, lease_budget: int) -> None:
        assert policy in ("lru", "plan")
        self.cache = Cache(slots, policy=policy, lease_budget=lease_budget)
        self.cache._ghosts._tokens = 1 << 40
        self.cache._ghosts._records = 1 << 40
        self.model = Model(slots, policy=policy, lease_budget=lease_budget)
        self.slots = slots
        self.requests: list[Request] = []
        self.leases: list[tuple[Lease, Claim]] = []
        self.references: list[tuple[Reference, Claim]] = []
        self.written: dict[int, tuple[Hashable, tuple[int, ...]]] = {}
        self.number = 0
        self.unordered = False

    # ---------------------------------------------------------------------------- requests

    def start(self, a: int, b: int, c: int) -> None:
        """Admit a prompt: match, lock. `a` and `b` make the prompt, `c` the namespace."""
        ids = self.prompt(a, b)
        namespace = SPACES[c % 4 == 0]
        self.miss(ids, namespace)
        match = self.cache.match(np.array(ids[:-1], np.int32), namespace)
        token, length = self.model.match(ids[:-1], namespace)
        assert match.length == length == len(match.slots)
        self.number += 1
        name = f"r{self.number}"
        row = [int(slot) for slot in match.slots]
        lock = self.cache.lock(match.node)
        self.model.lock(token)
        self.requests.append(
            Request(ids, namespace, row, length, match.node, token, lock, self.cache.clock, name)
        )

    def compute(self, a: int, b: int, _: int) -> None:
        """Prefill a chunk of a request, or let it generate."""
        request = self.pick(a)
        if request is None:
            return
        if len(request.row) == len(request.ids):
            request.ids.append(b % 3)
        n = min(1 + b % 5, len(request.ids) - len(request.row))
        possible = self.model.allocate(n, request.name)
        try:
            slots = self.cache.allocate(n, by=request.name)
        except OutOfSlots as error:
            assert not possible
            assert (error.needed, error.free) == (n, self.cache.free)
            return
        assert possible and len(slots) == n
        for slot in slots:
            request.row.append(int(slot))
            self.written[int(slot)] = (request.namespace, tuple(request.ids[: len(request.row)]))

    def publish(self, a: int, b: int, _: int) -> None:
        """Put what a request has computed, or a part of it, into the tree."""
        request = self.pick(a)
        if request is None:
            return
        have = len(request.row)
        self.put(request, have if b % 3 else request.owned + b % (have - request.owned + 1))

    def put(self, request: Request, upto: int) -> None:
        ids, row, owned = request.ids[:upto], request.row[:upto], request.owned
        published = self.cache.publish(
            np.array(ids, np.int32), np.array(row, np.int32), owned, request.namespace
        )
        token, known = self.model.publish(ids, owned, request.namespace)
        assert (published.moved, published.freed) == (upto - known, known - owned)
        request.row[:upto] = [int(slot) for slot in published.slots]
        request.owned = upto
        before, request.lock = request.lock, self.cache.lock(published.node)
        self.cache.unlock(before)
        self.model.lock(token)
        self.model.unlock(request.token)
        request.node, request.token = published.node, token

    def finish(self, a: int, b: int, c: int) -> None:
        """End a request: its tokens stay in the tree, perhaps leased."""
        request = self.pick(a)
        if request is None:
            return
        self.put(request, len(request.row))
        if b % 2:
            self.claim(request, b, c)
        self.drop(request)

    def claim(self, request: Request, b: int, c: int) -> None:
        # Every next use is another one: which of two equal ones goes first depends on how edges are cut.
        self.number += 1
        next_use = float(c % 100) + self.number / 1e7
        owner = f"a{b % 5}"
        if b % 4 == 1:
            reference = self.cache.refer(request.node, owner=owner, next_use=next_use)
            self.references.append((reference, self.model.refer(request.token, owner, next_use)))
        else:
            lease = self.cache.lease(request.node, owner=owner, next_use=next_use)
            self.leases.append((lease, self.model.lease(request.token, owner, next_use)))

    def hold(self, a: int, b: int, c: int) -> None:
        """Lease or refer to what a running request has published."""
        request = self.pick(a)
        if request is not None:
            self.claim(request, b, c)

    def fork(self, a: int, b: int, _: int) -> None:
        """A branch off a running request, which shares all that is computed."""
        request = self.pick(a)
        if request is None or not request.row:
            return
        self.put(request, len(request.row))
        self.number += 1
        self.model.lock(request.token)
        ids = [*request.ids[: len(request.row)], b % 3]
        lock = self.cache.lock(request.node)
        self.requests.append(
            Request(
                ids, request.namespace, list(request.row), request.owned, request.node, request.token, lock,
                self.cache.clock, f"r{self.number}",
            )
        )  # fmt: skip

    def abort(self, a: int, _: int, __: int) -> None:
        """End a request and forget what it had not published."""
        request = self.pick(a)
        if request is not None:
            self.drop(request)

    def drop(self, request: Request) -> None:
        private = request.row[request.owned :]
        self.cache.release(np.array(private, np.int32))
        self.model.release(len(private))
        self.cache.unlock(request.lock)
        self.model.unlock(request.token)
        self.requests.remove(request)
        try:
            self.cache.unlock(request.lock)
        except CacheError:
            return
        raise AssertionError("a lock was given back twice")

    def fail_step(self, a: int, b: int, c: int) -> None:
        """A step starts and publishes requests before its forward, which then raises."""
        mark = self.cache.mark()
        for i in range(1 + a % 3):
            self.start(a + i, b + i, c)
            request = self.requests[-1]
            self.compute(len(self.requests) - 1, 4, 0)
            self.put(request, len(request.row))
            if b % 5 == 0:
                self.claim(request, b, c)
        for request in [r for r in self.requests if r.started > mark]:
            self.drop(request)
        self.unordered = True
        discarded = self.cache.discard_since(mark)
        assert discarded.tokens == self.model.discard_since(mark)
        assert all(lease.state == "revoked" for lease in discarded.leases)

    # ---------------------------------------------------------------------------- the rest

    def evict(self, a: int, _: int, __: int) -> None:
        """Make room without taking it."""
        n = a % 7
        assert self.cache.evict(n, by=f"e{a % 3}") == self.model.evict(n, f"e{a % 3}")

    def renew(self, a: int, b: int, _: int) -> None:
        """Change a lease's next use."""
        if self.leases:
            lease, claim = self.leases[a % len(self.leases)]
            self.number += 1
            next_use = b % 100 + self.number / 1e7
            held = claim.state == "held"
            assert self.cache.renew(lease, next_use=next_use) == held
            if held:
                claim.next_use = next_use

    def end(self, a: int, b: int, c: int) -> None:
        """End a lease or a reference, in whatever state it is."""
        if b % 3 == 0 and self.references:
            reference, claim = self.references[a % len(self.references)]
            assert self.cache.unrefer(reference) == self.model.unrefer(claim)
        elif self.leases:
            lease, claim = self.leases[a % len(self.leases)]
            start = c % 4
            assert self.cache.end(lease, last_use=b % 2 == 1, start=start) == self.model.end(claim)
            if b % 2:
                self.model.retire(claim.token, start)

    def retire(self, a: int, b: int, _: int) -> None:
        """Say that nobody will use a request's tokens again."""
        request = self.pick(a)
        if request is not None:
            start = b % (len(request.ids) + 1)
            marked = self.cache.retire(request.node, start=start)
            assert marked == self.model.retire(request.token, start)

    OPERATIONS = (
        "start", "start", "compute", "compute", "compute", "publish", "finish", "fork", "abort", "fail_step",
        "evict", "hold", "renew", "end", "retire",
    )  # fmt: skip

    # ---------------------------------------------------------------------------- helpers

    def pick(self, a: int) -> Request | None:
        return self.requests[a % len(self.requests)] if self.requests else None

    @staticmethod
    def prompt(a: int, b: int) -> list[int]:
        """Overlapping prompts: the digits of `a` in base 3, repeated to a length between 1 and 12."""
        digits = [a % 3, a // 3 % 3, a // 9 % 3, a // 27 % 3]
        return (digits * 3)[: 1 + b % 12]

    def miss(self, ids: list[int], namespace: Hashable) -> None:
        miss = self.cache.find_miss(np.array(ids, np.int32), namespace)
        at, n = self.model.root(namespace), 0
        while n < len(ids) and ids[n] in at.children:
            at, n = at.children[ids[n]], n + 1
        if miss is None:
            assert n == len(ids)
            return
        assert miss.at == n < len(ids)
        key = (namespace, tuple(ids[: n + 1]))
        if key in self.model.absent:
            assert (miss.reason, miss.by, miss.owner) == self.model.absent[key]
        elif miss.reason == "diverged":
            assert at.children and n
        else:
            assert miss.reason in ("unseen", "namespace")
        assert miss.words

    def compare(self) -> None:
        """The cache is sound, holds what the reference holds, and no row has been corrupted."""
        cache, model = self.cache, self.model
        cache.check()
        assert cache.free + cache.private + cache.tree == cache.size == self.slots
        assert (cache.free, cache.private) == (model.free, model.private)
        assert (cache.locked, cache.leased, cache.referenced) == (
            model.locked(), model.leased(), model.referenced(),
        )  # fmt: skip
        contents: set[tuple[Hashable, tuple[int, ...]]] = set()
        places = {cache._tree.root(typed).space: ns for ns, typed in self.typed().items()}
        for space, root in cache._tree.roots.items():
            stack: list[tuple[Node, tuple[int, ...]]] = [(root, ())]
            while stack:
                node, prefix = stack.pop()
                for i, slot in zip(np.frombuffer(node.key, np.int32), node.slots, strict=True):
                    prefix = (*prefix, int(i))
                    contents.add((places[space], prefix))
                    assert self.written[int(slot)] == (places[space], prefix)
                stack += [(child, prefix) for child in node.children.values()]
        assert contents == model.contents()
        private: set[int] = set()
        for request in self.requests:
            for i, slot in enumerate(request.row):
                assert self.written[slot] == (request.namespace, tuple(request.ids[: i + 1]))
            mine = set(request.row[request.owned :])
            assert not mine & private
            private |= mine
        assert len(private) == cache.private
        for lease, claim in self.leases:
            assert lease.state == claim.state
        for reference, claim in self.references:
            assert reference.state == claim.state
        reports = [r for r in cache.take_reports() if isinstance(r, Revocation)]
        told = [(r.owner, r.tokens, r.by) for r in reports]
        if self.unordered:  # branches are discarded in any order, which decides who bares what they share
            assert sorted(t[0] for t in told) == sorted(t[0] for t in model.revocations)
            assert sum(t[1] for t in told) == sum(t[1] for t in model.revocations)
        else:
            assert told == model.revocations
        self.unordered = False
        model.revocations.clear()
        self.leases = [pair for pair in self.leases if pair[1].state == "held"] + self.leases[-3:]

    @staticmethod
    def typed() -> dict[Hashable, tuple[object, ...]]:
        from agentree.runtime.cache.node import typed

        return {namespace: typed(namespace) for namespace in SPACES}
