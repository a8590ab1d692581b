"""What a caller asks for: a regular expression, one of several texts, or a JSON Schema."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from agentree.errors import ConstraintError, InvalidArgument


@dataclass(frozen=True)
class Regex:
    """Text that the whole pattern matches, in Python's spelling.

    `\\d`, `\\w` and `\\s` are their ASCII members and `\\D`, `\\W`, `\\S` what is outside the Unicode
    classes: whatever is generated matches under `re.fullmatch` with and without `re.ASCII`, which only
    knows no case beyond ASCII.
    """

    pattern: str

    def __post_init__(self) -> None:
        """Raise InvalidArgument for what is no text: a compiled pattern, or bytes."""
        if not isinstance(cast("object", self.pattern), str):
            inner = getattr(self.pattern, "pattern", "...")
            raise InvalidArgument(f"Regex({self.pattern!r}): a pattern is a string: write Regex({inner!r})")


@dataclass(frozen=True)
class Choice:
    """Exactly one of the options, as bare text."""

    options: Sequence[str]

    def __post_init__(self) -> None:
        """Raise InvalidArgument for what is no list of texts."""
        options = cast("object", self.options)
        if isinstance(options, str) or not isinstance(options, Sequence):
            raise InvalidArgument(f"Choice({options!r}): write a list of texts, Choice(['yes', 'no'])")
        for option in cast("Sequence[object]", options):
            if not isinstance(option, str):
                raise InvalidArgument(
                    f"Choice({options!r}): {option!r} is no string; for other values write Literal[...]"
                )

    def __hash__(self) -> int:
        return hash(tuple(self.options))


@dataclass(frozen=True)
class JSONSchema:
    """A JSON value that the schema (draft 2020-12 or 7) accepts, properties in declaration order."""

    schema: Mapping[str, object]
    spacing: Literal["template", "compact", "any"] = "template"
    closed: bool = False
    """Objects without `additionalProperties` are closed."""
    lenient: bool = False
    """Keywords that can't be enforced are checked afterwards instead of refused."""
    fallback: Literal["llguidance"] | None = None
    """Who enforces a schema that would be refused. llguidance is an optional extra."""

    def __post_init__(self) -> None:
        """Raise InvalidArgument for a spacing or fallback that there is none of."""
        if self.fallback not in (None, "llguidance"):
            raise InvalidArgument(f"fallback={self.fallback!r} must be 'llguidance' or None")
        if self.spacing not in ("template", "compact", "any"):
            raise InvalidArgument(f"spacing={self.spacing!r} must be 'template', 'compact' or 'any'")

    def __hash__(self) -> int:
        return hash((repr(self.schema), self.spacing, self.closed, self.lenient, self.fallback))

    def text(self) -> str:
        """The schema as JSON. Raises ConstraintError if it is none."""
        given = cast("object", self.schema)
        if not isinstance(given, Mapping):
            raise ConstraintError(
                f"JSONSchema({given!r}) is no schema: write a dict, as in {{'type': 'integer'}}"
            )
        try:
            return json.dumps(given, ensure_ascii=False, allow_nan=False, default=_plain)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConstraintError(
                f"the schema is no JSON ({error}): write dicts with text keys, lists, texts, finite numbers, "
                "true, false and null"
            ) from error


def _plain(value: object) -> object:
    """Mappings of other kinds as JSON has them."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, object]", value))
    raise TypeError(f"{value!r} of type {type(value).__name__}")
