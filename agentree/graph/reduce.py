"""What a join makes of its branches' results: lists, the best few, or one winner."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, cast, get_type_hints

from typing_extensions import TypeVar

from agentree.errors import GraphError

T = TypeVar("T")


class Selector(Generic[T]):
    """A reducer that picks one branch: the only kind that `keep="winner"` takes."""

    def __init__(
        self, name: str, pick: Callable[[Sequence[T]], int], item: Any, *, eager: bool = False
    ) -> None:
        self.name = name
        self.item = item
        """Type of the results, `Any` where it is not known."""
        self.eager = eager
        """Whether the first branch to arrive decides, so that the others are cancelled."""
        self._pick = pick

    def __repr__(self) -> str:
        return f"<Selector {self.name}>"

    def __call__(self, results: Sequence[T], /) -> T:
        """The winner. Raises GraphError if there are no results."""
        return results[self.pick(results)]

    def pick(self, results: Sequence[T]) -> int:
        """Index of the winner. Raises GraphError if there are no results."""
        if not results:
            raise GraphError(
                f"{self.name}() has nothing to pick from: no branch reached the join; lead to it only where "
                "there are branches, or join with a reducer that takes an empty list"
            )
        return self._pick(results)


class Collect(Generic[T]):
    """All results as a list, in fork order."""

    def __init__(self, item: Any) -> None:
        self.item = item

    def __repr__(self) -> str:
        return "<collect>"

    def __call__(self, results: Sequence[T], /) -> list[T]:
        """The results."""
        return list(results)


def collect(item: type[T]) -> Callable[[Sequence[T]], list[T]]:
    """A reducer that gives all results, in fork order."""
    return Collect[T](item)


def top(k: int, key: Callable[[T], float]) -> Callable[[Sequence[T]], list[T]]:
    """A reducer that gives the `k` results with the highest keys, best first; equals stay in fork order."""
    if k < 1:
        raise GraphError(f"top({k}, ...): it must keep at least 1")

    def best_of(results: Sequence[T]) -> list[T]:
        return sorted(results, key=key, reverse=True)[:k]

    return best_of


def best(key: Callable[[T], float]) -> Selector[T]:
    """Picks the result with the highest key; among equals the first in fork order."""

    def pick(results: Sequence[T]) -> int:
        keys = [key(result) for result in results]
        return keys.index(max(keys))

    return Selector[T]("best", pick, Any)


def vote(item: type[T]) -> Selector[T]:
    """Picks the result that occurs most often; among equals the first in fork order."""

    def pick(results: Sequence[T]) -> int:
        counts = [sum(1 for other in results if other == result) for result in results]
        return counts.index(max(counts))

    return Selector[T]("vote", pick, item)


def first(item: type[T]) -> Selector[T]:
    """The first branch to finish; the others are cancelled."""
    return Selector[T]("first", lambda results: 0, item, eager=True)


def joined_type(reduce: Callable[[Sequence[Any]], Any], item: Any) -> Any:
    """What a join gives, as far as that can be seen; `item` is what its arms give."""
    if isinstance(reduce, Selector):
        return item
    if isinstance(reduce, Collect):
        return list[cast("Any", reduce).item]
    try:
        return get_type_hints(reduce).get("return", Any)
    except (NameError, TypeError):
        return Any
