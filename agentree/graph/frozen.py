"""Read-only views of a state: what the branches of a fork see of it."""

import copy
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any, NoReturn, cast

from pydantic import BaseModel

from agentree.errors import GraphError
from agentree.graph.journal.attributes import attributes, slots

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


_CHANGES = {
    list: "append extend insert remove pop clear sort reverse __setitem__ __delitem__ __iadd__ __imul__",
    set: "add update remove discard pop clear difference_update intersection_update "
    "symmetric_difference_update __iand__ __ior__ __isub__ __ixor__",
    dict: "update setdefault pop popitem clear __setitem__ __delitem__ __ior__ "
    "subtract move_to_end __iadd__ __isub__ __iand__",
    deque: "append appendleft extend extendleft insert remove pop popleft clear rotate reverse "
    "__setitem__ __delitem__ __iadd__ __imul__",
}
"""By kind of container, the methods that change it: of dicts, also those of Counter and OrderedDict."""
_COPIES = frozenset(
    cast("Any", cls).__dict__[name]
    for cls in (set, deque, defaultdict, OrderedDict)
    for name in ("copy", "__copy__")
    if name in cls.__dict__
)
"""Methods that copy into another instance of the very class: that of a read-only copy is read-only."""


def freeze(value: Any) -> Any:
    """A copy of a state that refuses changes, as deep as dataclasses, models and containers go.

    Containers of a class of their own (Counter, deque, one of the user's) keep its methods and what a
    missing key gives. Other objects (clients, locks) are shared as they are.
    """
    seen: dict[int, Any] = {}
    return _frozen_object(value, seen) if _is_plain(value) else _freeze(value, seen)


def _freeze(value: Any, seen: dict[int, Any]) -> Any:
    key = id(value)
    if key in seen:
        return seen[key]
    cls = cast("type[Any]", type(value))
    if cls is list or cls is FrozenList:
        frozen: Any = FrozenList()
        seen[key] = frozen
        list.extend(frozen, [_freeze(item, seen) for item in cast("list[Any]", value)])
        return frozen
    if cls is dict or cls is FrozenDict:
        frozen = FrozenDict()
        seen[key] = frozen
        dict.update(frozen, {k: _freeze(v, seen) for k, v in cast("dict[Any, Any]", value).items()})
        return frozen
    if cls is set or cls is FrozenSet:
        frozen = seen[key] = FrozenSet()
        set.update(frozen, cast("set[Any]", value))
        return frozen
    if cls is tuple:
        return tuple(_freeze(item, seen) for item in cast("tuple[Any, ...]", value))
    if _is_named_tuple(cls):
        items = [_freeze(item, seen) for item in cast("tuple[Any, ...]", value)]
        made = cast("Any", tuple).__new__(cls, items)
        _fill(made, value, lambda inner: _freeze(inner, seen))
        return made
    if (base := _container(cls)) is not None:
        return _frozen_container(base, value, seen)
    if isinstance(value, BaseModel) or (is_dataclass(value) and not isinstance(value, type)):
        return _frozen_object(value, seen)
    return value


def _is_named_tuple(cls: type[Any]) -> bool:
    return tuple in cls.__mro__ and hasattr(cls, "_fields")


def _container(cls: type[Any]) -> type[Any] | None:
    return next((base for base in _CHANGES if issubclass(cls, base)), None)


def _frozen_container(base: Any, value: Any, seen: dict[int, Any]) -> Any:
    """A read-only copy of an instance of a class that inherits from a container."""
    cls = cast("type[Any]", type(value))
    if "__class__" in cls.__dict__:
        return value  # it is one already
    frozen = seen[id(value)] = base.__new__(_frozen_class(cls))
    _pour(base, frozen, value, lambda inner: _freeze(inner, seen))
    return frozen


def _copy_of(self: Any) -> Any:
    """A copy of a read-only copy: it can be changed."""
    cls: type[Any] = self.__class__
    base = cast("Any", _container(cls))
    made = base.__new__(cls)
    _pour(base, made, self, lambda inner: inner)
    return made


def _pour(base: type[Any], made: Any, value: Any, way: Callable[[Any], Any]) -> None:
    """Give a new instance the content and attributes of another one, without methods of its class."""
    if base is dict:
        if isinstance(value, defaultdict):
            defaultdict[Any, Any].__init__(made, cast("Any", value).default_factory)
        kind: Any = OrderedDict if isinstance(value, OrderedDict) else dict
        for key, inner in kind.items(value):
            kind.__setitem__(made, key, way(inner))
    elif base is set:
        set[Any].update(made, value)
    else:
        items = [way(item) for item in base.__iter__(value)]
        if base is deque:
            deque[Any].__init__(made, items, value.maxlen)
        else:
            list[Any].extend(made, items)
    _fill(made, value, way)


def _frozen_object(value: Any, seen: dict[int, Any]) -> Any:
    cls = cast("Any", type(value))
    frozen = seen[id(value)] = _copied(value)
    _fill(frozen, frozen, lambda inner: _freeze(inner, seen))
    object.__setattr__(frozen, "__class__", _frozen_class(cls))
    return frozen


def _copied(value: Any) -> Any:
    """Another instance with the same attributes, also where some are not set: copy.copy may ask for all."""
    if isinstance(value, BaseModel):
        return copy.copy(value)
    try:
        made = object.__new__(cast("Any", type(value)))
    except TypeError:  # its class inherits from a builtin, which makes it in its own way
        return copy.copy(value)
    _fill(made, value, lambda inner: inner)
    return made


def _fill(made: Any, value: Any, way: Callable[[Any], Any]) -> None:
    """Set the attributes of a value on another instance, without setters, as far as they are set."""
    places = tuple(slots(cast("Any", type(value))))
    attached, in_slots = attributes(value, places)
    if attached:
        made.__dict__.update({name: _way(name, way)(inner) for name, inner in attached.items()})
    for name, slot in places:
        if name in in_slots:
            slot.__set__(made, _way(name, way)(in_slots[name]))


def _way(name: str, way: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What the machinery of a class keeps, as that of models does, stays as it is."""
    return (lambda inner: inner) if name.startswith("__") else way


def _is_plain(value: object) -> bool:
    """Whether a state is an instance of a simple class of the user's: attributes and nothing else."""
    cls = type(value)
    return (
        cls.__module__ not in ("builtins", "types") and cls.__base__ is object and hasattr(value, "__dict__")
    )


@lru_cache(maxsize=256)
def _frozen_class(cls: type[Any]) -> type[Any]:
    body: dict[str, Any] = {"__slots__": (), "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    body["__class__"] = property(lambda _: cls)  # equality of dataclasses and models asks for it
    if (base := _container(cls)) is not None:
        body |= {name: _refuse for name in _CHANGES[base].split() if hasattr(cls, name)}
        if _copies(cls, "copy"):
            body["copy"] = _copy_of
        if not hasattr(cls, "__copy__") or _copies(cls, "__copy__"):
            body["__copy__"] = _copy_of
        if getattr(cls, "__missing__", None) is defaultdict.__missing__:
            body["__missing__"] = _missing
    return cast("Any", type(cls))(
        cls.__name__, (cls,), body | {"__setattr__": _refuse, "__delattr__": _refuse}
    )


def _copies(cls: type[Any], name: str) -> bool:
    """Whether a method of a class is one of those."""
    return any(getattr(cls, name, None) is method for method in _COPIES)


def _missing(self: Any, key: object) -> Any:
    """What a defaultdict has for a missing key: not kept, and as read-only as what is in it."""
    if self.default_factory is None:
        raise KeyError(key)
    return freeze(self.default_factory())
