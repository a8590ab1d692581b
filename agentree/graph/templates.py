"""Templates without tools: the best of several answers, and many texts to one result."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast, overload

from typing_extensions import TypeVar

from agentree.errors import GraphError
from agentree.graph.build import Graph
from agentree.graph.ctx import Ctx
from agentree.graph.reduce import collect
from agentree.messages import Message, user
from agentree.tools import canonical_json

if TYPE_CHECKING:
    from agentree.graph.program import Program
    from agentree.lm import Generation

T = TypeVar("T")
U = TypeVar("U")

READ = "Read the text and note what matters."
COMBINE = "Combine these notes:"
MAX_TOKENS = 256
"""Longest answer, in tokens."""


@overload
def best_of_n(
    *,
    output: type[T],
    n: int = 5,
    instructions: str = "",
    pick: Callable[[Sequence[T]], T] | None = None,
    name: str = "best_of_n",
) -> "Program[None, str, T]": ...
@overload
def best_of_n(
    *,
    output: Any,
    n: int = 5,
    instructions: str = "",
    pick: Callable[[Sequence[Any]], Any] | None = None,
    name: str = "best_of_n",
) -> "Program[None, str, Any]": ...
def best_of_n(
    *,
    output: type[T],
    n: int = 5,
    instructions: str = "",
    pick: Callable[[Sequence[T]], T] | None = None,
    name: str = "best_of_n",
) -> "Program[None, str, T]":
    """Ask once, answer `n` times, go on with one answer.

    Args:
        output: Type of the answer; it is forced. A type checker infers that of a class; write that of another
            form: `p: Program[None, str, Literal["yes", "no"]] = best_of_n(output=Literal["yes", "no"])`.
        n: How many answers are sampled, on branches of one transcript.
        instructions: What the model is told first.
        pick: Takes one of the values. Without it, the most frequent value wins, and among equals the one that
            the model found likeliest.
        name: Of the program; where another program calls it, traces and plans show it.
    """
    if pick is not None and not callable(cast("object", pick)):
        raise GraphError(f"best_of_n(pick={pick!r}): write a function that takes one of a list of values")
    graph = Graph(name, input=str, output=output)

    def attempt(ctx: Ctx, question: str) -> Message:
        return user(question)

    node = graph._sample(n, output, max_tokens=MAX_TOKENS, temperature=1.0, system=instructions or None)(
        attempt
    )

    @graph.step
    async def choose(ctx: Ctx, made: "list[Generation[T]]") -> T:
        values = [generation.value for generation in made]
        if pick is None:
            winner = made[_favourite(values, [generation.logprob for generation in made])]
            ctx.goto(winner.transcript)
            return winner.value
        value = pick(values)
        picked = [generation for generation in made if generation.value is value]
        if picked:
            ctx.goto(picked[0].transcript)
        return value

    graph.edge(graph.start, node)
    graph.edge(node, choose)
    graph.edge(choose, graph.end)
    return graph.compile()


def _favourite(values: Sequence[Any], logprobs: Sequence[float | None]) -> int:
    counts = [sum(1 for other in values if other == value) for value in values]
    order = [
        (count, logprob or 0.0, -i) for i, (count, logprob) in enumerate(zip(counts, logprobs, strict=True))
    ]
    return -max(order)[2]


@overload
def map_reduce(
    *,
    item: Any,
    output: type[U],
    instructions: str = READ,
    parallel: int = 8,
    name: str = "map_reduce",
) -> "Program[None, Sequence[str], U]": ...
@overload
def map_reduce(
    *,
    item: Any,
    output: Any,
    instructions: str = READ,
    parallel: int = 8,
    name: str = "map_reduce",
) -> "Program[None, Sequence[str], Any]": ...
def map_reduce(
    *,
    item: type[T],
    output: type[U],
    instructions: str = READ,
    parallel: int = 8,
    name: str = "map_reduce",
) -> "Program[None, Sequence[str], U]":
    """Read many texts side by side, then make one result of what was found.

    Args:
        item: What each text becomes; it is forced.
        output: Type of the result; it is forced. Of a form that is no class, such as `Literal["yes", "no"]`,
            what the program gives has to be written for a type checker, as for `best_of_n`.
        instructions: What the model is told first, for each text and for the result: one shared prefix.
        parallel: So many texts at a time.
        name: Of the program; where another program calls it, traces and plans show it.
    """
    graph = Graph(name, input=Sequence[str], output=output)

    @graph.step
    async def texts(ctx: Ctx, given: Sequence[str]) -> list[str]:
        if isinstance(given, str):
            raise GraphError("map_reduce takes a list of texts, not one text")
        return list(given)

    @graph.llm(item, max_tokens=MAX_TOKENS, system=instructions)
    def read(ctx: Ctx, text: str) -> Message:
        return user(text)

    @graph.llm(output, max_tokens=2 * MAX_TOKENS, system=instructions)
    def combine(ctx: Ctx, found: list[T]) -> Message:
        notes = "\n".join(f"- {one if isinstance(one, str) else canonical_json(one)}" for one in found)
        return user(f"{COMBINE}\n{notes}")

    graph.edge(graph.start, texts)
    notes = graph.join(graph.map(texts, read, parallel=parallel), collect(item), keep="none")
    graph.edge(notes, combine)
    graph.edge(combine, graph.end)
    return graph.compile()
