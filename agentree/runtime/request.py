"""What is asked of the engine and what comes back: plain values, no torch."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from agentree.runtime.constraint import TokenConstraint


@dataclass(frozen=True)
class Sampling:
    """How the next token is picked. `temperature` 0 is greedy; `seed` keys the counter-based generator."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Scope:
    """Who asks: names for events, and the agent that a lease belongs to."""

    run: str = ""
    path: str = ""

    @property
    def name(self) -> str:
        """Both in one: `run/path`; the path alone outside of a run."""
        return f"{self.run}/{self.path}" if self.run else self.path

    @classmethod
    def named(cls, name: str) -> "Scope":
        """The scope of such a name. Paths have no slash outside of a run."""
        run, slash, path = name.partition("/")
        return cls(run, path) if slash else cls("", name)


@dataclass(frozen=True)
class Hold:
    """Lease the finished transcript to an owner, which has at most one lease."""

    owner: str
    """`run`, or `run/...`: ends with the run at the latest."""
    seconds: float = 1.0
    """How long until the owner is expected back."""


@dataclass(frozen=True, eq=False)
class Request:
    """One prompt to continue, to score or only to compute. Lengths in tokens."""

    prompt: tuple[int, ...]
    max_tokens: int
    """At most so many tokens are generated; 0 only computes (or scores) the prompt."""
    sampling: Sampling = Sampling()
    constraint: "TokenConstraint | None" = None
    stop: tuple[str, ...] = ()
    """Strings that end the generation; they are not part of its text."""
    end_ids: frozenset[int] = frozenset()
    """Tokens that end the generation; they are not part of its output."""
    score_from: int | None = None
    """Ask for the log-probability of each of `prompt[score_from:]`. At least 1."""
    namespace: Hashable = ()
    """Requests share cache only inside one namespace: a typed tuple of model, adapter, salt."""
    scope: Scope = Scope()
    hold: Hold | None = None
    agent: Hashable = None
    """Agents are served in the order in which they began. None: the scope's run; "" there: nobody else's."""
    jump_forward: bool = True


@dataclass(frozen=True)
class TokenCounts:
    """Where the tokens of a request came from: `cached + computed = prompt`."""

    prompt: int
    cached: int
    computed: int
    sampled: int
    forced: int
    forward_passes: int


@dataclass(frozen=True)
class Result:
    """A finished request."""

    output: tuple[int, ...]
    """Generated ids, without an end token and without whatever lies past a stop string."""
    text: str
    finish: Literal["stop", "length"]
    """`stop`: an end token, a stop string, or a complete forced value."""
    end_token: int | None
    """The end token that was sampled, if one was."""
    logprob: float
    """Sum over the sampled tokens, each under the distribution it was drawn from at temperature 1."""
    scores: tuple[float, ...]
    counts: TokenCounts
    near_ties: int = 0
    """Greedy picks whose two best logits were closer than 1e-4."""


@dataclass(frozen=True)
class Progress:
    """Text of a running request since the last report: whole characters only."""

    text: str
    tokens: int


@dataclass(eq=False)
class Sink:
    """Where a request reports to. All three are called on the engine thread and must not block."""

    progress: Callable[[Progress], None] | None
    done: Callable[[Result], None]
    failed: Callable[[BaseException], None]


@dataclass(eq=False)
class Ticket:
    """Handle of a submitted request."""

    number: int
    request: Request
    sink: Sink = field(repr=False)
