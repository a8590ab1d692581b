"""Array shapes as they are written: what may come next, and the shortest way to the end."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

from agentree.errors import ConstraintError
from agentree.runtime.constraint.shapes import Arrays, item

if TYPE_CHECKING:
    from agentree.runtime.constraint.grammar import Grammar

Counts = tuple[int, ...]


class ArrayForm:
    """An array shape with the sets that `contains` splits its items into."""

    def __init__(self, grammar: "Grammar", shape: Arrays) -> None:
        self.shape = shape
        self.low, self.high = shape.low, shape.high
        if shape.unique and shape.contains:
            raise ConstraintError(
                f"'uniqueItems' at {shape.unique} beside 'contains' can't be enforced: leave one of them out"
            )
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
            parts.append(number if pick else book.sets.complement(number))
        return book.sets.both(parts)

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
        if form.shape.unique and form.low > 1:
            self._plain = [self._different()]
        elif not form.watched:
            tail: bytes | None = b"]"
            self._plain = [tail]
            for index in range(form.low - 1, -1, -1):
                grammar.book.tick()
                text = grammar.shortest(item(form.shape, index))
                tail = None if text is None or tail is None else grammar.style.comma + text + tail
                self._plain.append(tail)
            self._plain.reverse()

    def _different(self) -> bytes | None:
        """The tail of all items where these differ: what follows some depends on which they are."""
        grammar, form = self._grammar, self._form
        taken: dict[bytes, None] = {}
        scalars: dict[int, Iterator[bytes]] = {}
        for index in range(form.low):
            grammar.book.tick()
            number = item(form.shape, index)
            value = grammar.book.value(number)
            if value.arrays or value.objects:
                raise ConstraintError(
                    f"'uniqueItems' at {form.shape.unique} beside 'minItems' {form.low} is enforced for "
                    "items that are scalars only: leave one of them out"
                )
            if number not in scalars:
                scalars[number] = grammar.scalars(value)
            text = next((text for text in scalars[number] if text not in taken), None)
            if text is None:
                return None
            taken[text] = None
        return b"".join(grammar.style.comma + text for text in taken) + b"]"

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
