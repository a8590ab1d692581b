"""Type forms that are in values: Python notes in an instance of `Box[int]()` which form it was called by."""

import types
from collections.abc import Callable
from typing import Any, ForwardRef, Generic, TypeVar, Union, cast, get_args, get_origin

from agentree.graph.journal.unstorable import Unstorable

_T = TypeVar("_T")


class _Any(Generic[_T]):
    """What shows how Python writes down a form with arguments."""


ALIASES = (types.GenericAlias, type(_Any[int]))
"""The classes of forms with arguments."""
_PLAIN: dict[str, Any] = {
    cls.__name__: cls
    for cls in (bool, int, float, complex, str, bytes, bytearray, list, dict, tuple, set, frozenset, object)
} | {"Any": Any, "None": type(None), "...": ...}


class Forms:
    """Writes and reads type forms."""

    def __init__(self, name: Callable[[type], str], named: Callable[[str], type]) -> None:
        """`name` and `named` go from a class of the program to its name and back; both raise Unstorable."""
        self._name = name
        self._named = named

    def write(self, form: Any) -> Any:
        """A form as JSON values. Raises Unstorable where it would not come back as it is."""
        try:
            written = self._parts(form)
            back = self.read(written)
        except Unstorable as e:
            raise _refused(form) from e
        if back != form or type(back) is not type(form):
            raise _refused(form)
        return written

    def read(self, parts: Any) -> Any:
        """The form that `write` gave this for."""
        if isinstance(parts, str):
            return _PLAIN[parts]
        kind, *rest = parts
        if kind == "text":
            return rest[0]
        if kind == "class":
            return self._named(rest[0])
        first, *others = map(self.read, rest)
        if kind == "|":
            for other in others:
                first |= other
            return first
        return Union[(first, *others)] if kind == "Union" else first[tuple(others)]

    def _parts(self, form: Any) -> Any:
        for known, plain in _PLAIN.items():
            if form is plain:
                return known
        if isinstance(form, str | ForwardRef):
            return ["text", form if isinstance(form, str) else form.__forward_arg__]
        origin, args = get_origin(form), get_args(form)
        if origin in (Union, types.UnionType):
            return ["|" if origin is types.UnionType else "Union", *map(self._parts, args)]
        if isinstance(form, ALIASES) and args:
            return ["of", self._parts(origin), *map(self._parts, args)]
        if isinstance(form, type):
            return ["class", self._name(cast("type[Any]", form))]
        raise _refused(form)


def _refused(form: Any) -> Unstorable:
    return Unstorable(f"an instance of {form!r}", "make it of the class itself, without types in brackets")
