"""What the engine counts."""

from dataclasses import dataclass


@dataclass(eq=False)
class Counters:
    """Monotone counters of one engine, in tokens unless said otherwise. The engine thread owns them."""

    lookup_tokens: int = 0
    hit_tokens: int = 0
    computed_tokens: int = 0
    sampled_tokens: int = 0
    forced_tokens: int = 0
    forward_passes: int = 0
    evicted_tokens: int = 0
    revoked_leases: int = 0
    preempted_requests: int = 0
    near_ties: int = 0
    guessed_tokens: int = 0
    confirmed_tokens: int = 0


@dataclass(frozen=True)
class EngineStats:
    """A copy of the counters and the pool's state after a step, in tokens unless said otherwise."""

    pool: int
    """Slots in all: `free + private + tree`."""
    free: int
    private: int = 0
    tree: int = 0
    leased: int = 0
    running: int = 0
    """Requests that hold slots."""
    waiting: int = 0
    lookup_tokens: int = 0
    """Prompt tokens of the requests that are over."""
    hit_tokens: int = 0
    """Of these, tokens that needed no computation."""
    computed_tokens: int = 0
    """Prompt tokens that were computed; after a preemption or a revocation, again."""
    sampled_tokens: int = 0
    forced_tokens: int = 0
    forward_passes: int = 0
    evicted_tokens: int = 0
    revoked_leases: int = 0
    preempted_requests: int = 0
    near_ties: int = 0
    """Greedy picks whose two best logits were closer than 1e-4."""
    guessed_tokens: int = 0
    """Queries of guessed tokens, forced ones after them included."""
    confirmed_tokens: int = 0
    """Of these, tokens that came."""
