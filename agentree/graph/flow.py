"""Reads the types of node functions from their annotations, and tells where two of them can't fit.

Only sure mistakes count: whatever can't be judged (type variables, protocols, missing annotations) fits.
"""

import functools
import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from agentree.graph.types import Flow
from agentree.runtime.constraint import Choice, JSONSchema, Regex

_NUMBERS: dict[object, tuple[type, ...]] = {float: (int,), complex: (int, float)}


def flow_of(fn: Callable[..., Any]) -> Flow[Any, Any, Any]:
    """Input and output of `fn(ctx, value)`; the output of an awaitable is what awaiting it gives."""
    target = fn if inspect.isroutine(fn) else type(fn).__call__
    try:
        hints = get_type_hints(target, include_extras=True)
        parameters = list(inspect.signature(fn).parameters.values())
    except (NameError, TypeError, ValueError, AttributeError):
        return Flow()
    output: Any = hints.get("return", Any)
    if get_origin(output) in (Awaitable, Coroutine) and not inspect.iscoroutinefunction(target):
        output = get_args(output)[-1]
    return Flow(hints.get(parameters[1].name, Any) if len(parameters) > 1 else Any, output)


def gives_no_awaitable(fn: Callable[..., Any]) -> bool:
    """Whether the annotations of `fn` leave no doubt that calling it gives nothing to await.

    What is wrapped, or has no annotation of its own, may give anything.
    """
    while isinstance(fn, functools.partial):
        fn = cast("Callable[..., Any]", fn.func)
    target: Any = fn if inspect.isroutine(fn) else type(fn).__call__
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(target):
        return False
    if hasattr(target, "__wrapped__"):
        return False
    try:
        hints = get_type_hints(target, include_extras=True)
    except (NameError, TypeError, ValueError, AttributeError):
        return False
    return "return" in hints and not any(_may_be_awaited(form) for form in members(hints["return"]))


def _may_be_awaited(form: Any) -> bool:
    cls = None if form is Any else runtime_class(form)
    if get_origin(form) is Literal:
        return False
    return cls is None or cls is object or hasattr(cls, "__await__")


def members(form: Any) -> list[Any]:
    """The alternatives of a union, else the one type; `Annotated` is looked through."""
    if get_origin(form) is Annotated:
        return members(get_args(form)[0])
    if get_origin(form) in (Union, types.UnionType):
        return [leaf for arg in get_args(form) for leaf in members(arg)]
    return [form]


def value_type(output: Any) -> Any:
    """The type of what is generated for a type or a spec."""
    if isinstance(output, Regex | Choice):
        return str
    return Any if isinstance(output, JSONSchema) else output


def union(forms: Iterable[Any]) -> Any:
    """One form for several alternatives."""
    found = tuple(forms)
    return Union[found] if found else Any  # noqa: UP007  the alternatives are known at run time only


def items_of(form: Any) -> Any:
    """What iterating over a type gives, as far as that can be seen."""
    found: list[Any] = []
    for one in members(form):
        origin, args = get_origin(one), get_args(one)
        if (origin is tuple and len(args) == 2 and args[1] is ...) or (
            origin in (list, set, frozenset, Sequence, Iterable) and len(args) == 1
        ):
            found.append(args[0])
        else:
            return Any
    return union(found)


def show(form: Any) -> str:
    """A type as a reader would write it."""
    if form is None or form is type(None):
        return "None"
    if isinstance(form, type) and not get_args(form):
        return form.__name__
    if get_origin(form) in (Union, types.UnionType):
        return " | ".join(show(arg) for arg in get_args(form))
    origin = get_origin(form)
    if isinstance(origin, type):
        return f"{origin.__name__}[{', '.join(show(arg) for arg in get_args(form))}]"
    return str(form).replace("typing.", "")


def runtime_class(form: Any) -> type | None:
    """What `isinstance` can ask for a type form; None where nothing can be asked."""
    if form is None:
        return type(None)
    origin = get_origin(form) or form
    if not isinstance(origin, type) or getattr(cast("Any", origin), "_is_protocol", False):
        return None
    return origin


def matches(value: object, kind: Any) -> bool:
    """Whether a value belongs to a case's type."""
    return any(_matches(value, form) for form in members(kind))


def _matches(value: Any, form: Any) -> bool:
    if form is Any or form is object:
        return True
    if get_origin(form) is Literal:
        return any(type(value) is type(arg) and value == arg for arg in get_args(form))
    cls = runtime_class(form)
    if cls is None:
        return True
    if _is_typed_dict(cls):
        required = cast("frozenset[str]", getattr(cast("Any", cls), "__required_keys__", frozenset[str]()))
        return isinstance(value, dict) and required <= set(cast("dict[str, object]", value))
    return isinstance(value, (cls, *_NUMBERS.get(cls, ())))


def matches_all(form: Any, kind: Any) -> bool:
    """Whether every value of one alternative is sure to belong to a case's type."""
    return any(
        k is Any or k is object or k == form or (_fits(form, k) and not _widens(form, k))
        for k in members(kind)
    )


def _widens(form: Any, kind: Any) -> bool:
    return get_origin(kind) is Literal and get_origin(form) is not Literal


def _is_typed_dict(cls: type) -> bool:
    return issubclass(cast("type[Any]", cls), dict) and hasattr(cast("Any", cls), "__required_keys__")


def fits(source: Any, target: Any) -> bool:
    """False only where no reading lets a `source` be used as a `target`."""
    return all(any(_fits(s, t) for t in members(target)) for s in members(source))


def overlaps(source: Any, target: Any) -> bool:
    """Whether some alternative of `source` may be a `target`, or may turn out to be one at run time."""
    return any(_fits(s, t) or _fits(t, s) for s in members(source) for t in members(target))


def _fits(source: Any, target: Any) -> bool:
    if source is Any or target is Any or target is object or isinstance(source, TypeVar):
        return True
    if get_origin(target) is Literal:
        if get_origin(source) is Literal:
            return set(get_args(source)) <= set(get_args(target))
        return any(type(arg) is source for arg in get_args(target)) or not isinstance(source, type)
    if get_origin(source) is Literal:
        return all(matches(arg, target) for arg in get_args(source))
    s, t = runtime_class(source), runtime_class(target)
    if s is None or t is None or _is_typed_dict(s) or _is_typed_dict(t):
        return True
    try:
        related = issubclass(s, t) or s in _NUMBERS.get(t, ())
    except TypeError:
        return True
    if not related:
        return False
    ours, theirs = get_args(source), get_args(target)
    if s is t and len(ours) == len(theirs):
        pairs = zip(ours, theirs, strict=True)
        return all(a is ... or b is ... or not _plain(a) or not _plain(b) or fits(a, b) for a, b in pairs)
    return True


def _plain(form: Any) -> bool:
    return not isinstance(form, list | tuple)
