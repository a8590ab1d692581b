"""Where a schema contradicts itself: bounds of which the lower one lies above the upper one."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from typing_extensions import TypeIs

from agentree.runtime.constraint.documents import Place, pointer

_BOUNDS: Final = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
)
_STRICT: Final = (
    ("exclusiveMinimum", "maximum"),
    ("minimum", "exclusiveMaximum"),
    ("exclusiveMinimum", "exclusiveMaximum"),
)
_VALUES: Final = ("enum", "const", "default", "examples")
"""Keywords that hold values and no schemas."""


def clash(schema: object) -> str:
    """The first two bounds that no value satisfies and their place, in words; "" where there are none."""
    for place, node in _objects(schema, ()):
        for low, high in (*_BOUNDS, *_STRICT):
            least, most = node.get(low), node.get(high)
            if not (_is_number(least) and _is_number(most)):
                continue
            if least > most or (least == most and (low, high) in _STRICT):
                return f"{low} {least} and {high} {most} at {pointer(place)}"
    return ""


def _objects(node: object, place: Place) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    if isinstance(node, Mapping):
        found = cast("Mapping[str, Any]", node)
        yield place, found
        for key, inner in found.items():
            if key not in _VALUES or place[-1:] == ("properties",):
                yield from _objects(inner, (*place, key))
    elif isinstance(node, list | tuple):
        for i, inner in enumerate(cast("list[object]", node)):
            yield from _objects(inner, (*place, i))


def _is_number(value: Any) -> TypeIs[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
