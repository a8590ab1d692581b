"""Which agent holds which prefix between its requests: one lease per owner, moved along as it grows."""

import time
from collections.abc import Hashable, Sequence

from agentree.runtime.cache import Cache, Lease, Node


class Leases:
    """Leases by owner, on the engine thread. A lease never blocks anybody: under pressure it is revoked."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._by_owner: dict[str, Lease] = {}

    def hold(self, owner: str, node: Node, seconds: float) -> None:
        """Lease a node's path, which must be locked now, in place of what the owner held before."""
        lease = self._cache.lease(node, owner=owner, next_use=time.monotonic() + seconds)
        before = self._by_owner.pop(owner, None)
        self._by_owner[owner] = lease
        if before is not None:
            # A turn on another branch supersedes what came after the place where they part.
            self._cache.end(before, last_use=True)

    def hold_ids(self, owner: str, ids: Sequence[int], namespace: Hashable, seconds: float) -> None:
        """Lease as much of a transcript as is cached."""
        match = self._cache.match(ids, namespace)
        if not match.length:
            return
        lock = self._cache.lock(match.node)
        self.hold(owner, match.node, seconds)
        self._cache.unlock(lock)

    def expect(self, owner: str, seconds: float) -> None:
        """Say anew how long until an owner is back. Harmless where it holds nothing."""
        lease = self._by_owner.get(owner)
        if lease is not None:
            self._cache.renew(lease, next_use=time.monotonic() + seconds)

    def release(self, owner: str, *, last_use: bool, start: int = 0) -> None:
        """End an owner's lease. With `last_use` its tokens from `start` on are the next to be evicted."""
        lease = self._by_owner.pop(owner, None)
        if lease is not None:
            self._cache.end(lease, last_use=last_use, start=start)

    def release_run(self, run: str) -> None:
        """End the leases of all owners of a run: those named `run` or `run/...`."""
        for owner in [o for o in self._by_owner if o == run or o.startswith(f"{run}/")]:
            self.release(owner, last_use=True)

    def __len__(self) -> int:
        return len(self._by_owner)
