"""Object shapes as they are written: what may come next, and the shortest way to the end."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from agentree.runtime.constraint.others import OtherTexts
from agentree.runtime.constraint.shapes import FALSE, TRUE, Layer, Objects
from agentree.runtime.constraint.spelling import quote
from agentree.runtime.constraint.text import Text, TextAutomaton

if TYPE_CHECKING:
    from agentree.runtime.constraint.grammar import Grammar

Taken = tuple[bytes, ...]
"""Undeclared keys as they are spelled between their quotes."""


@dataclass(frozen=True)
class Extra:
    """Undeclared keys of one kind.

    `claims[bits]` is the set of values with which such a property is the witness of all those of the shape's
    witnesses whose bits are set; `claims[0]` the set of all legal values.
    """

    claims: dict[int, int]


class ObjectForm:
    """Declared properties that can occur, in order, and what undeclared keys mean (`extras`, by label)."""

    def __init__(self, grammar: "Grammar", shape: Objects) -> None:
        self.shape = shape
        self._grammar = grammar
        book = grammar.book
        names = book.value(shape.names).strings if shape.names != TRUE else None
        kept = [p for p in shape.properties if names is None or names.holds(p.key)]
        self.impossible = any(p.required and p not in kept for p in shape.properties)
        self.properties = [p for p in kept if p.value != FALSE]
        self.impossible |= any(p.required and p.value == FALSE for p in kept)
        self.low, self.high = shape.low, shape.high
        self.counted = bool(shape.low) or shape.high is not None
        self.most = max(shape.low, shape.high or 0) + 1 if self.counted else 0
        self.owed = (1 << len(shape.witnesses)) - 1
        """All witnesses, as a bit set."""
        layers = (*shape.layers, *(w.layer for w in shape.witnesses if w.layer is not None))
        self._patterns = tuple(dict.fromkeys(p for layer in layers for p, _ in layer.patterns))
        self._names = tuple(w.names for w in shape.witnesses if w.layer is None)
        self.extras: list[Extra] = []
        self._labels: dict[tuple[bool, ...], int] = {}
        self._picked: dict[frozenset[int], Text] = {}
        if shape.closed:
            self.open = False
        elif not self._patterns and not self._names:
            self.open = self._extra(()) >= 0
        else:
            _ = self.keys
            self.open = bool(self.extras)
        self.impossible |= bool(self.owed) and not self.open

    def members(self) -> Sequence[int]:
        """The sets of all values."""
        out = [p.value for p in self.properties]
        return out + [n for extra in self.extras for n in extra.claims.values()] if self.open else out

    @cached_property
    def keys(self) -> Text:
        """The automaton of undeclared keys; its labels index `extras`."""
        book, shape = self._grammar.book, self.shape
        terms = book.terms
        allowed = [terms.complement(terms.either([terms.literal(p.key) for p in shape.properties]))]
        if shape.names != TRUE:
            allowed.append(book.value(shape.names).strings.whole)
        roots = [terms.all_of(allowed), *(book.found(p).term for p in self._patterns)]
        roots += [book.value(n).strings.whole for n in self._names]
        automaton = TextAutomaton.of_terms(terms, roots, self._label, "json")
        return Text(automaton, spare=self._grammar.spare)

    def keys_with(self, labels: frozenset[int]) -> Text:
        """As `keys`, only those of some labels."""
        found = self._picked.get(labels)
        if found is None:
            found = self.keys
            kept = [n if n in labels else -1 for n in found.automaton.labels]
            if kept != found.automaton.labels:
                found = Text(found.automaton.relabelled(kept), spare=self._grammar.spare)
            self._picked[labels] = found
        return found

    def _label(self, accepting: tuple[bool, ...]) -> int:
        return self._extra(accepting[1:]) if accepting[0] else -1

    def _extra(self, hits: tuple[bool, ...]) -> int:
        label = self._labels.get(hits)
        if label is not None:
            return label
        book, shape = self._grammar.book, self.shape
        matched = dict(zip(self._patterns, hits, strict=False))
        named = dict(zip(self._names, hits[len(self._patterns) :], strict=False))
        value = book.sets.both([n for layer in shape.layers for n in _rules(layer, matched)])
        broken: list[int] = []
        for witness in shape.witnesses:
            if witness.layer is None:
                broken.append(FALSE if named[witness.names] else TRUE)
            else:
                broken.append(book.sets.complement(book.sets.both(_rules(witness.layer, matched))))
        claims: dict[int, int] = {}
        for bits in range(self.owed + 1):
            number = book.sets.both([value, *(b for i, b in enumerate(broken) if bits >> i & 1)])
            if number != FALSE:
                claims[bits] = number
        label = len(self.extras) if claims else -1
        if claims:
            self.extras.append(Extra(claims))
        self._labels[hits] = label
        return label


def _rules(layer: Layer, matched: dict[str, bool]) -> list[int]:
    return [n for p, n in layer.patterns if matched[p]] or [layer.extra]


class Tails:
    """Shortest completions of one object form.

    `tail(i, count, owed)` leads from after a value to `}` where `properties[i:]` may still come, `count`
    properties are written and the witnesses `owed` are missing.
    """

    def __init__(self, grammar: "Grammar", form: ObjectForm) -> None:
        self._grammar = grammar
        self._form = form
        self._comma, self._colon = grammar.style.comma, grammar.style.colon
        self.usable = [grammar.live(p.value) for p in form.properties]
        self._texts: list[bytes | None] = []
        for prop in form.properties:
            value = grammar.shortest(prop.value)
            self._texts.append(None if value is None else quote(prop.key) + self._colon + value)
        size = len(form.properties)
        self._live = [{b: n for b, n in e.claims.items() if grammar.live(n)} for e in form.extras]
        self.extra_live = form.open and any(self._live)
        wanted = form.low > sum(p.required for p in form.properties) or bool(form.owed)
        self.tracked = self.extra_live and wanted
        """Undeclared keys count towards a bound or may be witnesses, so they must differ."""
        lacking = any(p.required and not u for p, u in zip(form.properties, self.usable, strict=True))
        self.void = form.impossible or lacking
        self._required = [size] * (size + 1)
        for i in range(size - 1, -1, -1):
            self._required[i] = i if form.properties[i].required else self._required[i + 1]
        self._closings: dict[tuple[Taken, int, int], list[bytes] | None] = {}
        self._others: dict[int, OtherTexts | None] = {}
        self._table: dict[tuple[int, int, int], bytes | None] = {}
        if not self.void:
            for i in range(size, -1, -1):
                for owed in range(form.owed + 1):
                    grammar.book.tick()
                    for count in range(form.most + 1, -1, -1):
                        self._table[i, count, owed] = self._best(i, count, owed)

    def _best(self, i: int, count: int, owed: int) -> bytes | None:
        form = self._form
        if form.high is not None and count > form.high:
            return None
        size, first = len(form.properties), self._required[i]
        enough = count >= form.low
        found: list[bytes] = []
        if first == size:
            closing = self.closing((), count, owed)
            if closing is not None:
                if enough:
                    return closing
                found.append(closing)
        if first < size or not enough:
            for j in range(first if enough else i, min(first, size - 1) + 1):
                text, tail = self._texts[j], self.tail(j + 1, count + 1, owed)
                if text is not None and tail is not None:
                    found.append(self._comma + text + tail)
        return min(found, key=len, default=None)

    def closing(self, taken: Taken, count: int, owed: int) -> bytes | None:
        """The shortest end with undeclared properties alone."""
        missing = max(self._form.low - count, 0)
        if not missing and not owed:
            return b"}"
        more = self._beside(taken, missing) if taken and not owed else None
        if more is None:
            more = self._kept(taken, missing, owed)
        if more is None or (self._form.high is not None and count + len(more) > self._form.high):
            return None
        return b"".join(self._comma + m for m in more) + b"}"

    def _kept(self, taken: Taken, missing: int, owed: int) -> list[bytes] | None:
        key = (taken, missing, owed)
        if key not in self._closings:
            if len(self._closings) > 10_000:
                self._closings.clear()
            self._closings[key] = self._more(taken, missing, owed)
        return self._closings[key]

    def _beside(self, taken: Taken, missing: int) -> list[bytes] | None:
        """What completes the object, from what does so without its last key, which has many spellings."""
        more = self._kept(taken[:-1], missing + 1, 0)
        if more is None:
            return None
        last = b'"' + taken[-1] + b'"' + self._colon
        return [m for m in more if not m.startswith(last)][:missing]

    def _more(self, taken: Taken, missing: int, owed: int) -> list[bytes] | None:
        """Undeclared properties with different keys: first the witnesses, then as many as are missing."""
        out: list[bytes] = []
        used = set(taken)
        keys: dict[int, Iterator[tuple[bytes, int]]] = {}
        while owed or missing > len(out):
            self._grammar.book.tick()
            for bits in dict.fromkeys((owed, owed & -owed)):
                if bits not in keys:
                    keys[bits] = self._keys(bits, used)
                found = next(keys[bits], None)
                if found is None:
                    continue
                spelled, label = found
                value = self._grammar.shortest(self._live[label][bits]) or b""
                out.append(b'"' + spelled + b'"' + self._colon + value)
                used.add(spelled)
                owed &= ~bits
                break
            else:
                return None
        return out

    def _keys(self, bits: int, used: Container[bytes]) -> Iterator[tuple[bytes, int]]:
        """Undeclared keys beside those used, whose property may be these witnesses."""
        if bits not in self._others:
            labels = frozenset(n for n, claims in enumerate(self._live) if bits in claims)
            self._others[bits] = OtherTexts(self._form.keys_with(labels)) if labels else None
        others = self._others[bits]
        return iter(()) if others is None else others.beside(used)

    def tail(self, i: int, count: int, owed: int) -> bytes | None:
        """Shortest text from after a value to `}`, None if there is none."""
        form = self._form
        return self._table[i, min(count, form.most + 1) if form.counted else 0, owed]

    def whole(self) -> bytes | None:
        """The shortest object."""
        tail = None if self.void else self.tail(0, 0, self._form.owed)
        if tail is None:
            return None
        return b"{" + tail.removeprefix(self._comma)

    def choices(self, i: int, count: int, owed: int) -> int:
        """Properties that may come next, as a bit set."""
        out = 0
        for j in range(i, min(self._required[i], len(self._form.properties) - 1) + 1):
            if self.usable[j] and self.tail(j + 1, count + 1, owed) is not None:
                out |= 1 << j
        return out

    def claims(self, label: int, count: int, owed: int) -> dict[int, int]:
        """Sets in which the value of the next, undeclared property may be, by the witnesses it then is."""
        size = len(self._form.properties)
        return {
            bits: number
            for bits, number in self._live[label].items()
            if not bits & ~owed and self.tail(size, count + 1, owed & ~bits) is not None
        }

    def extra_labels(self, i: int, count: int, owed: int) -> frozenset[int]:
        """Labels of undeclared keys that may come next."""
        if not self.extra_live or self._required[i] < len(self._form.properties):
            return frozenset()
        return frozenset(n for n in range(len(self._live)) if self.claims(n, count, owed))

    def closes(self, i: int, count: int, owed: int) -> bool:
        """Whether the object may end."""
        return self.tail(i, count, owed) == b"}"
