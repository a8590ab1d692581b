"""Searches over transcripts: thoughts are branches, the best are held, and go on from where they are."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, cast

from pydantic import Field
from typing_extensions import TypeVar

from agentree.errors import GraphError
from agentree.graph.shown import shown
from agentree.graph.worth import Found, Judge, thought_text
from agentree.messages import assistant, user
from agentree.runtime.constraint import Choice

if TYPE_CHECKING:
    from agentree.lm import Forks, Runtime, Transcript

T = TypeVar("T")

NEXT = "Next step."
PROPOSE = "Name {n} different ways to take this step."
MAX_TOKENS = 128
"""Longest thought, in tokens."""


@dataclass(frozen=True)
class Rules(Generic[T]):
    """What is searched, and how; the same for all runs."""

    thought: type[T]
    judge: Judge[T]
    breadth: int
    width: int
    depth: int
    propose: bool
    options: Callable[[str, list[T]], Sequence[T]] | None
    solved: Callable[[str, list[T]], bool] | None


@dataclass(frozen=True)
class _Way(Generic[T]):
    """A survivor that goes on: what it is asked for its next thought, and what that may be."""

    found: Found[T]
    ask: str
    form: Any


@dataclass(frozen=True)
class Search(Generic[T]):
    """One search for one task, below a transcript with nothing but the static prefix."""

    rules: Rules[T]
    lm: "Runtime"
    root: "Transcript"
    task: str

    async def breadth_first(self) -> Found[T]:
        """Level by level, to full depth, a solution, or where no way goes on."""
        best = Found[T]((), self.root)
        beam = [best]
        for _ in range(self.rules.depth):
            beam = await self._expand(beam)
            if not beam:
                break
            best = beam[0]
            if best.solved:
                break
        return best

    async def depth_first(self, at: Found[T] | None = None) -> Found[T]:
        """The first way below that is solved (or full, where that can't be told), else the best met."""
        at = at or Found[T]((), self.root)
        if at.solved or len(at.thoughts) == self.rules.depth:
            return at
        best = at
        for child in await self._expand([at]):
            if child.worth <= 0 and not child.solved:
                break
            found = await self.depth_first(child)
            if found.solved or (self.rules.solved is None and len(found.thoughts) == self.rules.depth):
                return found
            best = max(best, found, key=lambda one: (len(one.thoughts), one.worth))
        return best

    async def _expand(self, beam: Sequence[Found[T]]) -> list[Found[T]]:
        """What follows the survivors: the best `width`, best first, and held; or one that is a solution."""
        ways = [way for found in beam if (way := self._way(found)) is not None]
        if not ways:
            return []
        rules = self.rules
        begins = [way.found.transcript if rules.propose else _asked(way) for way in ways]
        async with self.lm.fork(begins, each=1 if rules.propose else rules.breadth) as kids:
            grown = await (self._proposed(kids, ways) if rules.propose else self._sampled(kids, ways))
            met = distinct(grown)
            best = self._solutions(met)[:1]
            if not best:
                worths = await rules.judge(self.lm, self.root, self.task, met)
                judged = [replace(one, worth=worth) for one, worth in zip(met, worths, strict=True)]
                best = sorted(judged, key=lambda one: -one.worth)[: rules.width]
            held = kids.keep(one.transcript for one in best)
        return [replace(one, transcript=transcript) for one, transcript in zip(best, held, strict=True)]

    def _way(self, found: Found[T]) -> _Way[T] | None:
        """How a survivor goes on; None where no thought may follow."""
        ask = NEXT if found.thoughts else self.task
        if self.rules.options is None:
            form = _several(self.rules.thought, self.rules.breadth) if self.rules.propose else None
            return _Way(found, ask, form)
        options = tuple(dict.fromkeys(_listed(self.rules.options(self.task, list(found.thoughts)))))
        if not options:
            return None
        if self.rules.propose:
            return _Way(found, ask, _several(Literal[options], min(self.rules.breadth, len(options))))
        return _Way(found, ask, Choice([str(option) for option in options]))

    async def _sampled(self, kids: "Forks", ways: Sequence[_Way[T]]) -> list[Found[T]]:
        """One thought on each branch; they stay where they were generated."""
        if self.rules.options is None:
            made = await kids.gen(self.rules.thought, max_tokens=MAX_TOKENS)
        else:
            forms = [way.form for way in ways for _ in range(self.rules.breadth)]
            made = await kids._gen_each(forms, max_tokens=MAX_TOKENS, temperature=1.0)
        begun = [way.found.thoughts for way in ways for _ in range(self.rules.breadth)]
        return [
            Found((*thoughts, one.value), one.transcript) for thoughts, one in zip(begun, made, strict=True)
        ]

    async def _proposed(self, kids: "Forks", ways: Sequence[_Way[T]]) -> list[Found[T]]:
        """Several thoughts from one turn, each then on a branch that does not show the others."""
        text = PROPOSE.format(n=self.rules.breadth)
        asked = [kid + user(f"{way.ask}\n\n{text}") for kid, way in zip(kids, ways, strict=True)]
        async with self.lm.fork(asked) as sheets:
            made = await sheets._gen_each(
                [way.form for way in ways], max_tokens=MAX_TOKENS * self.rules.breadth, temperature=1.0
            )
        return [
            Found((*way.found.thoughts, one), kid + user(way.ask) + assistant(thought_text(one)))
            for kid, way, sheet in zip(kids, ways, made, strict=True)
            for one in sheet.value
        ]

    def _solutions(self, met: Sequence[Found[T]]) -> list[Found[T]]:
        solved = self.rules.solved
        if solved is None:
            return []
        return [replace(one, solved=True) for one in met if solved(self.task, list(one.thoughts))]


def _asked(way: _Way[Any]) -> "Transcript":
    return way.found.transcript + user(way.ask)


def _listed(given: Any) -> Iterable[Any]:
    """What `options` gave. Raises GraphError for one text, whose letters are no thoughts, and for no list."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise GraphError(
            f"tree_of_thought(options=...): the function gave {type(given).__name__} "
            f"{shown(repr(given), 80)}: return a list of texts, the thoughts that may follow (an empty list "
            "where the way ends)"
        )
    return cast("Iterable[Any]", given)


def _several(item: Any, n: int) -> Any:
    return Annotated[list[item], Field(min_length=n, max_length=n)]


def distinct(found: Sequence[Found[T]]) -> list[Found[T]]:
    """Without those whose thoughts another one has too: a level must not judge or keep the same way twice."""
    kept: list[Found[T]] = []
    for one in found:
        if all(one.thoughts != other.thoughts for other in kept):
            kept.append(one)
    return kept
