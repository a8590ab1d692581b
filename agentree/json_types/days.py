"""Ranges of days as patterns over `YYYY-MM-DD`, whose texts sort as the days do."""

from datetime import date
from typing import Final

_DIGITS: Final = "0123456789"


def day_range(low: date | None, high: date | None) -> str:
    """The pattern of the days from `low` to `high`, both included; None is no bound.

    It tells days apart only among texts that are dates. Raises ValueError if there is no such day.
    """
    if low is not None and high is not None and low > high:
        raise ValueError(f"no day lies between {low} and {high}")
    first = "0000-00-00" if low is None else low.isoformat()
    last = "9999-99-99" if high is None else high.isoformat()
    return f"^(?:{'|'.join(_between(first, last))})$"


def _between(first: str, last: str) -> list[str]:
    size = next((i for i, (a, b) in enumerate(zip(first, last, strict=True)) if a != b), len(first))
    if size == len(first):
        return [first]
    before, low, high = first[:size], first[size], last[size]
    out = [before + low + rest for rest in _from(first[size + 1 :])]
    out += _some(before, chr(ord(low) + 1), chr(ord(high) - 1), last[size + 1 :])
    return out + [before + high + rest for rest in _upto(last[size + 1 :])]


def _from(text: str) -> list[str]:
    out: list[str] = []
    for i, char in enumerate(text):
        if char in _DIGITS:
            out += _some(text[:i], chr(ord(char) + 1), "9", text[i + 1 :])
    return [text, *out]


def _upto(text: str) -> list[str]:
    out: list[str] = []
    for i, char in enumerate(text):
        if char in _DIGITS:
            out += _some(text[:i], "0", chr(ord(char) - 1), text[i + 1 :])
    return [text, *out]


def _some(before: str, low: str, high: str, like: str) -> list[str]:
    """`before`, one of some digits, and anything of the form of `like`."""
    if low > high:
        return []
    rest = "".join("[0-9]" if c in _DIGITS else c for c in like)
    return [f"{before}[{low}-{high}]{rest}" if low != high else f"{before}{low}{rest}"]
