"""Values as text for a model: canonical JSON, results, and clipping that says so."""

import json
import re
from collections.abc import Iterator
from enum import Enum
from itertools import islice
from typing import Any, Final, cast

from pydantic import TypeAdapter

RESULT_LIMIT: Final = 16_000
"""Default for the longest text of a tool result, in characters."""

MOST_ITEMS: Final = 10_000
"""Most items that are read of a generator that a tool returned."""

MIN_LIMIT: Final = 100
"""Smallest limit that `clip` takes, in characters."""

_SURROGATES = re.compile("[\ud800-\udfff]")
_any: Final = TypeAdapter[Any](Any)


def canonical_json(value: object) -> str:
    """JSON in the one spacing that is used throughout: ", " and ": ", non-ASCII kept, keys as they come.

    Dates, models and the like are written as pydantic writes them, anything else as its `str`. A lone
    surrogate stays an escape, so that the text can always be encoded.
    """
    text = json.dumps(value, ensure_ascii=False, default=_jsonable)
    return _SURROGATES.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def result_text(value: object) -> str:
    """What a model is told that a tool returned: a str as it is, anything else as JSON, else its `str`."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, Iterator):
        value = _items(cast("Iterator[object]", value))
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, set | frozenset):
        # the order of a set differs between processes; a result must not
        value = sorted(cast("set[object]", value), key=canonical_json)
    try:
        plain = _jsonable(value)
        return _encodable(plain) if isinstance(plain, str) else canonical_json(plain)
    except (TypeError, ValueError, RecursionError):
        return _encodable(str(value))  # such as a list that contains itself


def _items(values: Iterator[object]) -> list[object]:
    """What an iterator gives; an endless one is left after MOST_ITEMS."""
    items = list(islice(values, MOST_ITEMS + 1))
    if len(items) > MOST_ITEMS:
        items[-1] = f"[… more than {MOST_ITEMS:,} items: the rest was not read …]"
    return items


def clip(text: str, limit: int) -> str:
    """At most `limit` characters: the head, a notice of how much is missing, and the tail."""
    if limit < MIN_LIMIT:
        raise ValueError(
            f"a limit of {limit} characters leaves no room for the notice: take {MIN_LIMIT} or more"
        )
    if len(text) <= limit:
        return text
    notice = f"\n[… {len(text):,} characters in all, cut to {limit:,} …]\n"
    room = limit - len(notice)
    tail = room // 4
    return text[: room - tail] + notice + text[len(text) - tail :]


def shorten(text: str, limit: int) -> str:
    """One line of at most `limit` characters for use inside of a message."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _jsonable(value: object) -> object:
    return _any.dump_python(value, mode="json", fallback=str, warnings="none")


def _encodable(text: str) -> str:
    return _SURROGATES.sub(lambda m: f"\\u{ord(m[0]):04x}", text)
