"""What instances of a program's own classes are made of.

All of it is seen, not only the declared fields, so that an instance can be made again without its
constructor, validators or setters: as it was, also where its type would not take what was put into it later.
"""

import inspect
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property
from types import SimpleNamespace
from typing import Annotated, Any, Generic, Protocol, cast, get_type_hints

from pydantic import BaseModel, PydanticUserError, RootModel
from pydantic.dataclasses import is_pydantic_dataclass

from agentree.graph.journal.inherited import ALONG, INHERITED
from agentree.graph.journal.unstorable import Unstorable, first_lines

BASES: frozenset[type[Any]] = frozenset(
    (
        *(OrderedDict, defaultdict, deque, dict, list, set, frozenset, tuple),
        *(bytearray, bytes, str, int, float, complex),
        *INHERITED,
    )
)
"""What a class may inherit its content from."""
_ROOTS: frozenset[Any] = frozenset({*BASES, *ALONG, Counter, object, BaseModel, RootModel, Generic, Protocol})
_OF_PYTHON = 1 << 9
"""The flag of classes that were not made by an extension in C."""


def is_typed_dict(cls: type[Any]) -> bool:
    """Whether a class only describes dicts."""
    return issubclass(cls, dict) and hasattr(cast("Any", cls), "__required_keys__")


def base_of(cls: type[Any]) -> type[Any] | None:
    """The container, plain type or value of the standard library that a class inherits from, if any."""
    return next((one for one in cls.__mro__ if one in BASES), None)


def has_fields(cls: type[Any]) -> bool:
    """Whether a class declares what is in its instances."""
    return is_dataclass(cls) or issubclass(cls, BaseModel)


def is_made_of_attributes(cls: type[Any]) -> bool:
    """Whether attributes, and the content of a builtin that it inherits from, are all that an instance is."""
    known = has_fields(cls) or base_of(cls) is not None
    return known and not issubclass(cls, Enum) and foreign_base(cls) is None


def foreign_base(cls: type[Any]) -> type[Any] | None:
    """A class of the standard library or an extension that it inherits from: these keep more than is seen."""
    return next(filter(_is_foreign, cls.__mro__), None)


def _is_foreign(cls: Any) -> bool:
    if cls in _ROOTS or (inspect.isabstract(cls) and not cls.__dict__.get("__slots__")):
        return False
    if not cls.__flags__ & _OF_PYTHON:
        return True
    module = cls.__module__.partition(".")[0]
    return module in sys.stdlib_module_names and module not in ("__main__", "abc", "typing", "contextlib")


def slots(cls: type) -> Iterator[tuple[str, Any]]:
    """The slots of a class and those that it inherits from, with their descriptors."""
    for one in cls.__mro__:
        if one in ALONG:
            continue  # these are in the parts
        names: Any = one.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__"):
                hidden = name.startswith("__") and not name.endswith("__")
                found = f"_{one.__name__.lstrip('_')}{name}" if hidden else name
                yield found, one.__dict__[found]


def attributes(value: Any, known_slots: tuple[tuple[str, Any], ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is in its `__dict__` and what is in its slots; what is not set is not there."""
    found: dict[str, Any] = {}
    for name, slot in known_slots:
        try:
            found[name] = slot.__get__(value)
        except AttributeError:
            continue
    return getattr(value, "__dict__", {}), found


_MODEL = ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
"""The slots of a model."""


def only_set(slots: dict[str, Any]) -> list[str] | None:
    """The names of fields that a model was given, if its slots hold nothing else, as most do."""
    if tuple(slots) != _MODEL or slots[_MODEL[1]] is not None or slots[_MODEL[2]] is not None:
        return None
    names = cast("set[str]", slots[_MODEL[0]])
    return sorted(names) if all(type(name) is str for name in names) else None


def slots_of(names: list[str]) -> dict[str, Any]:
    """What `only_set` was given."""
    return dict(zip(_MODEL, (set(names), None, None), strict=True))


def field_names(cls: type[Any]) -> list[str]:
    """The declared fields of a dataclass or model."""
    if issubclass(cls, BaseModel):
        return list(cls.model_fields)
    return [f.name for f in fields(cls)] if is_dataclass(cls) else []


def own_attributes(value: Any) -> dict[str, Any]:
    """Attributes of an instance by any way, without those that are only remembered results."""
    cls = cast("type[Any]", type(value))
    attached, in_slots = attributes(value, tuple(slots(cls)))
    return {name: inner for name, inner in (attached | in_slots).items() if not _is_remembered(cls, name)}


def _is_remembered(cls: type[Any], name: str) -> bool:
    return isinstance(inspect.getattr_static(cls, name, None), cached_property)


def resolved(alias: Any) -> Any:
    """What a type alias stands for; names in it are looked up where it was made, if they can be."""
    about = SimpleNamespace(__annotations__={"value": alias.__value__})
    place = vars(sys.modules[alias.__module__]) if alias.__module__ in sys.modules else {}
    try:
        return get_type_hints(about, globalns=place, include_extras=True)["value"]
    except (NameError, TypeError):
        return alias.__value__


def hints(cls: type[Any]) -> dict[str, Any]:
    """The types of a class's fields. Raises Unstorable where they can't be resolved."""
    try:
        known = _pydantic_fields(cls)
        if known is not None:
            return known
        found = get_type_hints(cls, include_extras=True)
    except (NameError, TypeError, PydanticUserError) as e:
        raise Unstorable(
            f"values of {cls.__name__}",
            f"its annotations can't be resolved ({first_lines(e)}): write the types",
        ) from e
    names = field_names(cls) if is_dataclass(cls) else found
    return {name: found[name] for name in names if name in found}


def _pydantic_fields(cls: Any) -> dict[str, Any] | None:
    if issubclass(cls, BaseModel):
        cls.model_rebuild()
        fields: Any = cls.model_fields
    elif is_pydantic_dataclass(cls):
        fields = cast("Any", cls).__pydantic_fields__
    else:
        return None
    found: dict[str, Any] = {}
    for name, info in fields.items():
        found[name] = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
    return found | _private(cls)


def _private(cls: Any) -> dict[str, Any]:
    """Private attributes and typed extras of a model, as far as their annotations can be resolved."""
    found: dict[str, Any] = {}
    for one in cls.__mro__:
        known = set[str](getattr(one, "__private_attributes__", ()))
        if one not in _ROOTS:
            known.add(_MODEL[1])
        names = known & set(inspect.get_annotations(one))
        with suppress(Exception):  # an annotation is any expression
            hints = inspect.get_annotations(one, eval_str=True) if names else {}
            found |= {name: hints[name] for name in names if name not in found}
    return found
