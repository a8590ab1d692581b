"""`@tool`: a Python function becomes something that a model may call, and stays a function."""

import copy
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, cast, overload

from agentree.errors import ToolDefinitionError
from agentree.tools.docstring import parse_docstring
from agentree.tools.schema import Parameters, parameters_of

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

FINAL_ANSWER = "final_answer"
"""The name that stands for the answer of an agent's turn; no tool may have it."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_COPIED = ("__module__", "__name__", "__qualname__", "__doc__")
_Kind = Literal["function", "method", "unbound", "class"]


class Tool(Generic[P, R]):
    """A function that a model may call. Still callable, still typed.

    In a class body it is a method: `obj.search` is the tool bound to `obj`. `@tool` stands outside of
    `@staticmethod` (for type checkers, take it from the class) and `@classmethod` (take it from an object).
    """

    name: str
    description: str
    schema: Mapping[str, object]
    """JSON Schema of the arguments: one closed object, properties in declaration order."""
    retries: int
    """How many times in a row the model may correct its arguments."""
    timeout: float | None
    """Seconds that one call may take."""
    pure: bool
    """Whether a call may run again, as it has no side effects."""
    approve: bool
    """Whether a person has to approve each call before it is made. Needs a run with a journal."""
    max_calls: int | None
    """How many calls one run may make."""
    is_async: bool
    """Whether the function is `async`; any other runs in a worker thread."""
    __wrapped__: Callable[..., object]

    def __init__(
        self,
        fn: Callable[P, R],
        *,
        name: str | None = None,
        retries: int = 1,
        timeout: float | None = None,
        pure: bool = False,
        approve: bool = False,
        max_calls: int | None = None,
    ) -> None:
        """Raises ToolDefinitionError, with what to write instead, for what can't become a tool."""
        self._fn = cast("Any", fn)
        self._kind, plain = _inspect(fn)
        self.name = _name(plain, name, anonymous=isinstance(fn, functools.partial))
        self.retries, self.timeout, self.max_calls = retries, timeout, max_calls
        self.pure, self.approve = pure, approve
        self._check_options()
        docs = parse_docstring(_doc(plain))
        self.description = docs.description
        owner = f"tool {self.name!r}"
        self._parameters: Parameters = parameters_of(
            owner, _parameters(owner, plain, self._kind), _scope(plain), docs.parameters
        )
        self.schema = self._parameters.schema
        self.is_async = inspect.iscoroutinefunction(_implementation(plain))
        functools.update_wrapper(cast("Any", self), plain, assigned=_COPIED, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, as Python does: nothing is validated."""
        return self._fn(*args, **kwargs)

    @overload
    def __get__(self, obj: None, owner: type[object], /) -> Self: ...
    @overload
    def __get__(
        self: "Tool[Concatenate[Any, Q], R]", obj: object, owner: type[object] | None = None, /
    ) -> "Tool[Q, R]": ...
    def __get__(self, obj: object, owner: type[object] | None = None, /) -> "Tool[..., R]":
        if self._kind == "function" or (self._kind == "unbound" and obj is None):
            return self
        bound = copy.copy(self)
        bound._fn = self._fn.__get__(obj, owner)
        bound.__wrapped__ = bound._fn
        bound._kind = "method"
        return bound

    def __repr__(self) -> str:
        return f"<Tool {self.name!r}>"

    def bind(self, arguments: object) -> Callable[[], object]:
        """The call with these JSON arguments, ready to be made.

        Raises:
            ArgumentError: an argument is missing, unknown or of a wrong type; the text names each.
            ToolDefinitionError: this is a method without an object.
        """
        if self._kind in ("unbound", "class"):
            raise ToolDefinitionError(_NO_OBJECT.format(self))
        args, kwargs = self._parameters.bind(arguments)
        return functools.partial(self._fn, *args, **kwargs)

    @property
    def bound(self) -> bool:
        """False for a method that was taken from its class and not from an object."""
        return self._kind in ("function", "method")

    def _check_options(self) -> None:
        if self.retries < 0:
            raise ToolDefinitionError(f"tool {self.name!r} has retries={self.retries}: write 0 or more")
        if self.timeout is not None and not self.timeout > 0:
            raise ToolDefinitionError(
                f"tool {self.name!r} has timeout={self.timeout}: write seconds above 0, or None for no limit"
            )
        if self.max_calls is not None and self.max_calls < 1:
            raise ToolDefinitionError(
                f"tool {self.name!r} has max_calls={self.max_calls}: write 1 or more, or None for no limit"
            )


ONE_TOOL = "{0!r} is one tool: write a list, tools=[{0}]"
"""What is said where tools are due and one was given; takes its name."""
_NO_OBJECT = "{!r} is a method without its object: pass it from an object, as in `obj.method`"


@overload
def tool(fn: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    retries: int = 1,
    timeout: float | None = None,
    pure: bool = False,
    approve: bool = False,
    max_calls: int | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    fn: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    retries: int = 1,
    timeout: float | None = None,
    pure: bool = False,
    approve: bool = False,
    max_calls: int | None = None,
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a tool of a function, method, callable object or (with `name`) `functools.partial`.

    The signature gives the schema, the docstring (Google, NumPy or Sphinx) the descriptions. `timeout` is in
    seconds; `retries` is how often in a row the model may correct its arguments; `pure` says that a call may
    safely run again; with `approve` a person has to agree to each call first (in a run with a journal);
    `max_calls` bounds the calls of one run.

    Raises:
        ToolDefinitionError: at decoration, for what a model can't be asked to call.
    """

    def make(fn: Callable[P, R]) -> Tool[P, R]:
        return Tool(
            fn,
            name=name,
            retries=retries,
            timeout=timeout,
            pure=pure,
            approve=approve,
            max_calls=max_calls,
        )

    return make if fn is None else make(fn)


def tools_by_name(tools: Sequence[Tool[..., Any]]) -> dict[str, Tool[..., Any]]:
    """The tools by their names, in the order given. Raises ToolDefinitionError for a name used twice."""
    if isinstance(tools, Tool):
        raise ToolDefinitionError(ONE_TOOL.format(tools.name))
    found: dict[str, Tool[..., Any]] = {}
    for one in cast("Sequence[object]", tools):
        if not isinstance(one, Tool):
            raise ToolDefinitionError(f"{one!r} is no tool: decorate it with @tool")
        known = cast("Tool[..., Any]", one)
        if not known.bound:
            raise ToolDefinitionError(_NO_OBJECT.format(known))
        if known.name in found:
            raise ToolDefinitionError(
                f"two tools are called {known.name!r}: give one another name with @tool(name=...)"
            )
        found[known.name] = known
    return found


def _inspect(fn: object) -> tuple[_Kind, Any]:
    """Which kind of thing is decorated, and the function or object whose signature counts."""
    if isinstance(fn, Tool):
        raise ToolDefinitionError(f"{fn!r} is a tool already: decorate the plain function")
    if isinstance(fn, staticmethod):
        return "function", cast("Any", fn).__func__
    if isinstance(fn, classmethod):
        return "class", cast("Any", fn).__func__
    if inspect.isclass(fn):
        raise ToolDefinitionError(
            f"{fn!r} is a class: write a function that makes what the model needs of it"
        )
    if not callable(fn):
        raise ToolDefinitionError(f"{fn!r} can't be called: decorate a function")
    if inspect.isfunction(fn):
        scope = fn.__qualname__.rpartition(".")[0]
        first = next(iter(inspect.signature(fn).parameters.values()), None)
        in_class = bool(scope) and not scope.endswith("<locals>")
        if in_class and first and (first.annotation is first.empty or first.name in ("self", "cls")):
            return "unbound", fn
    return "function", fn


def _name(fn: Any, given: str | None, *, anonymous: bool) -> str:
    if given is None:
        if anonymous:
            raise ToolDefinitionError(f"{fn!r} has no name of its own: write tool(name=...)(partial(...))")
        given = cast("str", getattr(fn, "__name__", type(fn).__name__))
        if given == "<lambda>":
            raise ToolDefinitionError("a lambda has no name and no annotations: write a function with `def`")
    if not _NAME.fullmatch(given):
        raise ToolDefinitionError(
            f"{given!r} is no name for a tool: write a letter or _, then up to 63 letters, digits, _ . or -"
        )
    if given == FINAL_ANSWER:
        raise ToolDefinitionError(
            f"the name {given!r} stands for an agent's own answer: name the tool differently"
        )
    return given


def _implementation(fn: Any) -> Any:
    """The Python function that runs in the end."""
    while True:
        if isinstance(fn, functools.partial):
            fn = cast("Any", fn).func
        elif inspect.ismethod(fn):
            fn = fn.__func__
        elif inspect.isroutine(fn):
            return fn
        else:
            call = type(fn).__call__
            if not inspect.isfunction(call):
                return call
            fn = call


def _doc(fn: Any) -> str | None:
    implementation = _implementation(fn)
    return implementation.__doc__ or (None if inspect.isroutine(fn) else type(fn).__doc__)


def _scope(fn: Any) -> Mapping[str, object]:
    """Where the names in string annotations are found."""
    inner = inspect.unwrap(_implementation(fn))
    scope: dict[str, object] = dict(getattr(inner, "__globals__", {}))
    if inspect.isfunction(inner) and inner.__closure__:
        for variable, cell in zip(inner.__code__.co_freevars, inner.__closure__, strict=True):
            try:
                scope[variable] = cell.cell_contents
            except ValueError:
                continue  # not assigned yet
    for parameter in getattr(inner, "__type_params__", ()):
        scope[parameter.__name__] = parameter
    return scope


def _parameters(owner: str, fn: Any, kind: _Kind) -> list[inspect.Parameter]:
    implementation = _implementation(fn)
    if inspect.isgeneratorfunction(implementation) or inspect.isasyncgenfunction(implementation):
        raise ToolDefinitionError(f"{owner} is a generator: return a list instead of using `yield`")
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (ValueError, TypeError) as e:
        raise ToolDefinitionError(f"{owner} has no signature that Python can read: wrap it in a `def`") from e
    if kind in ("unbound", "class"):
        if not parameters or parameters[0].kind in (
            inspect.Parameter.KEYWORD_ONLY,
            inspect.Parameter.VAR_KEYWORD,
        ):
            raise ToolDefinitionError(f"{owner} is a method without a first parameter: write `self` or `cls`")
        parameters = parameters[1:]
    if isinstance(fn, functools.partial):
        fixed = cast("Mapping[str, object]", cast("Any", fn).keywords)
        parameters = [
            p for p in parameters if p.name not in fixed
        ]  # what is fixed is not the model's to choose
    return parameters
