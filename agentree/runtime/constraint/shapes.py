"""Shapes of arrays and objects, and when one is plainly part of another."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from agentree.errors import ConstraintError

FALSE: Final = 0
TRUE: Final = 1

MOST_SHAPES: Final = 3000
"""A set with more alternative shapes is refused: combinations of `anyOf`, `oneOf` and `not` multiply."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Property:
    """A declared property; `value` numbers a set."""

    key: str
    value: int
    required: bool


@dataclass(frozen=True)
class Layer:
    """What one schema says of undeclared keys: sets by pattern, and `extra` where none matches."""

    patterns: tuple[tuple[str, int], ...]
    extra: int


@dataclass(frozen=True)
class Witness:
    """Some property outside of `declared` must break a rule.

    The rule is `layer`, or that keys are in the set `names`.
    """

    declared: tuple[str, ...]
    layer: Layer | None
    names: int = TRUE


@dataclass(frozen=True)
class Objects:
    """Objects whose keys come in the order of `properties`, then the undeclared ones."""

    properties: tuple[Property, ...] = ()
    layers: tuple[Layer, ...] = ()
    names: int = TRUE
    low: int = 0
    high: int | None = None
    shut: bool = False
    """Closed, unless `said`."""
    said: bool = False
    """Some schema says what undeclared properties are."""
    witnesses: tuple[Witness, ...] = ()

    @property
    def closed(self) -> bool:
        """No undeclared keys."""
        shut = self.shut and not self.said
        return shut or any(not layer.patterns and layer.extra == FALSE for layer in self.layers)


@dataclass(frozen=True)
class Arrays:
    """Arrays: sets of the first items, of the rest, bounds of the count."""

    prefix: tuple[int, ...] = ()
    rest: int = TRUE
    low: int = 0
    high: int | None = None
    contains: tuple[tuple[int, int, int | None], ...] = ()
    """(set, least, most): how many items are in the set."""
    unique: str = ""
    """Items differ; the place that says so."""


def item(shape: Arrays, index: int) -> int:
    """The set of the item at `index`."""
    return shape.prefix[index] if index < len(shape.prefix) else shape.rest


def least(a: int | None, b: int | None) -> int | None:
    """The smaller bound; None is no bound."""
    return b if a is None else a if b is None else min(a, b)


def tidy(shape: Arrays) -> Arrays | None:
    """With the count that void items allow; None if nothing is left."""
    high = shape.high
    for index, number in enumerate((*shape.prefix, shape.rest)):
        if number == FALSE:
            high = least(high, index)
            break
    if high is not None and high < shape.low:
        return None
    if high is not None and high < 2 and shape.unique:
        shape = replace(shape, unique="")
    return shape if high == shape.high else replace(shape, high=high)


def distinct(shapes: Iterable[_T], part_of: Callable[[_T, _T], bool] | None = None) -> tuple[_T, ...]:
    """Shapes without duplicates, and without those that are part of another. Raises past `MOST_SHAPES`."""
    out = list(dict.fromkeys(shapes))
    if part_of is not None and 1 < len(out) <= 300:
        kept: list[_T] = []
        for index, shape in enumerate(out):
            if any(part_of(shape, other) for other in kept):
                continue
            if any(part_of(shape, other) and not part_of(other, shape) for other in out[index + 1 :]):
                continue
            kept.append(shape)
        out = kept
    if len(out) > MOST_SHAPES:
        raise ConstraintError(
            f"the combinations of anyOf, oneOf, allOf and not make more than {MOST_SHAPES} shapes: "
            "use fewer alternatives"
        )
    return tuple(out)
