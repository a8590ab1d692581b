"""What the cache refuses."""

from agentree.errors import AgentreeError


class OutOfSlots(AgentreeError):
    """Not enough slots, even if everything that nobody locks were evicted. Counts in slots."""

    def __init__(self, *, needed: int, free: int, evictable: int) -> None:
        super().__init__(
            f"{needed} slots are needed; {free} are free and {evictable} more could be evicted: "
            f"give back locks or private slots first"
        )
        self.needed = needed
        self.free = free
        self.evictable = evictable


class CacheError(AgentreeError, RuntimeError):
    """The cache was used against its rules, or `check()` found a broken invariant: somewhere is a bug."""
