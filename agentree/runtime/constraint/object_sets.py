"""Intersection and complement of shapes of objects, and which is part of which."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from agentree.errors import ConstraintError
from agentree.runtime.constraint.sets import Sets
from agentree.runtime.constraint.shapes import FALSE, TRUE, Layer, Objects, Property, Witness, least
from agentree.runtime.constraint.strings import Strings


class HasStrings(Protocol):
    """A set of JSON values."""

    @property
    def strings(self) -> Strings: ...


class Known(Protocol):
    """What is known of sets by their numbers."""

    def value(self, number: int, /) -> HasStrings: ...

    def apart(self, a: int, b: int, depth: int, /) -> bool: ...

    def found(self, pattern: str, /) -> Strings: ...


class ObjectSets:
    """The algebra of shapes of objects, whose members are sets by number."""

    def __init__(self, sets: Sets, known: Known) -> None:
        self.sets = sets
        self._known = known

    def both(self, a: Objects, b: Objects) -> list[Objects]:
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
            self.sets.both((a.names, b.names)),
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
        kept = self.sets.both((a, b))
        parts = self.sets.parts(kept)
        if len(parts) == 1 or (self.sets.excluded(b) is None and len(self.sets.parts(b)) == 1):
            return kept
        plain = [m for m in parts if self.sets.excluded(m) is None]
        idle = {m for m in parts if self._excludes_nothing(m, plain)}
        return self.sets.both([m for m in parts if m not in idle]) if idle else kept

    def _excludes_nothing(self, number: int, of: Iterable[int]) -> bool:
        """Whether it is a complement, of a set that one of these has nothing in common with."""
        excluded = self.sets.excluded(number)
        return excluded is not None and any(self._known.apart(one, excluded, 2) for one in of)

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
            return FALSE if self._known.value(witness.names).strings.holds(key) else TRUE
        return self.sets.complement(self.undeclared(Objects(layers=(witness.layer,)), key))

    def part_of(self, a: Objects, b: Objects) -> bool:
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
        have = set(self.sets.parts(a))
        return all(n in have or self._excludes_nothing(n, have) for n in self.sets.parts(b))

    def others(self, a: Objects) -> list[Objects]:
        """Shapes of which an object that does not have this one has at least one.

        Raises ConstraintError where they can't be written down.
        """
        if a.witnesses:
            raise ConstraintError("'not' over 'not' over 'additionalProperties' can't be enforced")
        out: list[Objects] = []
        declared = tuple(p.key for p in a.properties)
        for prop in a.properties:
            if prop.required:
                out.append(Objects((Property(prop.key, FALSE, False),)))
            if prop.value != TRUE:
                out.append(Objects((Property(prop.key, self.sets.complement(prop.value), True),)))
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
            matched = [number for pattern, number in layer.patterns if self._known.found(pattern).holds(key)]
            out += matched or [layer.extra]
        return self.sets.both(out)
