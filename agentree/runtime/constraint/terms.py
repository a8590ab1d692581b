"""Regular languages of texts as hash-consed terms with derivatives (Brzozowski 1964; Owens et al. 2009).

Terms speak of a text framed by two sentinels, so that anchors are ordinary letters: `BEGIN text END`. A term
of a language has taken `BEGIN` already: it accepts `text` if the derivative by `text` and then `END` is
nullable. Union, intersection and complement are exact, and bounded repeats are counted down instead of
copied.
"""

from collections.abc import Callable, Iterable
from typing import Final, Literal

from agentree.errors import ConstraintError
from agentree.runtime.constraint import charset
from agentree.runtime.constraint.charset import Ranges

BEGIN: Final = 0x110000
END: Final = 0x110001

Kind = Literal["none", "empty", "chars", "cat", "or", "and", "not", "repeat"]


class Term:
    """One language. Equal terms of one arena are the same object."""

    __slots__ = ("high", "id", "kind", "low", "nullable", "parts", "ranges")

    def __init__(
        self,
        number: int,
        kind: Kind,
        nullable: bool,
        parts: tuple["Term", ...],
        ranges: Ranges,
        low: int,
        high: int | None,
    ) -> None:
        self.id = number
        self.kind: Kind = kind
        self.nullable = nullable
        self.parts = parts
        self.ranges = ranges
        self.low = low
        self.high = high


def _order(term: Term) -> int:
    return term.id


class Terms:
    """An arena of terms: makes, simplifies and derives them. Raises ConstraintError past `limit` terms."""

    def __init__(self, limit: int = 400_000, tick: Callable[[], None] = lambda: None) -> None:
        self._table: dict[tuple[object, ...], Term] = {}
        self._derived: dict[tuple[int, int], Term] = {}
        self._limit = limit
        self.tick = tick
        self.none = self._make("none", False)
        self.empty = self._make("empty", True)
        self.any = self.chars(charset.ALL)
        self.everything = self.complement(self.none)
        """Every text, framed or not: the neutral element of intersection."""
        self.framed = self.chars((*charset.ALL, (BEGIN, END)))
        self.rest = self.repeat(self.framed, 0, None)
        self.end = self.chars(((END, END),))
        self.texts = self.cat(self.repeat(self.any, 0, None), self.end)

    def _make(
        self,
        kind: Kind,
        nullable: bool,
        parts: tuple[Term, ...] = (),
        ranges: Ranges = (),
        low: int = 0,
        high: int | None = 0,
    ) -> Term:
        key = (kind, tuple(p.id for p in parts), ranges, low, high)
        found = self._table.get(key)
        if found is None:
            if len(self._table) >= self._limit:
                raise ConstraintError(
                    f"the pattern needs more than {self._limit} terms: "
                    "make its repeats smaller or its alternatives fewer"
                )
            if not len(self._table) & 255:
                self.tick()
            found = Term(len(self._table), kind, nullable, parts, ranges, low, high)
            self._table[key] = found
        return found

    def chars(self, ranges: Ranges) -> Term:
        """One character of the set."""
        return self._make("chars", False, ranges=ranges) if ranges else self.none

    def cat(self, first: Term, second: Term) -> Term:
        """One after the other."""
        if first.kind == "none" or second.kind == "none":
            return self.none
        if first.kind == "empty":
            return second
        if second.kind == "empty":
            return first
        if first.kind == "cat":
            return self.cat(first.parts[0], self.cat(first.parts[1], second))
        return self._make("cat", first.nullable and second.nullable, (first, second))

    def either(self, members: Iterable[Term]) -> Term:
        """Union."""
        flat: dict[int, Term] = {}
        pending = list(members)
        loose: Ranges = ()
        while pending:
            term = pending.pop()
            if term.kind == "or":
                pending.extend(term.parts)
            elif term.kind == "chars":
                loose = _merge(loose, term.ranges)
            elif term is self.everything:
                return term
            elif term.kind != "none":
                flat[term.id] = term
        if loose:
            merged = self.chars(loose)
            flat[merged.id] = merged
        if any(t.kind == "not" and t.parts[0].id in flat for t in flat.values()):
            return self.everything
        if self.texts.id in flat and len(flat) > 1 and self.rest.id in flat:
            del flat[self.texts.id]
        if not flat:
            return self.none
        if len(flat) == 1:
            return next(iter(flat.values()))
        if self.rest.id in flat:
            return self.rest
        parts = tuple(sorted(flat.values(), key=_order))
        return self._make("or", any(p.nullable for p in parts), parts)

    def all_of(self, members: Iterable[Term]) -> Term:
        """Intersection."""
        flat: dict[int, Term] = {}
        pending = list(members)
        while pending:
            term = pending.pop()
            if term.kind == "and":
                pending.extend(term.parts)
            elif term.kind == "none":
                return term
            elif term is not self.everything:
                flat[term.id] = term
        if len(flat) > 1:
            flat.pop(self.rest.id, None)
        if any(t.kind == "not" and t.parts[0].id in flat for t in flat.values()):
            return self.none
        if not flat:
            return self.everything
        if len(flat) == 1:
            return next(iter(flat.values()))
        parts = tuple(sorted(flat.values(), key=_order))
        if self.empty in parts:
            return self.empty if all(p.nullable for p in parts) else self.none
        return self._make("and", all(p.nullable for p in parts), parts)

    def complement(self, term: Term) -> Term:
        """Every text that is not in it."""
        if term.kind == "not":
            return term.parts[0]
        return self._make("not", not term.nullable, (term,))

    def repeat(self, term: Term, low: int, high: int | None) -> Term:
        """Between `low` and `high` times; `None` is without end."""
        if high is not None and high < low:
            return self.none
        if high == 0 or term.kind == "empty":
            return self.empty
        if term.kind == "none":
            return self.empty if low == 0 else self.none
        if low == 1 and high == 1:
            return term
        if term.nullable:
            low = 0
        if term.kind == "repeat" and term.low == 0 and term.high is None:
            return term
        if low == 0 and high is None and term.kind == "repeat" and term.low <= 1:
            return self.repeat(term.parts[0], 0, None)
        return self._make("repeat", low == 0, (term,), low=low, high=high)

    def literal(self, text: str) -> Term:
        """Exactly this text, to its end."""
        out = self.end
        for char in reversed(text):
            point = ord(char)
            out = self.cat(self.chars(((point, point),)), out)
        return out

    def length(self, low: int, high: int | None) -> Term:
        """Every text of so many code points."""
        return self.cat(self.repeat(self.any, low, high), self.end)

    def derive(self, term: Term, point: int) -> Term:
        """What may follow `point`: the language of the rests."""
        kind = term.kind
        if kind == "chars":
            return self.empty if charset.contains(term.ranges, point) else self.none
        if kind in ("none", "empty"):
            return self.none
        key = (term.id, point)
        found = self._derived.get(key)
        if found is None:
            found = self._derived[key] = self._derive(term, point)
        return found

    def _derive(self, term: Term, point: int) -> Term:
        parts = term.parts
        if term.kind == "cat":
            first, second = parts
            out = self.cat(self.derive(first, point), second)
            return self.either((out, self.derive(second, point))) if first.nullable else out
        if term.kind == "or":
            return self.either([self.derive(p, point) for p in parts])
        if term.kind == "and":
            return self.all_of([self.derive(p, point) for p in parts])
        if term.kind == "not":
            return self.complement(self.derive(parts[0], point))
        high = None if term.high is None else term.high - 1
        return self.cat(self.derive(parts[0], point), self.repeat(parts[0], max(term.low - 1, 0), high))

    def accepts(self, term: Term, text: str) -> bool:
        """Whether `text` is in the language."""
        for char in text:
            term = self.derive(term, ord(char))
            if term.kind == "none":
                return False
        return self.derive(term, END).nullable

    def sets(self, roots: Iterable[Term]) -> list[Ranges]:
        """The distinct character sets that occur in the terms."""
        seen: set[int] = set()
        out: dict[Ranges, None] = {}
        pending = list(roots)
        while pending:
            term = pending.pop()
            if term.id in seen:
                continue
            seen.add(term.id)
            if term.kind == "chars":
                out[charset.both(term.ranges, charset.ALL)] = None
            pending.extend(term.parts)
        return [ranges for ranges in out if ranges]


def _merge(a: Ranges, b: Ranges) -> Ranges:
    inner = charset.either(charset.both(a, charset.ALL), charset.both(b, charset.ALL))
    marks = sorted(
        {p for low, high in (*a, *b) if high > charset.LAST for p in range(max(low, BEGIN), high + 1)}
    )
    if not marks:
        return inner
    return (
        (*inner, (marks[0], marks[-1]))
        if len(marks) == marks[-1] - marks[0] + 1
        else (*inner, *((m, m) for m in marks))
    )


def partition(sets: Iterable[Ranges]) -> list[Ranges]:
    """The coarsest classes of characters that no set tells apart; together they cover all characters."""
    events: dict[int, int] = {}
    for bit, ranges in enumerate((charset.ALL, *sets)):
        for low, high in ranges:
            events[low] = events.get(low, 0) ^ (1 << bit)
            events[high + 1] = events.get(high + 1, 0) ^ (1 << bit)
    classes: dict[int, list[tuple[int, int]]] = {}
    signature = 0
    points = sorted(events)
    for here, there in zip(points, [*points[1:], points[-1] + 1], strict=True):
        signature ^= events[here]
        if signature & 1:
            classes.setdefault(signature, []).append((here, there - 1))
    return [charset.normal(pairs) for pairs in classes.values()]
