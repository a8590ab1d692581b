"""Keeps a run inside its limits: what was spent so far, and the signal that a limit stops an act."""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from agentree.graph.nodes import LlmNode
from agentree.graph.types import Limits
from agentree.messages import Message
from agentree.tools import ToolCall, ToolResult, canonical_json

if TYPE_CHECKING:
    from agentree.lm import Transcript


@dataclass(eq=False)
class Budget:
    """What one run of a program may spend, and has spent over all its paths."""

    limits: Limits | None
    tool_calls: int = 0
    tokens: int = 0
    per_tool: Counter[str] = field(default_factory=Counter[str])
    reserved: int = 0
    """Prompt tokens of generations that are under way: as good as spent."""


@dataclass(frozen=True)
class Hit:
    """A limit that the next act would exceed."""

    budget: Budget
    """Of the program whose limit it is."""
    limit: str
    text: str
    """Why, in words."""


@dataclass(eq=False)
class Trail:
    """What counts along one task path. Branches begin with a copy; a join takes the largest counts."""

    budget: Budget
    outer: "Trail | None" = None
    """The path in the program that called this one."""
    turns: int = 0
    calls: dict[str, list[ToolResult]] = field(default_factory=dict[str, list[ToolResult]])
    """Per identical tool call, its results so far."""
    corrections: Counter[str] = field(default_factory=Counter[str])
    """Per tool, how many of its last calls in a row the model has to correct."""
    passes: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """Per edge with `max_visits`, how often it was passed."""

    def chain(self) -> "Iterator[Trail]":
        """This path and those around it, innermost first."""
        trail: Trail | None = self
        while trail is not None:
            yield trail
            trail = trail.outer

    def copy(self) -> "Trail":
        """The same counts for a branch, which then go their own way."""
        calls = {key: list(results) for key, results in self.calls.items()}
        outer = None if self.outer is None else self.outer.copy()
        return Trail(self.budget, outer, self.turns, calls, Counter(self.corrections), Counter(self.passes))

    def join(self, branches: "Sequence[Trail]") -> None:
        """Go on after a join, as far as the farthest branch."""
        for mine, *theirs in zip(self.chain(), *(branch.chain() for branch in branches), strict=True):
            mine.turns = max(trail.turns for trail in (mine, *theirs))
            for trail in theirs:
                mine.corrections |= trail.corrections
                mine.passes |= trail.passes
                for key, results in trail.calls.items():
                    mine.calls[key] = max(mine.calls.get(key, []), results, key=len)

    def turn(self) -> None:
        """Count one LLM visit."""
        for trail in self.chain():
            trail.turns += 1

    def spend(self, tokens: int) -> None:
        """Count the tokens of a generation."""
        for trail in self.chain():
            trail.budget.tokens += tokens

    @contextmanager
    def reserved(self, tokens: int) -> Generator[None]:
        """While the block lasts, nobody else may plan with these prompt tokens."""
        budgets = [trail.budget for trail in self.chain()]
        for budget in budgets:
            budget.reserved += tokens
        try:
            yield
        finally:
            for budget in budgets:
                budget.reserved -= tokens

    def start(self, call: ToolCall) -> None:
        """Count a tool call that is about to be made."""
        for trail in self.chain():
            trail.budget.tool_calls += 1
            trail.budget.per_tool[call.name] += 1

    def answered(self, result: ToolResult) -> None:
        """Remember what a call came to."""
        for trail in self.chain():
            trail.calls.setdefault(identity(result.call), []).append(result)

    def known(self, call: ToolCall) -> ToolResult | None:
        """What this very call came to when it was made last, if it was."""
        for trail in self.chain():
            if results := trail.calls.get(identity(call)):
                return replace(results[-1], call=call)
        return None

    def repeated(self, calls: Sequence[ToolCall]) -> list[bool]:
        """Which calls of a turn have been made as often as a limit allows; twins in the turn count."""
        return [any(found) for found in zip(*(trail._again(calls) for trail in self.chain()), strict=True)]

    def _again(self, calls: Sequence[ToolCall]) -> list[bool]:
        limits = self.budget.limits
        if limits is None:
            return [False] * len(calls)
        seen = Counter({key: len(results) for key, results in self.calls.items()})
        found: list[bool] = []
        for key in map(identity, calls):
            seen[key] += 1
            found.append(seen[key] >= limits.repeats)
        return found

    def forbids_turn(self, prompt_tokens: int) -> Hit | None:
        """The limit that a further turn would exceed."""
        for trail in self.chain():
            budget, limits = trail.budget, trail.budget.limits
            if limits is None:
                continue
            if trail.turns >= limits.turns:
                return Hit(budget, "turns", f"{limits.turns} turns are used up")
            used = budget.tokens + budget.reserved
            if limits.tokens is not None and used + prompt_tokens >= limits.tokens:
                text = f"of {limits.tokens} tokens {used} are used, the next turn has {prompt_tokens} or more"
                return Hit(budget, "tokens", text)
        return None

    def forbids_repeats(self, calls: Sequence[ToolCall]) -> Hit | None:
        """The limit that a turn of nothing but repeated calls has reached."""
        if not all(self.repeated(calls)):
            return None
        for trail in self.chain():
            budget, limits = trail.budget, trail.budget.limits
            if limits is not None and any(again := trail._again(calls)):
                name = calls[again.index(True)].name
                text = f"{name!r} is called {limits.repeats} times with the same arguments"
                return Hit(budget, "repeats", text)
        return None

    def allows_calls(self, count: int) -> tuple[int, Hit | None]:
        """How many of so many further calls may be made, and the limit that forbids the others."""
        hit: Hit | None = None
        for trail in self.chain():
            budget, limits = trail.budget, trail.budget.limits
            most = None if limits is None else limits.tool_calls
            if most is not None and budget.tool_calls + count > most:
                hit = Hit(budget, "tool_calls", f"a run may make {most} tool calls")
                count = max(0, most - budget.tool_calls)
        return count, hit


def identity(call: ToolCall) -> str:
    """Equal for equal names and arguments, whatever the order of the arguments."""
    return canonical_json([call.name, _sorted(dict(call.args))])


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value)
        return {key: _sorted(items[key]) for key in sorted(items)}
    if isinstance(value, list | tuple):
        return [_sorted(inner) for inner in cast("Sequence[Any]", value)]
    return value


class LimitHit(Exception):
    """A limit forbids the next act. Travels to the execution whose limit it is."""

    def __init__(
        self,
        hit: Hit,
        *,
        transcript: "Transcript | None",
        partial: object,
        node: LlmNode | None = None,
        pending: Sequence[Message] = (),
    ) -> None:
        super().__init__(hit.text)
        self.hit = hit
        self.transcript = transcript
        self.partial = partial
        self.node = node
        """The llm node that was stopped, or that made the calls which were stopped."""
        self.pending = tuple(pending)
        """What the transcript needs before a last turn."""
