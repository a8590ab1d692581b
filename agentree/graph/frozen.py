"""Read-only views of a state: what the branches of a fork see of it."""

import copy
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any, NoReturn, cast

from pydantic import BaseModel

from agentree.errors import GraphError

REMEDY = "the state is read-only inside a fork: return the value, and write it into the state after the join"


def _refuse(*args: object, **kwargs: object) -> NoReturn:
    raise GraphError(REMEDY)


class FrozenList(list[Any]):
    """A list that can't be changed."""

    __slots__ = ()
    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse


class FrozenDict(dict[Any, Any]):
    """A dict that can't be changed."""

    __slots__ = ()
    update = setdefault = pop = popitem = clear = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse


class FrozenSet(set[Any]):
    """A set that can't be changed."""

    __slots__ = ()
    add = update = remove = discard = pop = clear = difference_update = intersection_update = _refuse
    symmetric_difference_update = __iand__ = __ior__ = __isub__ = __ixor__ = _refuse


def freeze(value: Any) -> Any:
    """A copy of a state that refuses changes, as deep as dataclasses, models and containers go.

    Other objects (clients, locks) are shared as they are.
    """
    seen: dict[int, Any] = {}
    return _frozen_object(value, seen) if _is_plain(value) else _freeze(value, seen)


def _freeze(value: Any, seen: dict[int, Any]) -> Any:
    key = id(value)
    if key in seen:
        return seen[key]
    if isinstance(value, list):
        frozen: Any = FrozenList()
        seen[key] = frozen
        list.extend(frozen, [_freeze(item, seen) for item in cast("list[Any]", value)])
        return frozen
    if isinstance(value, dict):
        frozen = FrozenDict()
        seen[key] = frozen
        dict.update(frozen, {k: _freeze(v, seen) for k, v in cast("dict[Any, Any]", value).items()})
        return frozen
    if isinstance(value, set):
        frozen = FrozenSet()
        set.update(frozen, cast("set[Any]", value))
        return frozen
    if type(value) is tuple:
        return tuple(_freeze(item, seen) for item in cast("tuple[Any, ...]", value))
    if isinstance(value, BaseModel) or (is_dataclass(value) and not isinstance(value, type)):
        return _frozen_object(value, seen)
    return value


def _frozen_object(value: Any, seen: dict[int, Any]) -> Any:
    frozen = copy.copy(value)
    seen[id(value)] = frozen
    for name, inner in _fields(frozen).items():
        object.__setattr__(frozen, name, _freeze(inner, seen))
    object.__setattr__(frozen, "__class__", _frozen_class(cast("Any", type(value))))
    return frozen


def _is_plain(value: object) -> bool:
    """Whether a state is an instance of a simple class of the user's: attributes and nothing else."""
    cls = type(value)
    return (
        cls.__module__ not in ("builtins", "types") and cls.__base__ is object and hasattr(value, "__dict__")
    )


def _fields(value: Any) -> Mapping[str, Any]:
    names = list(getattr(value, "__dict__", {})) + [
        name for cls in type(value).__mro__ for name in _slots(cls) if hasattr(value, name)
    ]
    return {name: getattr(value, name) for name in names if not name.startswith("__")}


def _slots(cls: type) -> tuple[str, ...]:
    slots: Any = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


@lru_cache(maxsize=256)
def _frozen_class(cls: type) -> type:
    body: dict[str, Any] = {"__slots__": (), "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    body["__class__"] = property(lambda _: cls)  # equality of dataclasses and models asks for it
    return type(cls)(cls.__name__, (cls,), body | {"__setattr__": _refuse, "__delattr__": _refuse})
