"""Values of the standard library that are one thing each: as plain parts, and back to the bit.

What two equal values may differ in counts as well: the zone of a time and its fold, the sign of a zero, the
bits of a NaN, the exponent of a Decimal.
"""

import datetime
import decimal
import fractions
import math
import pathlib
import re
import struct
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from pydantic_core import TzInfo

from agentree.graph.journal.unstorable import Unstorable

_SURROGATE = re.compile("[\ud800-\udfff]")
_MOST_BITS = 1 << 12
"""Longer integers are written in hexadecimal: in decimal they take long, or are refused by Python itself."""
_NAN = struct.pack(">d", math.nan)


class Standard(NamedTuple):
    """How values of exactly one class are written: `parts` are plain values and lists of such."""

    name: str
    parts: Callable[[Any], Any]
    made: Callable[[Any], Any]


def is_text(value: str) -> bool:
    """Whether a string comes through JSON as it is: two lone surrogates may come back as one character."""
    return value.isascii() or _SURROGATE.search(value) is None


def plain(value: Any) -> Any:
    """None, bool, int, float, str or bytes, or a list of such, as JSON values."""
    cls = cast("type[Any]", type(value))
    if value is None or cls is bool:
        return value
    if cls is str:
        return value if is_text(value) else {"is": "str", "v": value.encode("utf-8", "surrogatepass").hex()}
    if cls is int:
        return value if value.bit_length() <= _MOST_BITS else {"is": "int", "v": hex(value)}
    if cls is float:
        if value == value or struct.pack(">d", value) == _NAN:
            return value
        return {"is": "float", "v": struct.pack(">d", value).hex()}
    if cls is bytes:
        return {"is": "bytes", "v": bytes.hex(value)}
    return [plain(part) for part in cast("list[Any]", value)]


def unplain(data: Any) -> Any:
    """What `plain` was given."""
    if isinstance(data, list):
        return [unplain(part) for part in cast("list[Any]", data)]
    if isinstance(data, dict):
        found = cast("dict[str, str]", data)
        return PLAIN[found["is"]](found["v"])
    return data


def _float(bits: str) -> float:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    return value


PLAIN: dict[str, Callable[[str], Any]] = {
    "str": lambda v: bytes.fromhex(v).decode("utf-8", "surrogatepass"),
    "int": lambda v: int(v, 16),
    "float": _float,
    "bytes": bytes.fromhex,
}
PLAIN_CLASSES = (type(None), bool, int, float, str, bytes)


def _zone(zone: datetime.tzinfo | None) -> list[Any] | None:
    if zone is None:
        return None
    cls = type(zone)
    if cls is datetime.timezone:
        offset, *name = cast("Any", zone).__getinitargs__()
        return ["offset", _span(offset), *name]
    if cls is zoneinfo.ZoneInfo and (key := cast("str | None", cast("Any", zone).key)) is not None:
        return ["zone", key]
    if cls is TzInfo:
        return ["read", cast("datetime.timedelta", zone.utcoffset(None)) // datetime.timedelta(seconds=1)]
    raise Unstorable(
        f"a time in the zone {zone!r} ({cls.__name__})",
        "use datetime.timezone, or a ZoneInfo that has a key",
    )


def _zoned(parts: list[Any] | None) -> datetime.tzinfo | None:
    if parts is None:
        return None
    kind, what, *name = parts
    if kind == "zone":
        try:
            return zoneinfo.ZoneInfo(what)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError) as e:
            raise Unstorable(f"a time in the zone {what!r}", f"this machine does not know it ({e})") from e
    if kind == "read":
        return TzInfo(what)
    return datetime.timezone(_spanned(what), *name)


def _span(value: datetime.timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _spanned(parts: list[int]) -> datetime.timedelta:
    return datetime.timedelta(*parts)


def _moment(value: Any) -> list[Any]:
    return [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, _zone(value.tzinfo)]


def _datetime(parts: list[Any]) -> datetime.datetime:
    return datetime.datetime.fromisoformat(parts[0]).replace(fold=parts[1], tzinfo=_zoned(parts[2]))


def _time(parts: list[Any]) -> datetime.time:
    return datetime.time.fromisoformat(parts[0]).replace(fold=parts[1], tzinfo=_zoned(parts[2]))


def _uuid(parts: list[Any]) -> uuid.UUID:
    return uuid.UUID(parts[0], is_safe=uuid.SafeUUID(parts[1]))


Way = Callable[[Any], Any]
_WAYS: tuple[tuple[type, Way, Way], ...] = (
    (complex, lambda v: [v.real, v.imag], lambda p: complex(*p)),
    (datetime.date, lambda v: v.isoformat(), datetime.date.fromisoformat),
    (datetime.datetime, _moment, _datetime),
    (datetime.time, _moment, _time),
    (datetime.timedelta, _span, _spanned),
    (decimal.Decimal, str, decimal.Decimal),
    (fractions.Fraction, lambda v: [v.numerator, v.denominator], lambda p: fractions.Fraction(*p)),
    (uuid.UUID, lambda v: [v.hex, v.is_safe.value], _uuid),
    (range, lambda v: [v.start, v.stop, v.step], lambda p: range(*p)),
    (re.Pattern, lambda v: [v.pattern, v.flags], lambda p: re.compile(*p)),
    *((zone, _zone, _zoned) for zone in (datetime.timezone, zoneinfo.ZoneInfo, cast("type", TzInfo))),
    *((path, str, path) for path in (pathlib.PosixPath, pathlib.WindowsPath)),
    *((path, str, path) for path in (pathlib.PurePosixPath, pathlib.PureWindowsPath)),
)
STANDARD: dict[type, Standard] = {cls: Standard(cls.__name__, parts, made) for cls, parts, made in _WAYS}
BY_NAME: dict[str, Standard] = {standard.name: standard for standard in STANDARD.values()}
