"""The tree-of-thought template: branches of a transcript are proposed, judged, and kept or dropped."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Literal, cast, get_args, get_origin

from typing_extensions import TypeVar

from agentree.errors import GraphError
from agentree.graph.build import Graph
from agentree.graph.ctx import Ctx
from agentree.messages import system, user

if TYPE_CHECKING:
    from agentree.graph.program import Program
    from agentree.lm import Runtime, Transcript

T = TypeVar("T")

INSTRUCTIONS = "Solve the task step by step. Give one step at a time."
NEXT = "Next step."
JUDGE = "How good is this step? Judge whether it can still lead to a solution."
MAX_TOKENS = 128
"""Longest thought and longest verdict, in tokens."""


@dataclass(frozen=True)
class _Found(Generic[T]):
    """A way from the root: its thoughts, what the last is worth, and the transcript that holds them."""

    thoughts: tuple[T, ...]
    worth: float
    transcript: "Transcript"


def tree_of_thought(
    *,
    thought: type[T],
    value: Callable[[T], float] | type[Any],
    breadth: int = 5,
    width: int = 2,
    depth: int = 3,
    instructions: str = INSTRUCTIONS,
    search: Literal["bfs", "dfs"] = "bfs",
) -> "Program[None, str, list[T]]":
    """Search for a sequence of thoughts. Gives the best one found, from the first thought to the last.

    Survivors go on from their own transcripts, so that nothing is computed twice; all thoughts of a level,
    and all verdicts on them, are one batch.

    Args:
        thought: One step; it is forced.
        value: What a thought is worth, higher is better: a function, or a type for the model's own verdict
            (int, float, bool, or a Literal or Enum whose first option is the best and whose last is worth 0).
        breadth: How many thoughts are sampled from each survivor.
        width: "bfs": how many survivors a level keeps. "dfs": how many thoughts are followed from one.
        depth: How many thoughts make a sequence.
        instructions: What the model is told first.
        search: "bfs" goes level by level. "dfs" follows the best thought first and turns back where all are
            worth 0 or less; the first sequence of full depth ends it.
    """
    for name, number in (("breadth", breadth), ("width", width), ("depth", depth)):
        if number < 1:
            raise GraphError(f"tree_of_thought({name}={number}): it must be at least 1")
    score = None if _is_type(value) else cast("Callable[[T], float]", value)
    verdict = value if score is None else None
    worth_of = _worth(verdict) if verdict is not None else None
    graph = Graph("tree_of_thought", input=str, output=cast("type[list[T]]", list))

    async def expand(lm: "Runtime", beam: Sequence[_Found[T]], keep: int) -> list[_Found[T]]:
        """Thoughts from every survivor, the best `keep` of them first and held."""
        opened = [f.transcript + user(NEXT) if f.thoughts else f.transcript for f in beam]
        async with lm.fork(opened, each=breadth) as kids:
            made = await kids.gen(thought, max_tokens=MAX_TOKENS)
            if verdict is None or worth_of is None:
                assert score is not None
                worths = [score(generation.value) for generation in made]
            else:
                async with lm.fork([g.transcript + user(JUDGE) for g in made]) as judges:
                    verdicts = await judges.gen(verdict, max_tokens=MAX_TOKENS, temperature=0.0)
                worths = [worth_of(v.value) for v in verdicts]
            found = [
                _Found((*beam[i // breadth].thoughts, g.value), worth, g.transcript)
                for i, (g, worth) in enumerate(zip(made, worths, strict=True))
            ]
            ranked = _distinct(sorted(found, key=lambda f: -f.worth))[:keep]
            held = kids.keep(f.transcript for f in ranked)
        return [_Found(f.thoughts, f.worth, t) for f, t in zip(ranked, held, strict=True)]

    async def breadth_first(lm: "Runtime", root: _Found[T]) -> _Found[T]:
        beam = [root]
        for _ in range(depth):
            beam = await expand(lm, beam, width)
        return beam[0]

    async def depth_first(lm: "Runtime", at: _Found[T]) -> _Found[T]:
        """The first full sequence below, else the best and longest that was met."""
        if len(at.thoughts) == depth:
            return at
        best = at
        for kid in await expand(lm, [at], width):
            if kid.worth <= 0:
                break
            found = await depth_first(lm, kid)
            if len(found.thoughts) == depth:
                return found
            best = max(best, found, key=lambda f: (len(f.thoughts), f.worth))
        return best

    @graph.step
    async def explore(ctx: Ctx, task: str) -> list[T]:
        root = _Found[T]((), 0.0, ctx.lm.transcript(system(instructions), user(task)))
        walk = breadth_first if search == "bfs" else depth_first
        found = await walk(ctx.lm, root)
        ctx.goto(found.transcript)
        return list(found.thoughts)

    graph.edge(graph.start, explore)
    graph.edge(explore, graph.end)
    return graph.compile()


def _distinct(found: Sequence[_Found[T]]) -> list[_Found[T]]:
    """Without those whose thoughts another one has too: a level must not keep the same way twice."""
    kept: list[_Found[T]] = []
    for one in found:
        if all(one.thoughts != other.thoughts for other in kept):
            kept.append(one)
    return kept


def _is_type(value: object) -> bool:
    return isinstance(value, type) or get_origin(value) is not None


def _worth(verdict: Any) -> Callable[[Any], float]:
    if verdict in (int, float, bool):
        return float
    options: list[Any] = []
    if get_origin(verdict) is Literal:
        options = list(get_args(verdict))
    elif isinstance(verdict, type) and issubclass(verdict, Enum):
        options = list(verdict)
    if not options:
        raise GraphError(
            f"tree_of_thought(value={verdict!r}): take a function, int, float, bool, or a Literal or Enum "
            "whose first option is the best"
        )
    return lambda given: float(len(options) - 1 - options.index(given))
