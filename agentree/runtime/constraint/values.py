"""Sets of JSON values in normal form, and their algebra.

A set is, per JSON type, what is in it: strings and numbers as automata, arrays and objects as lists of shapes
of which one must hold. Shapes name the sets of their members by number, so recursion costs nothing, and
union, intersection and complement are exact and lazy: `Book.value` works one level out at a time.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from agentree.errors import ConstraintError
from agentree.runtime.constraint import numbers, strings
from agentree.runtime.constraint.numbers import Numbers
from agentree.runtime.constraint.pattern import Dialect, search
from agentree.runtime.constraint.shapes import (
    FALSE,
    TRUE,
    Arrays,
    Layer,
    Objects,
    Property,
    Witness,
    distinct,
    item,
    least,
    tidy,
)
from agentree.runtime.constraint.strings import Strings
from agentree.runtime.constraint.terms import Terms

Key = tuple[Any, ...]


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

    tick: Callable[[], None] = lambda: None
    """Called now and then; raises to give up."""

    def __post_init__(self) -> None:
        self.terms = Terms(tick=self.tick)
        self._numbers: dict[Key, int] = {("or",): FALSE, ("and",): TRUE}
        self._keys: list[Key] = [("or",), ("and",)]
        self._sources: list[Source] = []
        self._values: dict[int, Value | None] = {}
        self._searches: dict[tuple[str, Dialect], Strings] = {}
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
            spelled = not any(0xD800 <= ord(c) <= 0xDFFF for c in value)
            return replace(none, strings=strings.listed(self.terms, (value,))) if spelled else none
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
            distinct((*a.arrays, *b.arrays)),
            distinct((*a.objects, *b.objects)),
        )

    def intersected(self, a: Value, b: Value) -> Value:
        """Intersection."""
        if a is self.every or b is self.every:
            return b if a is self.every else a
        arrays = [c for x in a.arrays for y in b.arrays if (c := self.array_both(x, y)) is not None]
        objects = [c for x in a.objects for y in b.objects for c in self.object_both(x, y)]
        return Value(
            a.null and b.null,
            a.true and b.true,
            a.false and b.false,
            numbers.both(a.numbers, b.numbers),
            strings.both(a.strings, b.strings),
            distinct(arrays),
            distinct(objects, self.object_part_of),
        )

    def negated(self, a: Value) -> Value:
        """Complement. Raises ConstraintError where a shape has none that can be written down."""
        arrays: tuple[Arrays, ...] = (Arrays(),)
        for shape in a.arrays:
            others = self._array_others(shape)
            arrays = distinct([c for x in arrays for y in others if (c := self.array_both(x, y)) is not None])
        objects: tuple[Objects, ...] = (Objects(),)
        for present in a.objects:
            rest = self._object_others(present)
            met = [o for x in objects for y in rest for o in self.object_both(x, y)]
            objects = distinct(met, self.object_part_of)
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
        high = least(a.high, b.high)
        return tidy(
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
        return [shape for shape in map(tidy, out) if shape is not None]

    def object_both(self, a: Objects, b: Objects) -> list[Objects]:
        """Intersection of two shapes: several where a witness may be one of several properties."""
        if b == Objects():
            return [a]
        if a == Objects():
            return [b]
        theirs = {p.key: p for p in b.properties}
        out: list[Property] = []
        for mine in a.properties:
            other = theirs.pop(mine.key, None)
            value = other.value if other is not None else self.undeclared(b, mine.key)
            required = mine.required or (other is not None and other.required)
            out.append(Property(mine.key, self._narrowed(mine.value, value), required))
        for other in b.properties:
            if other.key in theirs:
                value = self._narrowed(self.undeclared(a, other.key), other.value)
                out.append(Property(other.key, value, other.required))
        shape = Objects(
            tuple(out),
            tuple(dict.fromkeys((*a.layers, *b.layers))),
            self.both((a.names, b.names)),
            max(a.low, b.low),
            least(a.high, b.high),
            a.shut or b.shut,
            a.said or b.said,
            tuple(dict.fromkeys((*a.witnesses, *b.witnesses))),
        )
        return [s for s in self._witnessed(shape) if not self._plainly_void(s)]

    def _plainly_void(self, shape: Objects) -> bool:
        required = [p for p in shape.properties if p.required]
        if any(p.value == FALSE for p in required):
            return True
        return shape.high is not None and shape.high < max(shape.low, len(required))

    def _narrowed(self, a: int, b: int) -> int:
        """Intersection, less complements that change nothing: tags of other variants, mostly."""
        kept = self.both((a, b))
        key = self._keys[kept]
        if key[0] != "and" or self._keys[b][0] not in ("not", "and"):
            return kept
        parts: tuple[int, ...] = key[1:]
        plain = [m for m in parts if self._keys[m][0] != "not"]
        idle = {
            m
            for m in parts
            if self._keys[m][0] == "not" and any(self.apart(p, int(self._keys[m][1]), 2) for p in plain)
        }
        return self.both([m for m in parts if m not in idle]) if idle else kept

    def _witnessed(self, shape: Objects) -> list[Objects]:
        """Declared properties tried as witnesses; what is left concerns undeclared ones alone."""
        for place, witness in enumerate(shape.witnesses):
            fresh = [p for p in shape.properties if p.key not in witness.declared]
            if not fresh and not shape.closed:
                continue
            others = shape.witnesses[:place] + shape.witnesses[place + 1 :]
            out: list[Objects] = []
            for prop in fresh:
                value = self._narrowed(prop.value, self.broken(witness, prop.key))
                if value != FALSE:
                    changed = replace(prop, value=value, required=True)
                    properties = tuple(changed if p is prop else p for p in shape.properties)
                    out += self._witnessed(replace(shape, properties=properties, witnesses=others))
            if not shape.closed:
                declared = (*witness.declared, *(p.key for p in fresh))
                left = (*others, replace(witness, declared=declared))
                out += self._witnessed(replace(shape, witnesses=left))
            return out
        return [shape]

    def broken(self, witness: Witness, key: str) -> int:
        """Values with which a property of this key is the witness."""
        if witness.layer is None:
            return FALSE if self.value(witness.names).strings.holds(key) else TRUE
        return self.complement(self.undeclared(Objects(layers=(witness.layer,)), key))

    def object_part_of(self, a: Objects, b: Objects) -> bool:
        """Whether `a` is plainly part of `b`."""
        if (b.shut, b.said) != (a.shut, a.said) or b.low > a.low or not set(b.layers) <= set(a.layers):
            return False
        if b.high is not None and (a.high is None or a.high > b.high):
            return False
        if not self._implies(a.names, b.names) or not set(b.witnesses) <= set(a.witnesses):
            return False
        mine = {p.key: p for p in a.properties}
        for other in b.properties:
            own = mine.pop(other.key, None)
            value = own.value if own is not None else self.undeclared(a, other.key)
            if (other.required and (own is None or not own.required)) or not self._implies(
                value, other.value
            ):
                return False
        return all(self._implies(p.value, self.undeclared(b, p.key)) for p in mine.values())

    def _implies(self, a: int, b: int) -> bool:
        if b == TRUE or a in (b, FALSE):
            return True
        wanted, given = self._keys[b], self._keys[a]
        have = set(given[1:]) if given[0] == "and" else {a}
        need = set(wanted[1:]) if wanted[0] == "and" else {b}
        return all(
            n in have
            or (self._keys[n][0] == "not" and any(self.apart(h, int(self._keys[n][1]), 2) for h in have))
            for n in need
        )

    def _object_others(self, a: Objects) -> list[Objects]:
        if a.witnesses:
            raise ConstraintError("'not' over 'not' over 'additionalProperties' can't be enforced")
        out: list[Objects] = []
        declared = tuple(p.key for p in a.properties)
        for prop in a.properties:
            if prop.required:
                out.append(Objects((Property(prop.key, FALSE, False),)))
            if prop.value != TRUE:
                out.append(Objects((Property(prop.key, self.complement(prop.value), True),)))
        ruling = [layer for layer in a.layers if layer.patterns or layer.extra != TRUE]
        if a.shut and not a.said:
            ruling.append(Layer((), FALSE))
        # What the shape declares is no witness, so it is declared here as well.
        free = tuple(Property(key, TRUE, False) for key in declared)
        out += [Objects(free, witnesses=(Witness(declared, layer),)) for layer in ruling]
        if a.names != TRUE:
            out.append(Objects(witnesses=(Witness((), None, a.names),)))
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

    def found(self, pattern: str, dialect: Dialect = "ecma") -> Strings:
        """The strings in which a pattern matches."""
        key = (pattern, dialect)
        if key not in self._searches:
            self._searches[key] = Strings(self.terms, search(self.terms, pattern, dialect))
        return self._searches[key]

    # ------------------------------------------------------------------ disjointness

    def apart(self, a: int, b: int, depth: int = 5) -> bool:
        """Whether two sets certainly have no member in common; False may mean that it is not plain to see."""
        if FALSE in (a, b) or self.both((a, b)) == FALSE:
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
        return not self.object_both(a, b)
