"""The classes that a program's declared types name, at any depth: what its values may be made of.

Reading a journal makes instances of these and of no others, so that it never imports or runs anything that
the program does not have.
"""

import inspect
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from contextlib import suppress
from enum import Enum
from typing import (
    Annotated,
    Any,
    ClassVar,
    ForwardRef,
    Literal,
    NewType,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

from pydantic import PydanticUserError, TypeAdapter

from agentree.graph.flow import show
from agentree.graph.frozen import FrozenDict, FrozenList, FrozenSet
from agentree.graph.journal.adapters import adapter_of, unwritten
from agentree.graph.journal.attributes import (
    base_of,
    field_names,
    has_fields,
    hints,
    is_made_of_attributes,
    is_typed_dict,
    resolved,
    slots,
)
from agentree.graph.journal.forms import Forms
from agentree.graph.journal.standard import PLAIN_CLASSES, STANDARD
from agentree.graph.journal.unstorable import Unstorable
from agentree.lm.generation import Generation
from agentree.messages import Message
from agentree.tools import ToolCall, ToolCalls, ToolResult

CONTAINERS = (list, dict, tuple, set, frozenset, FrozenList, FrozenDict, FrozenSet)
_KNOWN: tuple[type, ...] = (
    *(OrderedDict, Counter, defaultdict, deque, bytearray),
    *(Message, ToolCall, ToolCalls, ToolResult),
)
_PLAIN = frozenset({*PLAIN_CLASSES, *CONTAINERS, *STANDARD, *_KNOWN, object, Generation})
_ONCE = (Callable, Iterator, AsyncIterator, Generator, AsyncGenerator, Awaitable, type)
"""What can't be written whatever it holds."""
_NO_TYPES = (Any, object, None, ..., Literal)


class Classes:
    """Classes by name and names by class.

    Raises:
        Unstorable: when made, for a declared type whose values can't be written.
    """

    def __init__(self, forms: Iterable[tuple[str, Any]]) -> None:
        """`forms` are the declared types, each with the words that say where it is declared."""
        self._named: dict[str, type] = {}
        self._names: dict[type, str] = {}
        self._twice: set[str] = set()
        """Names of several classes that nothing declares: they inherit from declared ones."""
        self._seen: set[Any] = set()
        """Classes and aliases that have been looked at."""
        self._adapters: dict[type, TypeAdapter[Any]] = {}
        self._slots: dict[type, tuple[tuple[str, Any], ...]] = {}
        self._declared: frozenset[type] | None = None
        self.forms = Forms(self.name, self.named)
        for cls in _KNOWN:
            self._add(cls)
        for where, form in forms:
            try:
                self._take(form)
            except Unstorable as e:
                at = f" ({e.at.removeprefix('.')})" if e.at else ""
                raise Unstorable(
                    f"{where} has the type {show(form)}, and a journal can't store {e.what}{at}", e.way
                ) from e
        self._declared = frozenset(self._names)

    # --------------------------------------------------------------------------------------- looking up

    def name(self, cls: type[Any]) -> str:
        """What a class is called in the journal. Raises Unstorable for one that the program does not name."""
        if cls not in self._names:
            self._take_subclasses()
        name = self._names.get(cls)
        if name is None:
            raise _unnamed(cls)
        if name in self._twice and cls not in cast("frozenset[type]", self._declared):
            raise _several(name)
        return name

    def named(self, name: str) -> type:
        """The class of a name. Raises Unstorable where the program has it no more."""
        if name not in self._named:
            self._take_subclasses()
        if name not in self._named:
            raise Unstorable(f"a value of type {name}", "the program does not declare it any more")
        cls = self._named[name]
        if name in self._twice and cls not in cast("frozenset[type]", self._declared):
            raise _several(name)
        return cls

    def slots(self, cls: type[Any]) -> tuple[tuple[str, Any], ...]:
        """The slots of a class, those that it inherits too."""
        found = self._slots.get(cls)
        if found is None:
            found = self._slots[cls] = tuple(slots(cls))
        return found

    def adapter(self, cls: type[Any]) -> TypeAdapter[Any] | None:
        """What writes values of a class that only its own schema knows, if it is one of these."""
        return self._adapters.get(cls)

    def described(self) -> dict[str, Any]:
        """Each declared class in words: tells whether types have changed."""
        return {name: self._description(cls) for name, cls in self._program_classes()}

    def fields(self) -> dict[str, list[str]]:
        """The fields of each declared class."""
        return {name: field_names(cls) for name, cls in self._program_classes()}

    def _program_classes(self) -> Iterator[tuple[str, type[Any]]]:
        """Those that are declared: others are found with the values."""
        declared = cast("frozenset[type]", self._declared)
        return ((name, cls) for name, cls in self._named.items() if cls in declared and cls not in _KNOWN)

    def _description(self, cls: type[Any]) -> Any:
        if issubclass(cls, Enum):
            return {name: _words(member.value) for name, member in cls.__members__.items()}
        if cls in self._adapters:
            try:
                return self._adapters[cls].json_schema()
            except (PydanticUserError, ValueError, TypeError):
                return None
        return {name: _words(form) for name, form in hints(cls).items()}

    # ----------------------------------------------------------------------------------------- walking

    def _knows(self, cls: type[Any]) -> bool:
        """Whether it would be named if it were declared. Raises Unstorable for what can't be."""
        self._take(cls)
        return cls in self._names

    def _take(self, form: Any) -> None:
        """Every class in a type form, those in its arguments and in their fields too."""
        origin = get_origin(form)
        if form in _NO_TYPES or isinstance(form, TypeVar) or origin is ClassVar:
            return
        if isinstance(form, list):  # the parameters of a callable
            return
        if isinstance(form, str | ForwardRef):
            return  # what is inside of itself has been seen; anything else says what it is when it is written
        if isinstance(form, NewType):
            self._take(form.__supertype__)
        elif origin is Literal:
            for option in get_args(form):
                self._take(type(option))
        elif origin in (Union, types.UnionType):
            for inner in get_args(form):
                self._take(inner)
        elif origin is Annotated:
            self._take(get_args(form)[0])
        elif hasattr(form, "__value__"):
            self._take_alias(form if origin is None else origin)
            for inner in get_args(form):
                self._take(inner)
        else:
            if isinstance(origin or form, type):
                self._take_class(origin or form)
            for inner in get_args(form):
                self._take(inner)

    def _take_alias(self, alias: Any) -> None:
        if alias not in self._seen:
            self._seen.add(alias)
            self._take(resolved(alias))

    def _take_class(self, cls: type[Any]) -> None:
        if cls in self._seen or cls in _PLAIN or is_transcript(cls):
            return
        self._seen.add(cls)
        try:
            self._take_new(cls)
        except Unstorable:
            self._seen.discard(cls)  # another place that names it is to be refused as well
            raise

    def _take_new(self, cls: type[Any]) -> None:
        if cls in _ONCE:
            raise unwritten(cls)
        if is_typed_dict(cls):
            self._take_fields(cls)
        elif issubclass(cls, Enum):
            self._add(cls)
        elif getattr(cls, "_is_protocol", False) or inspect.isabstract(cls) or _is_base(cls):
            if has_fields(cls):
                self._take_fields(cls)  # what inherits from it has them; a value says what else it is
        elif is_made_of_attributes(cls):
            self._add(cls)
            self._take_fields(cls)
            for base in getattr(cls, "__orig_bases__", ()):
                for inner in get_args(base):
                    self._take(inner)
        else:
            self._adapters[cls] = adapter_of(cls)
            self._add(cls)

    def _take_fields(self, cls: type[Any]) -> None:
        for name, form in hints(cls).items():
            try:
                self._take(form)
            except Unstorable as e:
                raise e.under(f".{name}") from None

    def _add(self, cls: type[Any]) -> None:
        name, n = cls.__qualname__, 1
        if cls in self._names:
            return
        if name in self._named and self._declared is not None:
            self._twice.add(name)
            self._names[cls] = name
            return
        while name in self._named:
            n += 1
            name = f"{cls.__qualname__}~{n}"
        self._named[name], self._names[cls] = cls, name

    def _take_subclasses(self) -> None:
        """Values of a declared class may be of a class that inherits from it."""
        waiting = [cls for cls in self._seen if isinstance(cls, type)]
        while waiting:
            for cls in type.__subclasses__(waiting.pop()):
                # A read-only copy of a state counts as what it is a copy of.
                if cls not in self._seen and "__class__" not in cls.__dict__:
                    with suppress(Unstorable):
                        self._take_class(cls)
                        waiting.append(cls)


def is_transcript(cls: type[Any]) -> bool:
    """Whether values of a class are transcripts."""
    from agentree.lm.turns import Conversation

    return issubclass(cls, Conversation)


def _is_base(cls: type[Any]) -> bool:
    """Whether values are of a class of the standard library that inherits from it."""
    return any(issubclass(known, cls) for known in STANDARD)


def _several(name: str) -> Unstorable:
    return Unstorable(
        f"a value of type {name}, of which there are several",
        "annotate what holds it with the one that is meant",
    )


def _words(form: object) -> str:
    return repr(form) if not isinstance(form, type) and get_origin(form) is None else show(form)


def _unnamed(cls: type[Any]) -> Unstorable:
    """What is said of a value whose class no type of the program names."""
    what, name = f"a value of type {cls.__name__}", cls.__name__
    try:
        known = Classes(())._knows(cls)
    except Unstorable as e:
        inside = f", which has {e.what} ({e.at.removeprefix('.')})" if e.at else ""
        return Unstorable(f"{what}{inside}", e.way)
    if not known:
        return Unstorable(what, unwritten(cls).way)
    base = base_of(cls)
    plain = "" if base is None or has_fields(cls) else f", or make it a plain {base.__name__}"
    return Unstorable(
        f"{what}, which no type of the program names", f"annotate what holds it with {name}{plain}"
    )
