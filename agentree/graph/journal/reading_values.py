"""One value from the JSON values that `writing` made of it.

No code of the program runs, except for the hashes of what lies in sets and dicts, and what a class that has a
schema of its own makes of JSON.
"""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from agentree.graph.journal.attributes import base_of, slots_of
from agentree.graph.journal.changes import settle
from agentree.graph.journal.classes import Classes
from agentree.graph.journal.inherited import INHERITED
from agentree.graph.journal.standard import BY_NAME, PLAIN, unplain
from agentree.graph.journal.unstorable import NeedsRuntime, Unstorable, first_lines
from agentree.graph.journal.writing import FACTORIES, IMMUTABLE, Parts
from agentree.lm.generation import Generation, Usage
from agentree.lm.stored import rebuilt
from agentree.tools import Tool

if TYPE_CHECKING:
    from agentree.lm import Transcript


class Reader:
    """Reads one value. Raises Unstorable where the program does not fit what was written."""

    def __init__(
        self,
        classes: Classes,
        base: "Transcript | None",
        empty: "Transcript | None",
        tools: Iterable[Tool[..., Any]],
        changed: Mapping[str, list[str]],
        state: Callable[[], Parts],
    ) -> None:
        """`changed`: by name, the fields that classes had which have changed since."""
        self._classes = classes
        self._base = base
        self._empty = empty
        self._tools = tools
        self._changed = changed
        self._state = state
        self._objects: list[Any] = []
        """In the order in which they begin, as the writer counts."""

    def read(self, data: Any) -> Any:
        """The value."""
        if isinstance(data, list):
            made: list[Any] = []
            self._objects.append(made)
            made += map(self.read, cast("list[Any]", data))
            return made
        if not isinstance(data, dict):
            return data
        found = cast("dict[str, Any]", data)
        kind, v = found["is"], cast("Any", found.get("v"))
        if kind in PLAIN:
            return PLAIN[kind](v)
        if kind in BY_NAME:
            return BY_NAME[kind].made(unplain(v))
        return self._compound(kind, v, found)

    def _compound(self, kind: str, v: Any, found: Mapping[str, Any]) -> Any:
        match kind:
            case "dict":
                named = self._begun(dict[Any, Any]())
                for key, inner in v.items():
                    named[key] = self.read(inner)
                return named
            case "map":
                return self._filled(self._begun(dict[Any, Any]()), v)
            case "set":
                items = self._begun(set[Any]())
                items |= set(map(self.read, v))
                return items
            case "tuple":
                return tuple([self.read(item) for item in v])
            case "frozenset":
                return frozenset([self.read(item) for item in v])
            case "again":
                return self._objects[v]
            case "of the state":
                return self._state().objects[v]
            case "form":
                return self._classes.forms.read(v)
            case "member":
                return cast("Any", self._classes.named(found["of"])).__members__[v]
            case "flag":
                return self._classes.named(found["of"])(unplain(v))
            case "generation":
                return self._generation(v)
            case "transcript":
                return self.transcript(v)
            case "adapted":
                return self._begun(self._adapted(found["of"], v))
            case _:
                return self._object(found)

    def transcript(self, data: Mapping[str, Any]) -> "Transcript":
        """A transcript that `stored` wrote. Raises NeedsRuntime where there is none."""
        if self._empty is None:
            raise NeedsRuntime
        return rebuilt(data, self._base, self._empty, self._tools)

    def _begun(self, made: Any) -> Any:
        self._objects.append(made)
        return made

    def _filled(self, made: Any, pairs: Iterable[tuple[Any, Any]]) -> Any:
        put: Any = cast("Any", OrderedDict if isinstance(made, OrderedDict) else dict).__setitem__
        for key, inner in pairs:
            name = self.read(key)
            put(made, name, self.read(inner))
        return cast("Any", made)

    def _generation(self, v: Mapping[str, Any]) -> Generation[Any]:
        made: dict[str, Any] = dict(v)
        made["value"] = self.read(v["value"])
        made["text"] = unplain(v["text"])
        made["transcript"] = self.transcript(v["transcript"])
        made["usage"] = Usage(**v["usage"])
        return Generation(**made)

    def _adapted(self, name: str, text: str) -> Any:
        adapter = self._classes.adapter(self._classes.named(name))
        if adapter is None:
            raise Unstorable(f"a value of type {name}", "it is another kind of class now")
        try:
            return adapter.validate_json(text, by_name=True, by_alias=False)
        except ValueError as e:
            raise Unstorable(f"a value of type {name}", f"its type refuses it now ({first_lines(e)})") from e

    # ------------------------------------------------------------------------------------------ objects

    def _object(self, found: Mapping[str, Any]) -> Any:
        cls = self._classes.named(found["of"])
        base = base_of(cls)
        if base is None:
            made = self._begun(object.__new__(cls))
        elif base in INHERITED:
            made = self._begun(INHERITED[base].made(cls, unplain(found["b"])))
        elif base in IMMUTABLE:
            place = len(self._objects)
            self._objects.append(None)
            made = self._objects[place] = cast("Any", base).__new__(cls, *self._whole(base, found["b"]))
        else:
            made = self._begun(cast("Any", base).__new__(cls))
            self._fill(base, made, found)
        attached = {name: self.read(inner) for name, inner in found.get("v", {}).items()}
        in_slots = {name: self.read(inner) for name, inner in found.get("s", {}).items()}
        if "set" in found:
            in_slots = slots_of(found["set"])
        if found["of"] in self._changed:
            settle(cls, made, attached | in_slots, self._changed[found["of"]])
            return made
        if attached:
            made.__dict__.update(attached)
        if in_slots:
            slots = dict(self._classes.slots(cls))
            for name, inner in in_slots.items():
                slots[name].__set__(made, inner)
        return made

    def _whole(self, base: type[Any], content: Any) -> list[Any]:
        """What a builtin that never changes is made from."""
        if base in (tuple, frozenset):
            return [[self.read(item) for item in content]]
        if base is bytes:
            return [bytes.fromhex(content)]
        made = unplain(content)
        return made if base is complex else [made]

    def _fill(self, base: type[Any], made: Any, found: Mapping[str, Any]) -> None:
        content = found["b"]
        if base is bytearray:
            bytearray.extend(made, bytes.fromhex(content))
        elif issubclass(base, dict):
            if base is defaultdict:
                made.default_factory = self._factory(found["factory"])
            self._filled(made, content)
        elif base is set:
            set[Any].update(made, [self.read(item) for item in content])
        else:
            if base is deque:
                deque[Any].__init__(made, (), found["most"])
            cast("Any", base).extend(made, [self.read(item) for item in content])

    def _factory(self, name: str | None) -> Any:
        if name is None:
            return None
        return FACTORIES.get(name) or self._classes.named(name)
