"""What thoughts are worth: by a function, by the model's verdict on each, or by its vote among all."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Literal, cast, get_args, get_origin

from typing_extensions import TypeVar

from agentree.errors import GraphError
from agentree.graph.shown import shown
from agentree.messages import user
from agentree.runtime.constraint import Choice
from agentree.tools import canonical_json

if TYPE_CHECKING:
    from agentree.lm import Runtime, Transcript

T = TypeVar("T")

MAX_TOKENS = 128
"""Longest verdict, in tokens."""


@dataclass(frozen=True)
class Found(Generic[T]):
    """A way from the root: its thoughts, what the last is worth, and the transcript that holds them."""

    thoughts: tuple[T, ...]
    transcript: "Transcript"
    worth: float = 0.0
    solved: bool = False


@dataclass(frozen=True)
class Judge(Generic[T]):
    """How a level's thoughts are judged."""

    value: "Callable[[T], float] | type[Any] | Literal['vote']"
    question: str
    votes: int

    def __post_init__(self) -> None:
        if self.value != "vote" and (is_form(self.value) or not callable(cast("object", self.value))):
            worth_of(self.value)

    def __str__(self) -> str:
        times = "" if self.votes == 1 else f" {self.votes} times"
        if self.value == "vote":
            return f"vote{times} for the best of a level"
        return f"judge each{times}" if is_form(self.value) else "value each"

    async def __call__(
        self, lm: "Runtime", root: "Transcript", task: str, found: Sequence[Found[T]]
    ) -> list[float]:
        """What each is worth; all the model's verdicts are one batch."""
        if self.value == "vote":
            return await self._vote(root, task, found)
        if is_form(self.value):
            return await self._verdicts(lm, found)
        value = cast("Callable[[T], float]", self.value)
        return [_number(value(one.thoughts[-1])) for one in found]

    @property
    def _temperature(self) -> float:
        return 0.0 if self.votes == 1 else 1.0

    async def _verdicts(self, lm: "Runtime", found: Sequence[Found[T]]) -> list[float]:
        worth = worth_of(self.value)
        async with lm.fork([one.transcript + user(self.question) for one in found], each=self.votes) as asked:
            made = await asked.gen(self.value, max_tokens=MAX_TOKENS, temperature=self._temperature)
        worths = [worth(generation.value) for generation in made]
        return [sum(worths[i : i + self.votes]) / self.votes for i in range(0, len(worths), self.votes)]

    async def _vote(self, root: "Transcript", task: str, found: Sequence[Found[T]]) -> list[float]:
        if len(found) == 1:
            return [1.0]
        numbers = [str(i) for i in range(1, len(found) + 1)]
        ways = [" -> ".join(map(thought_text, one.thoughts)) for one in found]
        listed = "\n".join(f"{number}. {way}" for number, way in zip(numbers, ways, strict=True))
        ballot = root + user(f"{task}\n\n{listed}\n\n{self.question}")
        async with ballot.fork(self.votes) as voters:
            cast_ = await voters.gen(Choice(numbers), max_tokens=8, temperature=self._temperature)
        given = [vote.value for vote in cast_]
        return [given.count(number) / self.votes for number in numbers]


def _number(made: object) -> float:
    """What `value` gave, as a number. Raises GraphError for anything else."""
    if inspect.iscoroutine(made):
        made.close()
    try:
        worth = float("nan") if isinstance(made, str | bytes) else float(cast("Any", made))
    except (TypeError, ValueError, OverflowError):
        worth = float("nan")
    if worth != worth:
        raise GraphError(
            f"tree_of_thought(value=...): the function gave {type(made).__name__} {shown(repr(made), 80)}: "
            "it gets one thought and returns what it is worth, a number (higher is better)"
        )
    return worth


def thought_text(thought: object) -> str:
    """A thought as the model would have written it."""
    return thought if isinstance(thought, str) else canonical_json(thought)


def is_form(value: object) -> bool:
    """Whether this is a type to be forced, and no function."""
    return isinstance(value, type) or get_origin(value) is not None


def worth_of(verdict: Any) -> Callable[[Any], float]:
    """Verdicts as numbers. Raises GraphError for a type whose values have no order."""
    if verdict in (int, float, bool):
        return float
    options: list[Any] = []
    if get_origin(verdict) is Literal:
        options = list(get_args(verdict))
    elif isinstance(verdict, type) and issubclass(verdict, Enum):
        options = list(verdict)
    if not options:
        raise GraphError(
            f"tree_of_thought(value={verdict!r}): take a function, 'vote', int, float, bool, or a Literal or "
            "Enum whose first option is the best"
        )
    return lambda given: float(len(options) - 1 - options.index(given))
