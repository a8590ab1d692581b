"""What a caller asks for: a regular expression, one of several texts, or a JSON Schema."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Regex:
    """Text that the whole pattern matches, in Python's spelling.

    `\\d`, `\\w` and `\\s` are their ASCII members and `\\D`, `\\W`, `\\S` what is outside the Unicode
    classes: whatever is generated matches under `re.fullmatch` with and without `re.ASCII`.
    """

    pattern: str


@dataclass(frozen=True)
class Choice:
    """Exactly one of the options, as bare text."""

    options: Sequence[str]

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

    def __hash__(self) -> int:
        return hash((json.dumps(self.schema, default=repr), self.spacing, self.closed, self.lenient))
