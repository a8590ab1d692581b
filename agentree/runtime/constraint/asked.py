"""What is asked for instead of a type, by mistake: values, schemas that are not wrapped, functions."""

import dataclasses
import enum
import inspect
import re
from collections.abc import Mapping, Set
from typing import Any, cast

from pydantic import BaseModel

from agentree.errors import ConstraintError
from agentree.runtime.constraint.spec import Choice, JSONSchema, Regex

SHOWN = 80
"""Characters of a value that an error shows."""


def refuse_values(asked: object) -> None:
    """Raise ConstraintError, with what to write, for what can't be a type."""
    remedy = _remedy(asked)
    if remedy is not None:
        raise ConstraintError(f"{shortened(repr(asked), SHOWN)} is no type of output: {remedy}")


def shortened(text: str, most: int = 300) -> str:
    """The beginning of a text, if it is long."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _remedy(asked: object) -> str | None:
    if asked is None or isinstance(asked, type | Regex | Choice | JSONSchema):
        return None
    if isinstance(asked, Mapping):
        return "for a JSON Schema write JSONSchema({...}), for a dictionary a type such as dict[str, int]"
    if isinstance(asked, str):
        return "write str for free text, Choice([...]) for one of several texts, Regex(...) for a pattern"
    if isinstance(asked, list | tuple | Set):
        return "write Choice([...]) for one of several texts, a type such as list[int] for a list"
    if isinstance(asked, re.Pattern):
        return f"write Regex({cast('re.Pattern[Any]', asked).pattern!r})"
    if isinstance(asked, BaseModel | enum.Enum | int | float | complex | bytes) or (
        dataclasses.is_dataclass(asked)
    ):
        return f"pass the type itself, {type(asked).__name__}"
    if inspect.isroutine(asked):
        return "a function is called as a tool: t.call([tool(function)], output=...)"
    return None
