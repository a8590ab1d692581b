"""One value as JSON values, by its own structure. `reading_values` has the way back."""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum, Flag
from typing import TYPE_CHECKING, Any, cast

from agentree.graph.frozen import FrozenDict, FrozenList, FrozenSet
from agentree.graph.journal.adapters import adapted
from agentree.graph.journal.attributes import attributes, base_of, only_set
from agentree.graph.journal.classes import Classes, is_transcript
from agentree.graph.journal.forms import ALIASES
from agentree.graph.journal.inherited import INHERITED
from agentree.graph.journal.standard import PLAIN_CLASSES, STANDARD, is_text, plain
from agentree.graph.journal.unstorable import Unstorable
from agentree.lm.generation import Generation
from agentree.lm.stored import stored

if TYPE_CHECKING:
    from agentree.lm import Transcript

DEEPEST = 100
"""Levels of a value: reading it must not need more of Python's stack than there is in another place."""
IMMUTABLE = (tuple, frozenset, bytes, str, int, float, complex)
"""What has its content from its beginning: nothing in it can lead back to it."""
FACTORIES: dict[str, Any] = {
    cls.__name__: cls for cls in (list, dict, set, tuple, frozenset, str, int, float, bool, bytes, complex)
}


@dataclass(frozen=True)
class Parts:
    """The objects that a value is made of, by their numbers, as it was written."""

    objects: list[Any]
    numbers: dict[int, int]
    """By identity."""


NOTHING = Parts([], {})


class Writer:
    """Writes one value. What occurs in it twice is written once, and named by its number after that.

    Objects are counted in the order in which they begin.
    """

    def __init__(self, classes: Classes, base: "Transcript | None", state: Parts) -> None:
        """Transcripts are written as what they add to `base`, parts of the run's state by their numbers."""
        self._classes = classes
        self._base = base
        self._state = state
        self.parts = Parts([], {})
        """The objects so far."""
        self._open: set[int] = set()
        """Numbers of objects whose content comes before them."""
        self._depth = 0

    def write(self, value: Any) -> Any:
        """JSON values. Raises Unstorable."""
        cls = cast("type[Any]", type(value))
        if cls in PLAIN_CLASSES:
            return plain(value)
        if (known := STANDARD.get(cls)) is not None:
            return {"is": known.name, "v": plain(known.parts(value))}
        if "__class__" in cls.__dict__:  # a read-only copy counts as what it is a copy of
            cls = value.__class__
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unstorable(f"a value that is nested more than {DEEPEST} levels deep", "keep it flatter")
        written = self._compound(cls, value)
        self._depth -= 1
        return written

    def _compound(self, cls: type[Any], value: Any) -> Any:
        if cls is tuple:
            return {"is": "tuple", "v": self._items(value)}
        if cls is frozenset:
            return {"is": "frozenset", "v": self._items(_in_order(value))}
        if issubclass(cls, Enum):
            return self._member(cls, value)
        if cls in ALIASES:
            return {"is": "form", "v": self._classes.forms.write(value)}
        if cls is Generation:
            return {"is": "generation", "v": self._generation(value)}
        if is_transcript(cls):
            return {"is": "transcript", "v": stored(value, self._base)}
        if (number := self.parts.numbers.get(id(value))) is not None:
            if number in self._open:
                raise Unstorable(f"a {cls.__name__} that holds itself", "leave that out")
            return {"is": "again", "v": number}
        if (number := self._state.numbers.get(id(value))) is not None:
            return {"is": "of the state", "v": number}
        self.parts.numbers[id(value)] = len(self.parts.objects)
        self.parts.objects.append(value)
        if cls is list or cls is FrozenList:
            return self._items(value)
        if cls is dict or cls is FrozenDict:
            return self._dict(dict[Any, Any].items(value))
        if cls is set or cls is FrozenSet:
            return {"is": "set", "v": self._items(_in_order(value))}
        return self._object(cls, value)

    def _items(self, values: Iterable[Any]) -> list[Any]:
        found: list[Any] = []
        for value in values:
            try:
                found.append(self.write(value))
            except Unstorable as e:
                raise e.under(f"[{len(found)}]") from None
        return found

    def _dict(self, items: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
        pairs = list(items)
        if all(type(key) is str and is_text(key) for key, _ in pairs):
            return {"is": "dict", "v": self._named(pairs, "[{!r}]")}
        return {"is": "map", "v": self._pairs(pairs)}

    def _pairs(self, pairs: Iterable[tuple[Any, Any]]) -> list[Any]:
        found: list[Any] = []
        for key, value in pairs:
            try:
                found.append([self.write(key), self.write(value)])
            except Unstorable as e:
                raise e.under(f"[{key!r}]") from None
        return found

    def _named(self, items: Iterable[tuple[str, Any]], place: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in items:
            try:
                found[name] = self.write(value)
            except Unstorable as e:
                raise e.under(place.format(name)) from None
        return found

    def _member(self, cls: type[Enum], value: Enum) -> dict[str, Any]:
        name = self._classes.name(cls)
        if cls.__members__.get(value._name_) is value:
            return {"is": "member", "of": name, "v": value._name_}
        if isinstance(value, Flag) and cast("object", cls(value._value_)) == value:
            return {"is": "flag", "of": name, "v": plain(int(value._value_))}
        raise Unstorable(f"{value!r}, which is no member of {cls.__name__}", "use one that is declared")

    def _generation(self, made: Generation[Any]) -> dict[str, Any]:
        body = {f.name: getattr(made, f.name) for f in fields(made)}
        usage = {f.name: getattr(made.usage, f.name) for f in fields(made.usage)}
        text = plain(made.text)
        return body | {
            "value": self.write(made.value),
            "text": text,
            "usage": usage,
            "transcript": stored(made.transcript, self._base),
        }

    # ------------------------------------------------------------------------------------------ objects

    def _object(self, cls: type[Any], value: Any) -> dict[str, Any]:
        name = self._classes.name(cls)
        if (adapter := self._classes.adapter(cls)) is not None:
            return {"is": "adapted", "of": name, "v": adapted(adapter, cls, value)}
        body: dict[str, Any] = {"is": "object", "of": name}
        if (base := base_of(cls)) is not None:
            number = self.parts.numbers[id(value)]
            if base in IMMUTABLE:
                self._open.add(number)
            body["b"] = self._content(base, value, body)
            self._open.discard(number)
        attached, slots = attributes(value, self._classes.slots(cls))
        if any(type(attribute) is not str for attribute in attached):
            raise Unstorable(f"a value of type {cls.__name__}", "the name of an attribute must be text")
        if attached:
            body["v"] = self._named(attached.items(), ".{}")
        if (names := only_set(slots)) is not None:
            body["set"] = names
        elif slots:
            body["s"] = self._named(slots.items(), ".{}")
        return body

    def _content(self, base: type[Any], value: Any, body: dict[str, Any]) -> Any:
        """What an instance has in it as a value of what it inherits from."""
        if (known := INHERITED.get(base)) is not None:
            return plain(known.parts(value))
        if base is str:
            return plain(str.__str__(value))
        if base is int:
            return plain(int.__int__(value))
        if base is float:
            return plain(float.__float__(value))
        if base is complex:
            return plain([complex.real.__get__(value), complex.imag.__get__(value)])
        if base is bytes or base is bytearray:
            return base.hex(value)
        if base is defaultdict:
            body["factory"] = self._factory(value.default_factory)
        if base is deque:
            body["most"] = value.maxlen
        if issubclass(base, dict):
            items = OrderedDict[Any, Any].items if base is OrderedDict else dict[Any, Any].items
            return self._pairs(items(value))
        return self._items(cast("Any", base).__iter__(value))

    def _factory(self, factory: Any) -> str | None:
        if factory is None:
            return None
        if FACTORIES.get(getattr(factory, "__name__", "")) is factory:
            return factory.__name__
        if not isinstance(factory, type):
            raise Unstorable(
                f"a defaultdict that is filled by {factory!r}",
                "give it a class such as list, or write a subclass of dict with __missing__",
            )
        return self._classes.name(factory)


def _in_order(items: Any) -> Any:
    """Texts lie in a set in another order in each process: written, the same state has the same text."""
    return sorted(items) if all(type(item) is str for item in items) else items
