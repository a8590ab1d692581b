"""Sets of JSON values in normal form, and their algebra.

A set is, per JSON type, what is in it: strings and numbers as automata, arrays and objects as lists of shapes
of which one must hold. Shapes name the sets of their members by number, so recursion costs nothing, and
union, intersection and complement are exact and lazy: `Book.value` works one level out at a time.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar, cast

from agentree.errors import ConstraintError
from agentree.runtime.constraint import numbers, strings
from agentree.runtime.constraint.numbers import Numbers
from agentree.runtime.constraint.pattern import search
from agentree.runtime.constraint.strings import Strings
from agentree.runtime.constraint.terms import Terms

FALSE: Final = 0
TRUE: Final = 1

MOST_SHAPES: Final = 3000
"""A set with more alternative shapes is refused: combinations of `anyOf`, `oneOf` and `not` multiply."""

Key = tuple[Any, ...]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Property:
    """A declared property; `value` numbers a set."""

    key: str
    value: int
    required: bool


@dataclass(frozen=True)
class Layer:
    """What one schema says of undeclared keys: sets by pattern, and `extra` where none matches."""

    patterns: tuple[tuple[str, int], ...]
    extra: int


@dataclass(frozen=True)
class Objects:
    """Objects whose keys come in the order of `properties`, then the undeclared ones."""

    properties: tuple[Property, ...] = ()
    layers: tuple[Layer, ...] = ()
    names: int = TRUE
    low: int = 0
    high: int | None = None
    shut: bool = False
    """Closed, unless `said`."""
    said: bool = False
    """Some schema says what undeclared properties are."""


@dataclass(frozen=True)
class Arrays:
    """Arrays: sets of the first items, of the rest, bounds of the count."""

    prefix: tuple[int, ...] = ()
    rest: int = TRUE
    low: int = 0
    high: int | None = None
    contains: tuple[tuple[int, int, int | None], ...] = ()
    """(set, least, most): how many items are in the set."""
    unique: bool = False


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


@dataclass
class Book:
    """All sets that one constraint speaks of, by number."""

    terms: Terms = field(default_factory=Terms)
    tick: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._numbers: dict[Key, int] = {("or",): FALSE, ("and",): TRUE}
        self._keys: list[Key] = [("or",), ("and",)]
        self._sources: list[Source] = []
        self._values: dict[int, Value | None] = {}
        self._searches: dict[str, Strings] = {}
        self._disjoint: dict[tuple[int, int], bool] = {}
        anything = strings.all_strings(self.terms)
        nothing = strings.listed(self.terms, ())
        self.every = Value(True, True, True, numbers.ALL, anything, (Arrays(),), (Objects(),))
        self.none = Value(False, False, False, numbers.NONE, nothing, (), ())
        self._values = {FALSE: self.none, TRUE: self.every}

    # ------------------------------------------------------------------ numbers of sets

    def _number(self, key: Key) -> int:
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return found

    def add_source(self, source: Source) -> int:
        """Registers a schema document."""
        self._sources.append(source)
        return len(self._sources) - 1

    def stated(self, source: int, place: Key) -> int:
        """The set that a schema states at a place."""
        return self._number(("at", source, place))

    def given(self, value: Value) -> int:
        """A set that is already in normal form."""
        number = self._number(("value", len(self._keys)))
        self._values[number] = value
        return number

    def constant(self, value: object) -> int:
        """The set of one JSON value."""
        return self._number(("const", json.dumps(value, ensure_ascii=False)))

    def both(self, members: Iterable[int]) -> int:
        """Intersection."""
        flat: set[int] = set()
        for member in members:
            key = self._keys[member]
            flat.update(key[1:] if key[0] == "and" else (member,))
        if FALSE in flat or any(self._keys[m][0] == "not" and self._keys[m][1] in flat for m in flat):
            return FALSE
        if len(flat) == 1:
            return flat.pop()
        return self._number(("and", *sorted(flat)))

    def either(self, members: Iterable[int]) -> int:
        """Union."""
        flat: set[int] = set()
        for member in members:
            key = self._keys[member]
            flat.update(key[1:] if key[0] == "or" else (member,))
        if TRUE in flat or any(self._keys[m][0] == "not" and self._keys[m][1] in flat for m in flat):
            return TRUE
        if len(flat) == 1:
            return flat.pop()
        return self._number(("or", *sorted(flat)))

    def complement(self, member: int) -> int:
        """Every other JSON value."""
        if member in (FALSE, TRUE):
            return FALSE + TRUE - member
        key = self._keys[member]
        return int(key[1]) if key[0] == "not" else self._number(("not", member))

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
            value = self._work_out(self._keys[number])
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
            return replace(none, strings=strings.listed(self.terms, (value,)))
        if isinstance(value, list):
            items = cast("list[object]", value)
            return replace(
                none, arrays=(Arrays(tuple(map(self.constant, items)), FALSE, len(items), len(items)),)
            )
        if isinstance(value, dict):
            members = cast("dict[str, object]", value)
            declared = tuple(Property(k, self.constant(v), True) for k, v in members.items())
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
            _some((*a.arrays, *b.arrays)),
            _some((*a.objects, *b.objects)),
        )

    def intersected(self, a: Value, b: Value) -> Value:
        """Intersection."""
        if a is self.every or b is self.every:
            return b if a is self.every else a
        arrays = [c for x in a.arrays for y in b.arrays if (c := self.array_both(x, y)) is not None]
        objects = [c for x in a.objects for y in b.objects if (c := self.object_both(x, y)) is not None]
        return Value(
            a.null and b.null,
            a.true and b.true,
            a.false and b.false,
            numbers.both(a.numbers, b.numbers),
            strings.both(a.strings, b.strings),
            _some(arrays),
            _some(objects),
        )

    def negated(self, a: Value) -> Value:
        """Complement. Raises ConstraintError where a shape has none that can be written down."""
        arrays: tuple[Arrays, ...] = (Arrays(),)
        for shape in a.arrays:
            others = self._array_others(shape)
            arrays = _some([c for x in arrays for y in others if (c := self.array_both(x, y)) is not None])
        objects: tuple[Objects, ...] = (Objects(),)
        for present in a.objects:
            rest = self._object_others(present)
            objects = _some([o for x in objects for y in rest if (o := self.object_both(x, y)) is not None])
        return Value(
            not a.null,
            not a.true,
            not a.false,
            numbers.complement(a.numbers),
            strings.complement(a.strings),
            arrays,
            objects,
        )

    # ------------------------------------------------------------------ shapes

    def array_both(self, a: Arrays, b: Arrays) -> Arrays | None:
        """Intersection of two shapes; None if it is plainly void."""
        size = max(len(a.prefix), len(b.prefix))
        prefix = tuple(self.both((item(a, i), item(b, i))) for i in range(size))
        contains = tuple(dict.fromkeys((*a.contains, *b.contains)))
        high = _least(a.high, b.high)
        return _tidy(
            Arrays(
                prefix, self.both((a.rest, b.rest)), max(a.low, b.low), high, contains, a.unique or b.unique
            )
        )

    def _array_others(self, a: Arrays) -> list[Arrays]:
        if a.unique:
            raise ConstraintError("'not' over 'uniqueItems' can't be enforced")
        out = [
            Arrays((TRUE,) * i + (self.complement(e),), low=i + 1)
            for i, e in enumerate(a.prefix)
            if e != TRUE
        ]
        if a.rest != TRUE:
            if not a.prefix:
                out.append(Arrays(contains=((self.complement(a.rest), 1, None),)))
            elif a.rest == FALSE:
                out.append(Arrays(low=len(a.prefix) + 1))
            else:
                raise ConstraintError("'not' over 'prefixItems' beside 'items' can't be enforced")
        if a.low:
            out.append(Arrays(high=a.low - 1))
        if a.high is not None:
            out.append(Arrays(low=a.high + 1))
        for number, low, high in a.contains:
            if low:
                out.append(
                    Arrays(contains=((number, 0, low - 1),))
                    if low > 1
                    else Arrays(rest=self.complement(number))
                )
            if high is not None:
                out.append(Arrays(contains=((number, high + 1, None),)))
        return [shape for shape in map(_tidy, out) if shape is not None]

    def object_both(self, a: Objects, b: Objects) -> Objects | None:
        """Intersection of two shapes; None if it is plainly void."""
        if b == Objects():
            return a
        if a == Objects():
            return b
        theirs = {p.key: p for p in b.properties}
        out: list[Property] = []
        for mine in a.properties:
            other = theirs.pop(mine.key, None)
            value = other.value if other is not None else self.undeclared(b, mine.key)
            required = mine.required or (other is not None and other.required)
            out.append(Property(mine.key, self.both((mine.value, value)), required))
        for other in b.properties:
            if other.key in theirs:
                value = self.both((other.value, self.undeclared(a, other.key)))
                out.append(Property(other.key, value, other.required))
        layers = tuple(dict.fromkeys((*a.layers, *b.layers)))
        names = self.both((a.names, b.names))
        high = _least(a.high, b.high)
        shape = Objects(
            tuple(out), layers, names, max(a.low, b.low), high, a.shut or b.shut, a.said or b.said
        )
        required = [p for p in out if p.required]
        if any(p.value == FALSE for p in required) or (
            high is not None and high < max(shape.low, len(required))
        ):
            return None
        return shape

    def _object_others(self, a: Objects) -> list[Objects]:
        if a.names != TRUE:
            raise ConstraintError("'not' over 'propertyNames' can't be enforced")
        if any(layer.patterns or layer.extra != TRUE for layer in a.layers):
            raise ConstraintError(
                "'not' over 'additionalProperties' or 'patternProperties' can't be enforced"
            )
        out: list[Objects] = []
        for prop in a.properties:
            if prop.required:
                out.append(Objects((Property(prop.key, FALSE, False),)))
            if prop.value != TRUE:
                out.append(Objects((Property(prop.key, self.complement(prop.value), True),)))
        if a.low:
            out.append(Objects(high=a.low - 1))
        if a.high is not None:
            out.append(Objects(low=a.high + 1))
        return out

    def undeclared(self, shape: Objects, key: str) -> int:
        """The set of the values of a key that the shape does not declare."""
        out: list[int] = []
        for layer in shape.layers:
            matched = [number for pattern, number in layer.patterns if self.found(pattern).holds(key)]
            out += matched or [layer.extra]
        return self.both(out)

    def found(self, pattern: str) -> Strings:
        """The strings in which an ECMA-262 pattern matches."""
        if pattern not in self._searches:
            self._searches[pattern] = Strings(self.terms, search(self.terms, pattern))
        return self._searches[pattern]

    # ------------------------------------------------------------------ disjointness

    def apart(self, a: int, b: int, depth: int = 5) -> bool:
        """Whether two sets certainly have no member in common; False may mean that it is not plain to see."""
        if FALSE in (a, b) or self.both((a, b)) == FALSE:
            return True
        if a == b or TRUE in (a, b) or depth == 0:
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
        met = self.array_both(a, b)
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
                        value = self.undeclared(other, prop.key)
                        if other.shut and not other.said:
                            value = FALSE
                    if self.apart(prop.value, value, depth - 1):
                        return True
        return self.object_both(a, b) is None


def item(shape: Arrays, index: int) -> int:
    """The set of the item at `index`."""
    return shape.prefix[index] if index < len(shape.prefix) else shape.rest


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _tidy(shape: Arrays) -> Arrays | None:
    high = shape.high
    for index, number in enumerate((*shape.prefix, shape.rest)):
        if number == FALSE:
            high = _least(high, index)
            break
    if high is not None and high < shape.low:
        return None
    return shape if high == shape.high else replace(shape, high=high)


def _some(shapes: Iterable[_T]) -> tuple[_T, ...]:
    out = tuple(dict.fromkeys(shapes))
    if len(out) > MOST_SHAPES:
        raise ConstraintError(
            f"the combinations of anyOf, oneOf, allOf and not make more than {MOST_SHAPES} shapes: "
            "use fewer alternatives"
        )
    return out
