"""What a generation gives back, and what the runtime counts: plain values."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Generic, Literal

from typing_extensions import TypeVar

from agentree.runtime.request import TokenCounts

if TYPE_CHECKING:
    from agentree.lm.transcript import Transcript

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Usage:
    """In tokens. `None`: the server does not tell. Local: `cached + computed = prompt`.

    With `think` two requests were made, and each count is the sum over both.
    """

    prompt_tokens: int
    cached_tokens: int | None
    computed_tokens: int | None
    output_tokens: int
    """sampled + forced, with what a stop string cut off, without an end token"""
    forced_tokens: int | None
    forward_passes: int | None

    @classmethod
    def of(cls, *counts: TokenCounts) -> "Usage":
        """The sum over requests of the bundled engine."""
        return cls(
            prompt_tokens=sum(c.prompt for c in counts),
            cached_tokens=sum(c.cached for c in counts),
            computed_tokens=sum(c.computed for c in counts),
            output_tokens=sum(c.sampled + c.forced for c in counts),
            forced_tokens=sum(c.forced for c in counts),
            forward_passes=sum(c.forward_passes for c in counts),
        )


@dataclass(frozen=True)
class Generation(Generic[T_co]):
    """One generated value and where it leaves the conversation."""

    value: T_co
    text: str
    """The text of the value, without an end token, a stop string or what was thought before it."""
    transcript: "Transcript"
    """The transcript that it was generated on, with it: continue from here."""
    logprob: float | None
    """Sum of the log-probabilities of the value's sampled tokens, each as drawn at temperature 1."""
    seed: int
    """What to pass as `seed` to get the same again."""
    finish_reason: Literal["stop", "length"]
    usage: Usage


@dataclass(frozen=True)
class Stats:
    """Monotone counters and the pool's present state, in tokens unless said otherwise."""

    lookup_tokens: int
    hit_tokens: int
    computed_tokens: int
    sampled_tokens: int
    forced_tokens: int
    forward_passes: int
    evicted_tokens: int
    revoked_leases: int
    preempted_requests: int
    pool: int
    free: int
    private: int
    tree: int
    leased: int

    @classmethod
    def of(cls, counted: object) -> "Stats":
        """The public part of what an engine counts."""
        return cls(**{f.name: getattr(counted, f.name) for f in fields(cls)})
