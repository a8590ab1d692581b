"""Object and array shapes as they are written: what may come next, and the shortest way to the end."""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from agentree.errors import ConstraintError
from agentree.runtime.constraint.spelling import quote
from agentree.runtime.constraint.text import Text, TextAutomaton
from agentree.runtime.constraint.values import FALSE, TRUE, Arrays, Layer, Objects, item

if TYPE_CHECKING:
    from agentree.runtime.constraint.grammar import Grammar

Counts = tuple[int, ...]


class ObjectForm:
    """Declared properties that can occur, in order, and what undeclared keys mean.

    `extras[label]` is the set of the values of undeclared keys with that label.
    """

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
        self._patterns = tuple(dict.fromkeys(p for layer in shape.layers for p, _ in layer.patterns))
        self.extras: list[int] = []
        self._labels: dict[tuple[bool, ...], int] = {}
        self._live: dict[tuple[str, ...], Text] = {}
        if shape.shut and not shape.said:
            self.open = False
        elif not self._patterns:
            value = book.both([layer.extra for layer in shape.layers])
            self.extras = [value]
            self.open = value != FALSE
        else:
            _ = self.keys
            self.open = any(n != FALSE for n in self.extras)

    def members(self) -> Iterable[int]:
        """The sets of all values."""
        yield from (p.value for p in self.properties)
        if self.open:
            yield from (n for n in self.extras if n != FALSE)

    def keys_without(self, taken: Sequence[str]) -> Text:
        """The automaton of undeclared keys, without some of them."""
        book, shape = self._grammar.book, self.shape
        terms = book.terms
        names = book.value(shape.names).strings if shape.names != TRUE else None
        declared = [terms.literal(k) for k in (*(p.key for p in shape.properties), *taken)]
        allowed = terms.complement(terms.either(declared))
        if names is not None:
            allowed = terms.all_of((allowed, names.whole))
        roots = [allowed, *(book.found(p).term for p in self._patterns)]
        automaton = TextAutomaton.of_terms(terms, roots, self._label, "json")
        return Text(automaton, spare=self._grammar.spare)

    @cached_property
    def keys(self) -> Text:
        """The automaton of undeclared keys; its labels index `extras`."""
        return self.keys_without(())

    def live_keys(self, taken: tuple[str, ...]) -> Text:
        """As `keys_without`, only keys whose values can be written."""
        found = self._live.get(taken)
        if found is None:
            found = self.keys_without(taken) if taken else self.keys
            labels = found.automaton.labels
            kept = [n if n >= 0 and self._grammar.live(self.extras[n]) else -1 for n in labels]
            if kept != labels:
                found = Text(found.automaton.relabelled(kept), spare=self._grammar.spare)
            self._live[taken] = found
        return found

    def _label(self, accepting: tuple[bool, ...]) -> int:
        allowed, *found = accepting
        if not allowed:
            return -1
        matched = tuple(found)
        label = self._labels.get(matched)
        if label is None:
            value = self._grammar.book.both(
                [n for layer in self.shape.layers for n in self._matching(layer, matched)]
            )
            if value == FALSE:
                label = -1
            elif not self._patterns:
                label = 0
            else:
                label = len(self.extras)
                self.extras.append(value)
            self._labels[matched] = label
        return label

    def _matching(self, layer: Layer, matched: tuple[bool, ...]) -> list[int]:
        hits = dict(zip(self._patterns, matched, strict=True))
        return [n for p, n in layer.patterns if hits[p]] or [layer.extra]


class Tails:
    """Shortest completions of one object form: `tail(i, c)` after `c` properties, with `properties[i:]` to
    come.
    """

    def __init__(self, grammar: "Grammar", form: ObjectForm) -> None:
        self._grammar = grammar
        self._form = form
        self._comma = grammar.style.comma
        colon = grammar.style.colon
        self.usable = [grammar.live(p.value) for p in form.properties]
        self._texts: list[bytes | None] = []
        for prop in form.properties:
            value = grammar.shortest(prop.value)
            key = quote(prop.key) + colon
            self._texts.append(None if value is None else key + value)
        size = len(form.properties)
        self.extra_live = form.open and any(grammar.live(n) for n in form.extras)
        self.tracked = form.low > sum(p.required for p in form.properties) and self.extra_live
        """Undeclared keys count towards the least number of properties, so they must differ."""
        self._extras = self.extras(()) if self.tracked else []
        self.void = form.impossible or any(
            p.required and not u for p, u in zip(form.properties, self.usable, strict=True)
        )
        self._next_required = [size] * (size + 1)
        for i in range(size - 1, -1, -1):
            self._next_required[i] = i if form.properties[i].required else self._next_required[i + 1]
        self._table: list[list[bytes | None]] = [[None] * (form.most + 2) for _ in range(size + 1)]
        if not self.void:
            for i in range(size, -1, -1):
                for count in range(form.most + 1, -1, -1):
                    self._table[i][count] = self._best(i, count)

    def extras(self, taken: tuple[str, ...]) -> list[bytes]:
        """The shortest undeclared properties with different keys, as many as could be needed, fewer if
        there are no more.
        """
        grammar, form = self._grammar, self._form
        out: list[bytes] = []
        while len(out) + len(taken) < form.low:
            keys = form.live_keys(taken)
            if keys.void:
                break
            key = keys.ending(0, 0, 0)
            text = json.loads(b'"' + key + b'"')
            value = grammar.shortest(form.extras[keys.automaton.label_of(text)])
            out.append(b'"' + key + b'"' + grammar.style.colon + (value or b""))
            taken = (*taken, text)
        return out

    def _best(self, i: int, count: int) -> bytes | None:
        form = self._form
        if form.high is not None and count > form.high:
            return None
        size = len(form.properties)
        first = self._next_required[i]
        found: list[bytes] = []
        if first == size and count >= form.low:
            return b"}"
        enough = count >= form.low
        for j in range(first if enough else i, min(first, size - 1) + 1):
            text, tail = self._texts[j], self.tail(j + 1, count + 1)
            if text is not None and tail is not None:
                found.append(self._comma + text + tail)
        missing = form.low - count
        if first == size and 0 < missing <= len(self._extras):
            tail = self.tail(size, count + 1)
            if tail is not None:
                found.append(self._comma + self._extras[missing - 1] + tail)
        return min(found, key=len, default=None)

    def tail(self, i: int, count: int) -> bytes | None:
        """Shortest text from after a value to `}`, None if there is none."""
        form = self._form
        return self._table[i][min(count, form.most + 1) if form.counted else 0]

    def whole(self) -> bytes | None:
        """The shortest object."""
        tail = None if self.void else self.tail(0, 0)
        if tail is None:
            return None
        return b"{" + tail.removeprefix(self._comma)

    def choices(self, i: int, count: int) -> int:
        """Properties that may come next, as a bit set."""
        out = 0
        for j in range(i, min(self._next_required[i], len(self._form.properties) - 1) + 1):
            if self.usable[j] and self.tail(j + 1, count + 1) is not None:
                out |= 1 << j
        return out

    def extra_allowed(self, i: int, count: int) -> bool:
        """Whether an undeclared property may come next."""
        size = len(self._form.properties)
        return self.extra_live and self._next_required[i] == size and self.tail(size, count + 1) is not None

    def closes(self, i: int, count: int) -> bool:
        """Whether the object may end."""
        return self.tail(i, count) == b"}"


class ArrayForm:
    """An array shape with the sets that `contains` splits its items into."""

    def __init__(self, grammar: "Grammar", shape: Arrays) -> None:
        self.shape = shape
        self.low, self.high = shape.low, shape.high
        self.steady = max(len(shape.prefix), shape.low)
        """From this index on, all positions are alike."""
        self.watched = shape.contains
        self._options: dict[tuple[int, Counts], list[tuple[int, Counts]]] = {}
        self._grammar = grammar

    @property
    def start(self) -> Counts:
        """Nothing counted yet."""
        return (0,) * len(self.watched)

    def members(self) -> Iterable[int]:
        """The sets of all items."""
        shape = self.shape
        for index in range(len(shape.prefix) + 1):
            if shape.high is not None and index >= shape.high:
                return
            base = item(shape, index)
            for picks in product((False, True), repeat=len(self.watched)):
                yield self._picked(base, picks)
            if self.watched:
                yield base

    def _picked(self, base: int, picks: Sequence[bool]) -> int:
        book = self._grammar.book
        parts = [base]
        for (number, _, _), pick in zip(self.watched, picks, strict=True):
            parts.append(number if pick else book.complement(number))
        return book.both(parts)

    def options(self, index: int, counts: Counts) -> list[tuple[int, Counts]]:
        """Sets that the item at `index` may be in, with the counts after it."""
        base = item(self.shape, index)
        if not self.watched:
            return [(base, counts)]
        index = min(index, len(self.shape.prefix))
        key = (index, counts)
        found = self._options.get(key)
        if found is None:
            found = []
            settled = all(
                most is None and have >= least
                for have, (_, least, most) in zip(counts, self.watched, strict=True)
            )
            if settled:
                found.append((base, counts))
            else:
                for picks in product((True, False), repeat=len(self.watched)):
                    after = tuple(
                        min(have + pick, least if most is None else most + 1)
                        for have, pick, (_, least, most) in zip(counts, picks, self.watched, strict=True)
                    )
                    if all(m is None or a <= m for a, (_, _, m) in zip(after, self.watched, strict=True)):
                        found.append((self._picked(base, picks), after))
            self._options[key] = found
        return found

    def satisfied(self, counts: Counts) -> bool:
        """Whether enough items were contained."""
        return all(have >= least for have, (_, least, _) in zip(counts, self.watched, strict=True))

    def grown(self, index: int) -> int:
        """The index after one more item, positions that are alike made one."""
        return min(index + 1, self.steady) if self.high is None else index + 1


class ListTails:
    """Shortest completions of one array form after `index` items."""

    def __init__(self, grammar: "Grammar", form: ArrayForm) -> None:
        self._grammar = grammar
        self._form = form
        self._known: dict[tuple[int, Counts], bytes | None] = {}
        self._plain: list[bytes | None] = []
        if not form.watched:
            tail: bytes | None = b"]"
            self._plain = [tail]
            for index in range(form.low - 1, -1, -1):
                text = grammar.shortest(item(form.shape, index))
                tail = None if text is None or tail is None else grammar.style.comma + text + tail
                self._plain.append(tail)
            self._plain.reverse()

    def tail(self, index: int, counts: Counts = ()) -> bytes | None:
        """Shortest text from after an item (or `[`, less its comma) to `]`."""
        form = self._form
        if form.high is not None and index > form.high:
            return None
        if not form.watched:
            return self._plain[min(index, form.low)]
        key = (index, counts)
        if key in self._known:
            return self._known[key]
        if index >= form.low and form.satisfied(counts):
            self._known[key] = b"]"
            return b"]"
        if len(self._known) > 300:
            raise ConstraintError("'contains' beside counts this large can't be enforced: use smaller counts")
        self._known[key] = None
        found: list[bytes] = []
        if form.high is None or index < form.high:
            for number, after in form.options(index, counts):
                text = self._grammar.shortest(number)
                rest = None if text is None else self.tail(form.grown(index), after)
                if text is not None and rest is not None:
                    found.append(self._grammar.style.comma + text + rest)
        self._known[key] = min(found, key=len, default=None)
        return self._known[key]

    def whole(self) -> bytes | None:
        """The shortest array."""
        tail = self.tail(0, self._form.start)
        return None if tail is None else b"[" + tail.removeprefix(self._grammar.style.comma)
