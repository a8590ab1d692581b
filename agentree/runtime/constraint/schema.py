"""JSON Schema (drafts 4 to 7 and 2020-12) to sets of values, one place of the document at a time.

Every keyword that can reject something is either enforced exactly or refused by name and place.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, cast

from agentree.errors import ConstraintError
from agentree.runtime.constraint import array_sets, keywords
from agentree.runtime.constraint.documents import Document, Place, pointer
from agentree.runtime.constraint.pattern import Dialect
from agentree.runtime.constraint.scalars import numbers_of, strings_of
from agentree.runtime.constraint.sets import Key
from agentree.runtime.constraint.shapes import FALSE, TRUE, Arrays, Layer, Objects, Property
from agentree.runtime.constraint.strings import Strings
from agentree.runtime.constraint.values import Book, Value

REFUSED: Final[dict[str, str]] = {
    "$dynamicRef": "write a plain '$ref'",
    "$recursiveRef": "write a plain '$ref'",
    "unevaluatedItems": "write 'items': false beside 'prefixItems'",
    "unevaluatedProperties": "write 'additionalProperties': false beside all properties",
    "extends": "write 'allOf'",
    "disallow": "write 'not'",
    "divisibleBy": "write 'multipleOf'",
}
"""Keywords that can't be enforced, and what to write instead."""


_OBJECT: Final = (
    "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
    "minProperties", "maxProperties",
)  # fmt: skip


class Schema:
    """One document as a source of sets. `closed` and `lenient` as in `JSONSchema`; `patterns` is the dialect
    of `pattern`: Rust's, where the schema is that of a Python type.
    """

    def __init__(
        self, book: Book, root: object, *, closed: bool, lenient: bool, patterns: Dialect = "ecma"
    ) -> None:
        self.book = book
        self.document = Document(root)
        self.closed = closed
        self.lenient = lenient
        self._patterns: Dialect = patterns
        self.unchecked: list[str] = []
        """Refused keywords with their places, in lenient mode."""
        self._source = book.add_source(self)
        self.number = self._set(())

    # ------------------------------------------------------------------ places

    def _set(self, place: Place) -> int:
        schema = self.document.at(place)
        if schema is True or schema == {}:
            return TRUE
        if schema is False:
            return FALSE
        if not isinstance(schema, Mapping):
            raise ConstraintError(f"{pointer(place)} is {schema!r}: a schema is an object, true or false")
        return self.book.stated(self._source, place)

    def value_at(self, place: Key) -> Value:
        """The normal form of one schema."""
        return self._value(cast("Place", place))

    def _refuse(self, place: Place, keyword: str, why: str) -> None:
        message = f"{keyword!r} at {pointer(place)} can't be enforced: {why}"
        if not self.lenient:
            raise ConstraintError(message)
        self.unchecked.append(f"{keyword} at {pointer(place)}")

    def _try(self, place: Place, keyword: str, make: Callable[[], Value]) -> Value:
        """What a keyword states, or everything if it is refused and the schema is lenient."""
        try:
            return make()
        except ConstraintError as error:
            if not self.lenient:
                if pointer(place) in str(error) or " at #" in str(error):
                    raise
                raise ConstraintError(f"{keyword!r} at {pointer(place)}: {error}") from error
            self.unchecked.append(f"{keyword} at {pointer(place)}")
            return self.book.every

    # ------------------------------------------------------------------ one schema

    def _value(self, place: Place) -> Value:
        schema = cast("Mapping[str, object]", self.document.at(place))
        book = self.book
        if "$ref" in schema and self.document.old_refs:
            return self._reference(schema, place)
        for keyword, instead in REFUSED.items():
            if keyword in schema:
                self._refuse(place, keyword, instead)
        _ = keywords.names(schema.get("required", []), "required", place)
        allowed = keywords.types(schema, place)
        out = Value(
            "null" in allowed,
            "boolean" in allowed,
            "boolean" in allowed,
            numbers_of(schema, place, allowed, self._refuse),
            self._strings(schema, place) if "string" in allowed else book.none.strings,
            self._arrays(schema, place) if "array" in allowed else (),
            self._objects(schema, place, "type" in schema) if "object" in allowed else (),
        )
        if "enum" in schema:
            listed = schema["enum"]
            if not isinstance(listed, list):
                raise ConstraintError(f"'enum' at {pointer(place)} is no list")
            out = book.intersected(out, book.listed(cast("list[object]", listed)))
        if "const" in schema:
            out = book.intersected(out, book.literal(schema["const"]))
        for keyword, meaning in self._applicators().items():
            if keyword in schema:
                out = book.intersected(out, self._try(place, keyword, lambda m=meaning: m(schema, place)))
        return out

    def _applicators(self) -> dict[str, Callable[[Mapping[str, object], Place], Value]]:
        return {
            "$ref": self._reference,
            "allOf": self._all_of,
            "anyOf": self._any_of,
            "oneOf": self._one_of,
            "not": self._not,
            "if": self._if,
            "dependentRequired": self._dependencies("dependentRequired"),
            "dependentSchemas": self._dependencies("dependentSchemas"),
            "dependencies": self._dependencies("dependencies"),
        }

    def _reference(self, schema: Mapping[str, object], place: Place) -> Value:
        reference = schema["$ref"]
        if not isinstance(reference, str):
            raise ConstraintError(f"'$ref' at {pointer(place)} is {reference!r}, no text")
        return self.book.value(self._set(self.document.resolve(reference, place)))

    def _strings(self, schema: Mapping[str, object], place: Place) -> Strings:
        return strings_of(self.book, schema, place, self._patterns, self._refuse)

    # ------------------------------------------------------------------ arrays and objects

    def _arrays(self, schema: Mapping[str, object], place: Place) -> tuple[Arrays, ...]:
        prefix: list[int] = []
        rest = TRUE
        listed = "prefixItems" if "prefixItems" in schema else "items"
        members = schema.get(listed)
        if isinstance(members, list):
            prefix = [self._set((*place, listed, i)) for i in range(len(cast("list[object]", members)))]
            follow = "items" if listed == "prefixItems" else "additionalItems"
            if follow in schema:
                rest = self._set((*place, follow))
        elif "prefixItems" in schema:
            raise ConstraintError(f"'prefixItems' at {pointer(place)} is {members!r}: a list of schemas")
        elif "items" in schema:
            rest = self._set((*place, "items"))
        low = keywords.count(schema, "minItems", place) or 0
        shape = Arrays(tuple(prefix), rest, low, keywords.count(schema, "maxItems", place))
        if schema.get("uniqueItems") is True:
            shape = replace(shape, unique=pointer(place))
        if "contains" in schema:
            least = keywords.count(schema, "minContains", place)
            contained = (
                self._set((*place, "contains")),
                1 if least is None else least,
                keywords.count(schema, "maxContains", place),
            )
            shape = replace(shape, contains=(contained,))
        tidy = array_sets.both(self.book.sets, shape, Arrays())
        return () if tidy is None else (tidy,)

    def _objects(self, schema: Mapping[str, object], place: Place, typed: bool) -> tuple[Objects, ...]:
        if not any(k in schema for k in _OBJECT):
            return (Objects(shut=self.closed and typed),)
        declared = schema.get("properties", {})
        if not isinstance(declared, Mapping):
            raise ConstraintError(f"'properties' at {pointer(place)} is no object")
        names = keywords.names(schema.get("required", []), "required", place)
        matched: list[tuple[str, int]] = []
        if "patternProperties" in schema:
            if not isinstance(schema["patternProperties"], Mapping):
                raise ConstraintError(f"'patternProperties' at {pointer(place)} is no object")
            patterns = cast("Mapping[str, object]", schema["patternProperties"])
            for pattern in patterns:
                try:
                    self.book.found(pattern)
                except ConstraintError as error:
                    self._refuse(place, "patternProperties", str(error))
                    continue
                matched.append((pattern, self._set((*place, "patternProperties", pattern))))
        said = "additionalProperties" in schema or bool(matched)
        extra = self._set((*place, "additionalProperties")) if "additionalProperties" in schema else TRUE
        layers = (Layer(tuple(matched), extra),) if matched or extra != TRUE else ()
        outer = Objects(layers=layers)
        plain = Objects(layers=tuple(Layer(layer.patterns, TRUE) for layer in layers if layer.patterns))
        properties: list[Property] = []
        for key in cast("Mapping[str, object]", declared):
            parts = (self._set((*place, "properties", key)), self.book.objects.undeclared(plain, key))
            properties.append(Property(key, self.book.sets.both(parts), key in names))
        properties += [
            Property(key, self.book.objects.undeclared(outer, key), True)
            for key in dict.fromkeys(names)
            if key not in declared
        ]
        shape = Objects(
            tuple(properties),
            layers,
            self._set((*place, "propertyNames")) if "propertyNames" in schema else TRUE,
            keywords.count(schema, "minProperties", place) or 0,
            keywords.count(schema, "maxProperties", place),
            shut=self.closed and (typed or "properties" in schema),
            said=said,
        )
        return tuple(self.book.objects.both(shape, Objects(said=said)))

    # ------------------------------------------------------------------ combinations

    def _members(self, schema: Mapping[str, object], keyword: str, place: Place) -> list[int]:
        listed = schema[keyword]
        if not isinstance(listed, list):
            raise ConstraintError(f"{keyword!r} at {pointer(place)} is {listed!r}: a list of schemas")
        if not listed:
            raise ConstraintError(f"{keyword!r} at {pointer(place)} is empty: list at least one schema")
        return [self._set((*place, keyword, i)) for i in range(len(cast("list[object]", listed)))]

    def _all_of(self, schema: Mapping[str, object], place: Place) -> Value:
        out = self.book.every
        for number in self._members(schema, "allOf", place):
            out = self.book.intersected(out, self.book.value(number))
        return out

    def _any_of(self, schema: Mapping[str, object], place: Place) -> Value:
        out = self.book.none
        for number in dict.fromkeys(self._members(schema, "anyOf", place)):
            out = self.book.united(out, self.book.value(number))
        return out

    def _one_of(self, schema: Mapping[str, object], place: Place) -> Value:
        """Union where the members are plainly apart; else each without those that it may overlap."""
        book = self.book
        members = self._members(schema, "oneOf", place)
        out = book.none
        for index, number in enumerate(members):
            value = book.value(number)
            for other in (*members[:index], *members[index + 1 :]):
                if not book.apart(number, other):
                    value = book.intersected(value, book.negated(book.value(other)))
            out = book.united(out, value)
        return out

    def _not(self, schema: Mapping[str, object], place: Place) -> Value:
        return self.book.negated(self.book.value(self._set((*place, "not"))))

    def _if(self, schema: Mapping[str, object], place: Place) -> Value:
        book = self.book
        if "then" not in schema and "else" not in schema:
            return book.every
        test = book.value(self._set((*place, "if")))
        yes = book.value(self._set((*place, "then"))) if "then" in schema else book.every
        no = book.value(self._set((*place, "else"))) if "else" in schema else book.every
        return book.united(book.intersected(test, yes), book.intersected(book.negated(test), no))

    def _dependencies(self, keyword: str) -> Callable[[Mapping[str, object], Place], Value]:
        def meaning(schema: Mapping[str, object], place: Place) -> Value:
            book = self.book
            listed = schema[keyword]
            if not isinstance(listed, Mapping):
                raise ConstraintError(f"{keyword!r} at {pointer(place)} is no object")
            out = book.every
            for key, needs in cast("Mapping[str, object]", listed).items():
                absent = Objects((Property(key, FALSE, False),))
                if isinstance(needs, list):
                    names = [key, *keywords.names(cast("object", needs), keyword, place)]
                    present = (Objects(tuple(Property(n, TRUE, True) for n in dict.fromkeys(names))),)
                else:
                    stated = book.value(self._set((*place, keyword, key)))
                    here = Objects((Property(key, TRUE, True),))
                    present = tuple(s for o in stated.objects for s in book.objects.both(here, o))
                out = book.intersected(out, replace(book.every, objects=(absent, *present)))
            return out

        return meaning
