"""Whether two values are the same in everything that a program can see of them, all the way down.

A plain reference for what a journal promises: types, order, signs, zones, attributes, and which parts are one
and the same object.
"""

import datetime
import struct
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Generic, TypeVar, cast

_FORMS: tuple[Any, ...] = (types.GenericAlias, type(Sequence[int]), type(Generic[TypeVar("T")]))
"""Of these Python itself remembers more than they say."""


def difference(a: Any, b: Any) -> str | None:
    """Where two values differ, with what is there; None if nowhere."""
    return _different(a, b, "value", {}, {})


def _different(a: Any, b: Any, at: str, to_b: dict[int, Any], to_a: dict[int, Any]) -> str | None:
    if type(a) is not type(b):
        return f"{at}: {type(a)} and {type(b)}"
    if _is(a, Enum):
        return None if a is b else f"{at}: {a!r} and {b!r}"
    if _is(a, *_FORMS):
        return None if a == b and repr(a) == repr(b) else f"{at}: {a!r} and {b!r}"
    if a is None or _is(a, bool):
        return None if a is b else f"{at}: {a!r} and {b!r}"
    if not _is(a, tuple, frozenset) or hasattr(a, "__dict__"):
        if to_b.get(id(a), b) is not b or to_a.get(id(b), a) is not a:
            if not _is_value(a):
                return f"{at}: {a!r} is shared in one of them only"
        elif id(a) in to_b:
            return None
        to_b[id(a)], to_a[id(b)] = b, a
    for what, one, other in _parts(a, b):
        if what == "plain":
            if one != other:
                return f"{at}: {one!r} and {other!r}"
        elif (found := _different(one, other, f"{at}{what}", to_b, to_a)) is not None:
            return found
    return None


def _is_value(a: Any) -> bool:
    kinds: Any = (str, bytes, int, float, complex, datetime.date, datetime.time, datetime.timedelta, Decimal)
    return _is(a, *kinds) or not (hasattr(a, "__dict__") or _is(a, list, dict, set, deque, bytearray))


def _parts(a: Any, b: Any) -> list[tuple[str, Any, Any]]:
    found: list[tuple[str, Any, Any]] = []
    ours: list[Any]
    theirs: list[Any]
    if _is(a, float):
        found.append(("plain", struct.pack(">d", a), struct.pack(">d", b)))
    elif _is(a, complex):
        found.append(("plain", struct.pack(">dd", a.real, a.imag), struct.pack(">dd", b.real, b.imag)))
    elif _is(a, datetime.datetime, datetime.time):
        naive = [one.replace(tzinfo=None, fold=0) for one in (a, b)]
        found.append(("plain", (naive[0], a.fold), (naive[1], b.fold)))
        found.append((".tzinfo", a.tzinfo, b.tzinfo))
    elif _is(a, datetime.tzinfo):
        found.append(("plain", repr(a), repr(b)))
    elif _is(a, Decimal):
        found.append(("plain", a.as_tuple(), b.as_tuple()))
    elif _is(a, str, bytes, int, bytearray):
        base: Any = next(one for one in (str, bytes, int, bytearray) if _is(a, one))
        found.append(("plain", base.__repr__(a), base.__repr__(b)))
    elif _is(a, dict):
        iterate: Any = cast("Any", OrderedDict if _is(a, OrderedDict) else dict).items
        ours, theirs = list(iterate(a)), list(iterate(b))
        found.append(("plain", len(ours), len(theirs)))
        for (key, inner), (other, inside) in zip(ours, theirs, strict=False):
            found += [(f"<key {key!r}>", key, other), (f"[{key!r}]", inner, inside)]
    elif _is(a, set, frozenset):
        found.append(("plain", len(a), len(b)))
        ours, theirs = (sorted(one, key=repr) for one in (a, b))
        found += [(f"{{{i}}}", one, other) for i, (one, other) in enumerate(zip(ours, theirs, strict=False))]
    elif _is(a, list, tuple, deque):
        found.append(("plain", len(a), len(b)))
        found += [(f"[{i}]", one, other) for i, (one, other) in enumerate(zip(a, b, strict=False))]
    elif _is(a, PurePath) or (not hasattr(a, "__dict__") and not _slots(a)):
        return [("plain", (repr(a), True), (repr(b), a == b))]
    if _is(a, defaultdict):
        found.append(("plain", a.default_factory, b.default_factory))
    if _is(a, deque):
        found.append(("plain", a.maxlen, b.maxlen))
    names = sorted(getattr(a, "__dict__", {})), sorted(getattr(b, "__dict__", {}))
    found.append(("plain", *names))
    found += [(f".{name}", a.__dict__[name], b.__dict__[name]) for name in names[0] if name in b.__dict__]
    for name in _slots(a):
        there = hasattr(a, name), hasattr(b, name)
        found.append(("plain", (name, there[0]), (name, there[1])))
        if all(there):
            found.append((f".{name}", getattr(a, name), getattr(b, name)))
    return found


def _slots(value: Any) -> list[str]:
    found: list[str] = []
    for cls in type(value).__mro__:
        names: Any = cls.__dict__.get("__slots__", ())
        found += [names] if _is(names, str) else names
    return [name for name in found if name not in ("__dict__", "__weakref__")]


def _is(value: Any, *kinds: type[Any]) -> bool:
    return isinstance(value, kinds)
