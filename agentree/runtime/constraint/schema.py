"""JSON Schema (drafts 4 to 7 and 2020-12) to sets of values, one place of the document at a time.

Every keyword that can reject something is either enforced exactly or refused by name and place.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from agentree.errors import ConstraintError
from agentree.json_types import PYTHON_PATTERN
from agentree.runtime.constraint import numbers, strings
from agentree.runtime.constraint.documents import Document, Place, pointer
from agentree.runtime.constraint.formats import FORMATS, LONGEST
from agentree.runtime.constraint.numbers import Comparison
from agentree.runtime.constraint.pattern import Dialect, simple_repeat
from agentree.runtime.constraint.shapes import FALSE, TRUE, Arrays, Layer, Objects, Property
from agentree.runtime.constraint.terms import partition
from agentree.runtime.constraint.values import Book, Key, Value

TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

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

_STRING = ("minLength", "maxLength", "pattern", "format")
_NUMBER = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
MOST_MEMBERS = 10_000
"""Most members of an array or object that are counted one by one."""
MOST_KEYS = 100
"""Most properties that an object can be asked to have at least: their keys differ, so all are known."""
MOST_CHARACTERS = 1_000_000
"""Most characters that a string can be asked to have at least."""
_COUNTED = ("minItems", "minProperties", "maxProperties", "minContains")
_ARRAY = ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains")
_OBJECT = (
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
        _ = self._names(schema.get("required", []), "required", place)
        types = self._types(schema, place)
        out = Value(
            "null" in types,
            "boolean" in types,
            "boolean" in types,
            self._numbers(schema, place, types),
            self._strings(schema, place) if "string" in types else book.none.strings,
            self._arrays(schema, place) if "array" in types else (),
            self._objects(schema, place, "type" in schema) if "object" in types else (),
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

    def _types(self, schema: Mapping[str, object], place: Place) -> Sequence[str]:
        stated = schema.get("type")
        if stated is None:
            return ("null", "boolean", "number", "string", "array", "object")
        types = [stated] if isinstance(stated, str) else stated
        if not isinstance(types, list):
            raise ConstraintError(f"'type' at {pointer(place)} is {stated!r}: a name or a list of names")
        for name in cast("list[object]", types):
            if name not in TYPES:
                raise ConstraintError(f"'type' at {pointer(place)} is {name!r}: known are {', '.join(TYPES)}")
        return cast("list[str]", types)

    def _reference(self, schema: Mapping[str, object], place: Place) -> Value:
        reference = schema["$ref"]
        if not isinstance(reference, str):
            raise ConstraintError(f"'$ref' at {pointer(place)} is {reference!r}, no text")
        return self.book.value(self._set(self.document.resolve(reference, place)))

    # ------------------------------------------------------------------ scalars

    def _numbers(self, schema: Mapping[str, object], place: Place, types: Sequence[str]) -> numbers.Numbers:
        if "number" in types:
            out = numbers.ALL
        elif "integer" in types:
            out = numbers.WHOLE
        else:
            return numbers.NONE
        bounds: list[tuple[Comparison, object, str]] = []
        for keyword, plain, strict, flag in (
            ("minimum", ">=", ">", "exclusiveMinimum"),
            ("maximum", "<=", "<", "exclusiveMaximum"),
        ):
            if keyword in schema:
                operation = strict if schema.get(flag) is True else plain
                bounds.append((cast("Comparison", operation), schema[keyword], keyword))
            if flag in schema and not isinstance(schema[flag], bool):
                bounds.append((cast("Comparison", strict), schema[flag], flag))
        for operation, bound, keyword in bounds:
            value = _number(bound, keyword, place)
            out = numbers.both(out, numbers.Numbers(numbers.compared(operation, numbers.decimal(value))))
        if "multipleOf" in schema:
            value = _number(schema["multipleOf"], "multipleOf", place)
            if value <= 0:
                raise ConstraintError(f"'multipleOf' at {pointer(place)} is {value!r}: it must be above 0")
            try:
                out = numbers.both(out, numbers.Numbers(numbers.multiples(numbers.decimal(value))))
            except ConstraintError as error:
                self._refuse(place, "multipleOf", str(error))
        return out

    def _strings(self, schema: Mapping[str, object], place: Place) -> strings.Strings:
        terms = self.book.terms
        out = strings.all_strings(terms)
        low = self._count(schema, "minLength", place) or 0
        out = replace(out, low=low, high=self._count(schema, "maxLength", place))
        if "pattern" in schema:
            pattern = schema["pattern"]
            if not isinstance(pattern, str):
                raise ConstraintError(f"'pattern' at {pointer(place)} is {pattern!r}, no text")
            dialect = "python" if schema.get(PYTHON_PATTERN) == "python" else self._patterns
            try:
                out = strings.both(out, self._pattern(pattern, dialect))
            except ConstraintError as error:
                self._refuse(place, "pattern", str(error))
        known = schema.get("format")
        if isinstance(known, str) and known in FORMATS:
            found = replace(self.book.found(FORMATS[known]), high=LONGEST.get(known))
            out = strings.both(out, found)
        return out

    def _pattern(self, pattern: str, dialect: Dialect) -> strings.Strings:
        """A pattern that is one counted set of characters becomes a length window."""
        counted = simple_repeat(pattern, dialect)
        if counted is None:
            return self.book.found(pattern, dialect)
        terms = self.book.terms
        ranges, low, high = counted
        if len(partition([ranges])) == 1:
            return strings.Strings(terms, terms.texts if ranges else terms.literal(""), low, high)
        return strings.Strings(
            terms, terms.cat(terms.repeat(terms.chars(ranges), 0, None), terms.end), low, high
        )

    def _count(self, schema: Mapping[str, object], keyword: str, place: Place) -> int | None:
        value = schema.get(keyword)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 0:
            raise ConstraintError(f"{keyword!r} at {pointer(place)} is {value!r}: a whole number from 0 on")
        most = MOST_KEYS if keyword == "minProperties" else MOST_MEMBERS
        if keyword in _COUNTED and value > most:
            raise ConstraintError(
                f"{keyword!r} at {pointer(place)} can't be enforced: {value} members are more than the "
                f"{most:,} that are counted; give a smaller number"
            )
        if keyword == "minLength" and value > MOST_CHARACTERS:
            raise ConstraintError(
                f"'minLength' at {pointer(place)} can't be enforced: a text of {value} characters is longer "
                f"than {MOST_CHARACTERS:,}; give a smaller number"
            )
        return int(value)

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
        low = self._count(schema, "minItems", place) or 0
        shape = Arrays(tuple(prefix), rest, low, self._count(schema, "maxItems", place))
        if schema.get("uniqueItems") is True:
            shape = replace(shape, unique=pointer(place))
        if "contains" in schema:
            least = self._count(schema, "minContains", place)
            contained = (
                self._set((*place, "contains")),
                1 if least is None else least,
                self._count(schema, "maxContains", place),
            )
            shape = replace(shape, contains=(contained,))
        tidy = self.book.array_both(shape, Arrays())
        return () if tidy is None else (tidy,)

    def _objects(self, schema: Mapping[str, object], place: Place, typed: bool) -> tuple[Objects, ...]:
        if not any(k in schema for k in _OBJECT):
            return (Objects(shut=self.closed and typed),)
        declared = schema.get("properties", {})
        if not isinstance(declared, Mapping):
            raise ConstraintError(f"'properties' at {pointer(place)} is no object")
        names = self._names(schema.get("required", []), "required", place)
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
            value = self.book.both((self._set((*place, "properties", key)), self.book.undeclared(plain, key)))
            properties.append(Property(key, value, key in names))
        properties += [
            Property(key, self.book.undeclared(outer, key), True)
            for key in dict.fromkeys(names)
            if key not in declared
        ]
        shape = Objects(
            tuple(properties),
            layers,
            self._set((*place, "propertyNames")) if "propertyNames" in schema else TRUE,
            self._count(schema, "minProperties", place) or 0,
            self._count(schema, "maxProperties", place),
            shut=self.closed and (typed or "properties" in schema),
            said=said,
        )
        return tuple(self.book.object_both(shape, Objects(said=said)))

    def _names(self, listed: object, keyword: str, place: Place) -> list[str]:
        names = cast("list[object]", listed) if isinstance(listed, list) else [None]
        if not all(isinstance(n, str) for n in names):
            raise ConstraintError(f"{keyword!r} at {pointer(place)} is {listed!r}: a list of property names")
        return cast("list[str]", names)

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
                    names = [key, *self._names(cast("object", needs), keyword, place)]
                    present = (Objects(tuple(Property(n, TRUE, True) for n in dict.fromkeys(names))),)
                else:
                    stated = book.value(self._set((*place, keyword, key)))
                    here = Objects((Property(key, TRUE, True),))
                    present = tuple(s for o in stated.objects for s in book.object_both(here, o))
                out = book.intersected(out, replace(book.every, objects=(absent, *present)))
            return out

        return meaning


def _number(value: object, keyword: str, place: Place) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConstraintError(f"{keyword!r} at {pointer(place)} is {value!r}, no number")
    return value
