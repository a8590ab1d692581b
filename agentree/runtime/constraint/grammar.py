"""What can be written: the sets of a Book with their spacing, which are void, and the shortest text of
each.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Final, Literal

from agentree.errors import ConstraintError
from agentree.runtime.constraint.decimals import decimals
from agentree.runtime.constraint.forms import ObjectForm, Tails
from agentree.runtime.constraint.lists import ArrayForm, ListTails
from agentree.runtime.constraint.others import OtherNumbers, OtherTexts
from agentree.runtime.constraint.shapes import Arrays, Objects
from agentree.runtime.constraint.strings import Strings
from agentree.runtime.constraint.text import Text, TextAutomaton
from agentree.runtime.constraint.values import Book, Value

MOST_SETS: Final = 20_000


@dataclass(frozen=True)
class Style:
    """How JSON is spaced. `flexible`: blanks may stand between tokens."""

    comma: bytes = b", "
    colon: bytes = b": "
    flexible: bool = False


STYLES: Final[dict[Literal["template", "compact", "any"], Style]] = {
    "template": Style(),
    "compact": Style(b",", b":"),
    "any": Style(b",", b":", True),
}


class Grammar:
    """All sets reachable from one, ready to be walked. `spare`: length bound of strings that have none."""

    def __init__(self, book: Book, root: int, style: Style, spare: int | None) -> None:
        self.book = book
        self.root = root
        self.style = style
        self.spare = spare
        self.anything = TextAutomaton.of_everything("json")
        self._forms: dict[Objects, ObjectForm] = {}
        self._lists: dict[Arrays, ArrayForm] = {}
        self._texts: dict[Strings, Text] = {}
        self._children: dict[int, list[int]] = {}
        self._shortest: dict[int, bytes | None] = {}
        self._analyse(root)
        for form in self._lists.values():
            if form.shape.unique:
                for number in form.members():
                    if self.live(number):
                        self._one_spelling(number, form.shape.unique)

    def shortest(self, number: int) -> bytes | None:
        """The shortest text of a set, None if it is void."""
        return self._shortest.get(number)

    def live(self, number: int) -> bool:
        """Whether a set has a member that can be written."""
        return self._shortest.get(number) is not None

    def _analyse(self, root: int) -> None:
        """Finds every set reachable from `root` and the shortest text of each, to a fixed point."""
        order: list[int] = []
        pending = [root]
        seen = set(self._children)
        while pending:
            number = pending.pop()
            if number in seen:
                continue
            seen.add(number)
            order.append(number)
            if len(seen) > MOST_SETS:
                raise ConstraintError(f"the schema reaches more than {MOST_SETS} different sets: split it")
            children = list(dict.fromkeys(self._members(self.book.value(number))))
            self._children[number] = children
            pending += children
        users: dict[int, list[int]] = {}
        for number in order:
            for child in self._children[number]:
                users.setdefault(child, []).append(number)
        queue = dict.fromkeys(reversed(order))
        while queue:
            number = next(iter(queue))
            del queue[number]
            self.book.tick()
            found = self._measure(self.book.value(number))
            old = self._shortest.get(number)
            if found is not None and (old is None or len(found) < len(old)):
                self._shortest[number] = found
                queue.update(dict.fromkeys(users.get(number, ())))

    def _members(self, value: Value) -> Iterable[int]:
        for array in value.arrays:
            yield from self.array(array).members()
        for shape in value.objects:
            yield from self.form(shape).members()

    def scalars(self, value: Value) -> Iterator[bytes]:
        """The scalars of a set as they are written, the shorter ones first."""
        words = ((value.null, b"null"), (value.true, b"true"), (value.false, b"false"))
        parts: list[Iterable[bytes]] = [[word for there, word in words if there]]
        if not value.numbers.void:
            parts.append(text for text, _ in OtherNumbers(decimals(value.numbers)).beside(()))
        text = self.text(value.strings)
        if not text.void:
            parts.append(b'"' + inner + b'"' for inner, _ in OtherTexts(text).beside(()))
        return merge(*parts, key=len)

    def _measure(self, value: Value) -> bytes | None:
        found = list(islice(self.scalars(value), 1))
        for array in value.arrays:
            tail = ListTails(self, self.array(array)).whole()
            if tail is not None:
                found.append(tail)
        for shape in value.objects:
            tail = Tails(self, self.form(shape)).whole()
            if tail is not None:
                found.append(tail)
        return min(found, key=len, default=None)

    def _one_spelling(self, root: int, unique: str) -> None:
        """Raises ConstraintError unless texts of a set differ exactly where their values do."""
        pending, seen = [root], {root}
        while pending:
            number = pending.pop()
            value = self.book.value(number)
            plain = value.numbers.void or value.numbers.whole or value.numbers.texts is not None
            if not plain or any(self.form(o).open for o in value.objects):
                raise ConstraintError(
                    f"'uniqueItems' at {unique} is enforced for items that have one spelling only: "
                    "not for numbers that may have a fraction, and not for objects with undeclared properties"
                )
            fresh = [c for c in self._children[number] if c not in seen]
            seen.update(fresh)
            pending += fresh

    def text(self, strings: Strings) -> Text:
        """The automaton of a set of strings."""
        found = self._texts.get(strings)
        if found is None:
            if strings.texts is not None:
                found = Text(TextAutomaton.of_texts(strings.texts, "json"))
            elif strings.free:
                found = Text(self.anything, strings.low, strings.high, self.spare)
            else:
                automaton = TextAutomaton.of_term(strings.terms, strings.term)
                found = Text(automaton, strings.low, strings.high, self.spare)
            self._texts[strings] = found
        return found

    def form(self, shape: Objects) -> "ObjectForm":
        """The written form of an object shape."""
        found = self._forms.get(shape)
        if found is None:
            found = self._forms[shape] = ObjectForm(self, shape)
        return found

    def array(self, shape: Arrays) -> "ArrayForm":
        """The written form of an array shape."""
        found = self._lists.get(shape)
        if found is None:
            found = self._lists[shape] = ArrayForm(self, shape)
        return found
