"""What the keywords of a schema may be given: read, or refused with the keyword and its place."""

from collections.abc import Mapping, Sequence
from typing import Final, cast

from agentree.errors import ConstraintError
from agentree.runtime.constraint.documents import Place, pointer

TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

MOST_MEMBERS: Final = 10_000
"""Most members of an array or object that are counted one by one."""
MOST_KEYS: Final = 100
"""Most properties that an object can be asked to have at least: their keys differ, so all are known."""
MOST_CHARACTERS: Final = 1_000_000
"""Most characters that a string can be asked to have at least."""
_COUNTED: Final = ("minItems", "minProperties", "maxProperties", "minContains")


def types(schema: Mapping[str, object], place: Place) -> Sequence[str]:
    """The types that a schema allows."""
    stated = schema.get("type")
    if stated is None:
        return ("null", "boolean", "number", "string", "array", "object")
    listed = [stated] if isinstance(stated, str) else stated
    if not isinstance(listed, list):
        raise ConstraintError(f"'type' at {pointer(place)} is {stated!r}: a name or a list of names")
    for name in cast("list[object]", listed):
        if name not in TYPES:
            raise ConstraintError(f"'type' at {pointer(place)} is {name!r}: known are {', '.join(TYPES)}")
    return cast("list[str]", listed)


def names(listed: object, keyword: str, place: Place) -> list[str]:
    """A list of property names."""
    found = cast("list[object]", listed) if isinstance(listed, list) else [None]
    if not all(isinstance(n, str) for n in found):
        raise ConstraintError(f"{keyword!r} at {pointer(place)} is {listed!r}: a list of property names")
    return cast("list[str]", found)


def count(schema: Mapping[str, object], keyword: str, place: Place) -> int | None:
    """A length or a number of members; None where the keyword is not there."""
    value = schema.get(keyword)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 0:
        raise ConstraintError(f"{keyword!r} at {pointer(place)} is {value!r}: a whole number from 0 on")
    most = MOST_KEYS if keyword == "minProperties" else MOST_MEMBERS
    if keyword in _COUNTED and value > most:
        raise ConstraintError(
            f"{keyword!r} at {pointer(place)} can't be enforced: {value} members are more than the "
            f"{most:,} that are counted; give a smaller number"
        )
    if keyword == "minLength" and value > MOST_CHARACTERS:
        raise ConstraintError(
            f"'minLength' at {pointer(place)} can't be enforced: a text of {value} characters is longer "
            f"than {MOST_CHARACTERS:,}; give a smaller number"
        )
    return int(value)


def number(value: object, keyword: str, place: Place) -> int | float:
    """A bound."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConstraintError(f"{keyword!r} at {pointer(place)} is {value!r}, no number")
    return value
