"""A JSON Schema document: its places, base URIs, anchors, and where a `$ref` leads."""

from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote, urldefrag, urljoin

from agentree.errors import ConstraintError

Place = tuple[str | int, ...]

_MANY = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_ONE = (
    "additionalProperties", "propertyNames", "items", "additionalItems", "contains", "not",
    "if", "then", "else", "unevaluatedProperties", "unevaluatedItems", "contentSchema",
)  # fmt: skip


def pointer(place: Place) -> str:
    """A place as people read it, for messages."""
    return "#" + "".join("/" + str(p).replace("~", "~0").replace("/", "~1") for p in place)


class Document:
    """One schema document. `old_refs`: keywords beside `$ref` do not count (draft 7 and before)."""

    def __init__(self, root: object) -> None:
        self.root = root
        uri = cast("Mapping[str, object]", root).get("$schema") if isinstance(root, Mapping) else None
        dialect = uri if isinstance(uri, str) else ""
        self.old_refs = any(f"draft-0{n}" in dialect for n in (3, 4, 6, 7))
        self._bases: dict[Place, str] = {}
        self._targets: dict[str, Place] = {}
        self._scanned = False

    def at(self, place: Place) -> object:
        """The schema at a place."""
        here: Any = self.root
        for step in place:
            here = here[step]
        return here

    def resolve(self, reference: str, place: Place) -> Place:
        """The place that a `$ref` written at `place` leads to. Raises ConstraintError if it is not in the
        document.
        """
        local = not self._ids()
        if reference == "#" and local:
            return ()
        if reference.startswith("#/") and local:
            return self._walk((), reference[1:], reference, place)
        absolute, fragment = urldefrag(urljoin(self._base(place), reference))
        start = self._targets.get(absolute)
        if start is None:
            raise ConstraintError(
                f"'$ref' at {pointer(place)} leads to {reference!r}, which is not in the document: "
                "copy it under '$defs'"
            )
        if not fragment or fragment.startswith("/"):
            return self._walk(start, fragment, reference, place)
        found = self._targets.get(f"{absolute}#{fragment}")
        if found is None:
            raise ConstraintError(
                f"'$ref' at {pointer(place)} names the anchor {reference!r}, which does not exist"
            )
        return found

    def _walk(self, start: Place, fragment: str, reference: str, origin: Place) -> Place:
        place: Place = start
        here: Any = self.at(start)
        for raw in unquote(fragment).split("/")[1:]:
            step = raw.replace("~1", "/").replace("~0", "~")
            if isinstance(here, Mapping) and step in here:
                place, here = (*place, step), cast("Any", here[step])
            elif isinstance(here, list) and step.isdigit() and int(step) < len(cast("list[Any]", here)):
                place, here = (*place, int(step)), cast("Any", here[int(step)])
            else:
                raise ConstraintError(
                    f"'$ref' at {pointer(origin)} leads to {reference!r}, which does not exist"
                )
        if not isinstance(here, Mapping | bool):
            raise ConstraintError(f"'$ref' at {pointer(origin)} leads to {reference!r}, which is no schema")
        return place

    def _ids(self) -> bool:
        """Whether the document needs base URIs: some schema below the root has `$id` or an anchor."""
        if not self._scanned:
            self._scanned = True
            self._scan()
        return len(self._bases) > 1 or len(self._targets) > 2

    def _base(self, place: Place) -> str:
        for size in range(len(place), 0, -1):
            if place[:size] in self._bases:
                return self._bases[place[:size]]
        return self._bases[()]

    def _scan(self) -> None:
        self._bases[()] = ""
        self._targets[""] = ()
        pending: list[tuple[Place, object, str]] = [((), self.root, "")]
        while pending:
            place, here, base = pending.pop()
            if not isinstance(here, Mapping):
                continue
            schema = cast("Mapping[str, object]", here)
            if not (self.old_refs and "$ref" in schema):
                base = self._name(schema, place, base)
            pending += [(p, s, base) for p, s in _children(schema, place)]

    def _name(self, schema: Mapping[str, object], place: Place, base: str) -> str:
        identity = schema.get("$id", schema.get("id") if self.old_refs else None)
        if isinstance(identity, str):
            absolute, fragment = urldefrag(urljoin(base, identity))
            if fragment:
                self._targets[f"{absolute}#{fragment}"] = place
            if not identity.startswith("#"):
                base = absolute
                self._bases[place] = base
                self._targets[base] = place
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str):
                self._targets[f"{base}#{anchor}"] = place
        return base


def _children(schema: Mapping[str, object], place: Place) -> Iterator[tuple[Place, object]]:
    for keyword in _MANY:
        members = schema.get(keyword)
        if isinstance(members, Mapping):
            for name, child in cast("Mapping[str, object]", members).items():
                yield (*place, keyword, name), child
    for keyword in _LISTS:
        listed = schema.get(keyword)
        if isinstance(listed, list):
            for index, child in enumerate(cast("list[object]", listed)):
                yield (*place, keyword, index), child
    for keyword in _ONE:
        if isinstance(schema.get(keyword), Mapping):
            yield (*place, keyword), schema[keyword]
