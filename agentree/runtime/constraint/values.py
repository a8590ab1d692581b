"""Sets of JSON values in normal form, and their algebra.

A set is, per JSON type, what is in it: strings and numbers as automata, arrays and objects as lists of shapes
of which one must hold. Shapes name the sets of their members by number, so recursion costs nothing, and
union, intersection and complement are exact and lazy: `Book.value` works one level out at a time.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

from agentree.errors import ConstraintError
from agentree.runtime.constraint import array_sets, numbers, strings
from agentree.runtime.constraint.numbers import Numbers
from agentree.runtime.constraint.object_sets import ObjectSets
from agentree.runtime.constraint.pattern import Dialect, search
from agentree.runtime.constraint.sets import Key, Sets
from agentree.runtime.constraint.shapes import (
    FALSE,
    TRUE,
    Arrays,
    Layer,
    Objects,
    Property,
    distinct,
    item,
)
from agentree.runtime.constraint.strings import Strings
from agentree.runtime.constraint.terms import Terms


@dataclass(frozen=True)
class Value:
    """A set of JSON values."""

    null: bool
    true: bool
    false: bool
    numbers: Numbers
    strings: Strings
    arrays: tuple[Arrays, ...]
    objects: tuple[Objects, ...]


class Source(Protocol):
    """Where a set that a schema states comes from."""

    def value_at(self, place: Key, /) -> Value: ...


class Book:
    """All sets that one constraint speaks of, by number."""

    def __init__(self, tick: Callable[[], None] = lambda: None) -> None:
        """`tick` is called now and then; it raises to give up."""
        self.tick = tick
        self.terms = Terms(tick=tick)
        self.sets = Sets()
        self.objects = ObjectSets(self.sets, self)
        self._sources: list[Source] = []
        self._values: dict[int, Value | None] = {}
        self._searches: dict[tuple[str, Dialect], Strings] = {}
        self._disjoint: dict[tuple[int, int], bool] = {}
        anything = strings.all_strings(self.terms)
        nothing = strings.listed(self.terms, ())
        self.every = Value(True, True, True, numbers.ALL, anything, (Arrays(),), (Objects(),))
        self.none = Value(False, False, False, numbers.NONE, nothing, (), ())
        self._values = {FALSE: self.none, TRUE: self.every}

    # ------------------------------------------------------------------ where sets come from

    def add_source(self, source: Source) -> int:
        """Registers a schema document."""
        self._sources.append(source)
        return len(self._sources) - 1

    def stated(self, source: int, place: Key) -> int:
        """The set that a schema states at a place."""
        return self.sets.number(("at", source, place))

    def given(self, value: Value) -> int:
        """A set that is already in normal form."""
        number = self.sets.number(("value", len(self.sets.keys)))
        self._values[number] = value
        return number

    def found(self, pattern: str, dialect: Dialect = "ecma") -> Strings:
        """The strings in which a pattern matches."""
        key = (pattern, dialect)
        if key not in self._searches:
            self._searches[key] = Strings(self.terms, search(self.terms, pattern, dialect))
        return self._searches[key]

    # ------------------------------------------------------------------ normal forms

    def value(self, number: int) -> Value:
        """One set, worked out by one level. Raises ConstraintError for a set defined by itself alone."""
        found = self._values.get(number, self)
        if found is None:
            raise ConstraintError("a $ref leads back to itself without anything in between")
        if isinstance(found, Value):
            return found
        self.tick()
        self._values[number] = None
        try:
            value = self._work_out(self.sets.keys[number])
        except BaseException:
            del self._values[number]
            raise
        self._values[number] = value
        return value

    def _work_out(self, key: Key) -> Value:
        kind, *rest = key
        if kind == "at":
            source, place = rest
            return self._sources[int(source)].value_at(place)
        if kind == "const":
            return self.literal(json.loads(rest[0]))
        if kind == "not":
            return self.negated(self.value(rest[0]))
        members = [self.value(m) for m in rest]
        out = members[0]
        for member in members[1:]:
            out = self.intersected(out, member) if kind == "and" else self.united(out, member)
        return out

    def literal(self, value: object) -> Value:
        """Exactly one JSON value."""
        none = self.none
        if value is None:
            return replace(none, null=True)
        if isinstance(value, bool):
            return replace(none, true=value, false=not value)
        if isinstance(value, int | float):
            return replace(none, numbers=numbers.listed([value]))
        if isinstance(value, str):
            spelled = not any(0xD800 <= ord(c) <= 0xDFFF for c in value)
            return replace(none, strings=strings.listed(self.terms, (value,))) if spelled else none
        if isinstance(value, list):
            items = cast("list[object]", value)
            return replace(
                none, arrays=(Arrays(tuple(map(self.sets.constant, items)), FALSE, len(items), len(items)),)
            )
        if isinstance(value, dict):
            members = cast("dict[str, object]", value)
            declared = tuple(Property(k, self.sets.constant(v), True) for k, v in members.items())
            return replace(none, objects=(Objects(declared, (Layer((), FALSE),), said=True),))
        raise ConstraintError(f"{value!r} is no JSON value")

    def listed(self, values: Iterable[object]) -> Value:
        """Exactly these JSON values."""
        out = self.none
        plain: list[int | float] = []
        texts: list[str] = []
        for value in values:
            if isinstance(value, str):
                texts.append(value)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                plain.append(value)
            else:
                out = self.united(out, self.literal(value))
        return replace(
            out,
            numbers=numbers.listed(plain) if plain else out.numbers,
            strings=strings.listed(self.terms, tuple(texts)),
        )

    def united(self, a: Value, b: Value) -> Value:
        """Union."""
        if a is self.none or b is self.none:
            return b if a is self.none else a
        return Value(
            a.null or b.null,
            a.true or b.true,
            a.false or b.false,
            numbers.either(a.numbers, b.numbers),
            strings.either(a.strings, b.strings),
            distinct((*a.arrays, *b.arrays)),
            distinct((*a.objects, *b.objects)),
        )

    def intersected(self, a: Value, b: Value) -> Value:
        """Intersection."""
        if a is self.every or b is self.every:
            return b if a is self.every else a
        arrays = self._arrays_both(a.arrays, b.arrays)
        objects = [c for x in a.objects for y in b.objects for c in self.objects.both(x, y)]
        return Value(
            a.null and b.null,
            a.true and b.true,
            a.false and b.false,
            numbers.both(a.numbers, b.numbers),
            strings.both(a.strings, b.strings),
            distinct(arrays),
            distinct(objects, self.objects.part_of),
        )

    def negated(self, a: Value) -> Value:
        """Complement. Raises ConstraintError where a shape has none that can be written down."""
        arrays: tuple[Arrays, ...] = (Arrays(),)
        for shape in a.arrays:
            arrays = distinct(self._arrays_both(arrays, array_sets.others(self.sets, shape)))
        objects: tuple[Objects, ...] = (Objects(),)
        for present in a.objects:
            rest = self.objects.others(present)
            met = [o for x in objects for y in rest for o in self.objects.both(x, y)]
            objects = distinct(met, self.objects.part_of)
        return Value(
            not a.null,
            not a.true,
            not a.false,
            numbers.complement(a.numbers),
            strings.complement(a.strings),
            arrays,
            objects,
        )

    def _arrays_both(self, a: Iterable[Arrays], b: Sequence[Arrays]) -> list[Arrays]:
        met = (array_sets.both(self.sets, x, y) for x in a for y in b)
        return [shape for shape in met if shape is not None]

    # ------------------------------------------------------------------ disjointness

    def apart(self, a: int, b: int, depth: int = 5) -> bool:
        """Whether two sets certainly have no member in common; False may mean that it is not plain to see."""
        if FALSE in (a, b) or self.sets.both((a, b)) == FALSE:
            return True
        if a == b or TRUE in (a, b) or depth == 0 or None in (self._values.get(a, 0), self._values.get(b, 0)):
            return False
        pair = (min(a, b), max(a, b))
        found = self._disjoint.get(pair)
        if found is None:
            self._disjoint[pair] = False
            found = self._disjoint[pair] = self.values_apart(self.value(a), self.value(b), depth)
        return found

    def values_apart(self, a: Value, b: Value, depth: int = 5) -> bool:
        """As `apart`, of normal forms."""
        if (a.null and b.null) or (a.true and b.true) or (a.false and b.false):
            return False
        if not numbers.both(a.numbers, b.numbers).void or not strings.both(a.strings, b.strings).void:
            return False
        if not all(self._arrays_apart(x, y, depth) for x in a.arrays for y in b.arrays):
            return False
        return all(self._objects_apart(x, y, depth) for x in a.objects for y in b.objects)

    def _arrays_apart(self, a: Arrays, b: Arrays, depth: int) -> bool:
        met = array_sets.both(self.sets, a, b)
        if met is None:
            return True
        return any(self.apart(item(a, i), item(b, i), depth - 1) for i in range(min(met.low, 8)))

    def _objects_apart(self, a: Objects, b: Objects, depth: int) -> bool:
        for mine, other in ((a, b), (b, a)):
            declared = {p.key: p.value for p in other.properties}
            for prop in mine.properties:
                if prop.required:
                    value = declared.get(prop.key)
                    if value is None:
                        value = self.objects.undeclared(other, prop.key)
                        if other.shut and not other.said:
                            value = FALSE
                    if self.apart(prop.value, value, depth - 1):
                        return True
        return not self.objects.both(a, b)
