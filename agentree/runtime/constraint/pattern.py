r"""Regular expressions to terms: the ECMA-262 subset that schemas use, Python's spelling, and Rust's.

A look-ahead outside a repeat is an intersection with what follows, so it is exact. Refused, with their
offset: look-behind, back-references, word boundaries, conditionals, and anchors or look-aheads inside a
repeat.
"""

from agentree.errors import ConstraintError
from agentree.runtime.constraint.charset import Ranges
from agentree.runtime.constraint.regex_escapes import LONGEST
from agentree.runtime.constraint.regex_letters import Dialect
from agentree.runtime.constraint.regex_parser import parse
from agentree.runtime.constraint.regex_trees import (
    Alternatives,
    Anchor,
    Chars,
    Look,
    Repeat,
    Sequence,
    Tree,
    anchored,
    items_of,
    place_of,
    pure,
)
from agentree.runtime.constraint.terms import Term, Terms

__all__ = ["LONGEST", "Dialect", "search", "simple_repeat", "whole"]


def search(terms: Terms, pattern: str, dialect: Dialect = "ecma") -> Term:
    """The texts in which `pattern` matches somewhere."""
    tree = parse(pattern, dialect)
    build = _Builder(terms, pattern)
    at_start = build.follow(tree, terms.rest, True)
    if not anchored(tree):
        return terms.cat(terms.repeat(terms.any, 0, None), at_start)
    later = build.follow(tree, terms.rest, False)
    return terms.either((at_start, terms.cat(terms.repeat(terms.any, 1, None), later)))


def whole(terms: Terms, pattern: str) -> Term:
    """The texts that `pattern`, in Python's spelling, matches as a whole."""
    return _Builder(terms, pattern).follow(parse(pattern, "python"), terms.end, True)


def simple_repeat(pattern: str, dialect: Dialect = "ecma") -> tuple[Ranges, int, int | None] | None:
    """`^[class]{m,n}$`, the pattern that is one counted character set: its set and bounds."""
    tree = parse(pattern, dialect)
    if not isinstance(tree, Sequence) or len(tree.items) != 3:
        return None
    first, item, last = tree.items
    if (
        isinstance(first, Anchor)
        and first.start
        and isinstance(last, Anchor)
        and not last.start
        and isinstance(item, Repeat)
    ):
        return (item.item.ranges, item.low, item.high) if isinstance(item.item, Chars) else None
    return None


class _Builder:
    """Trees to terms, by continuation: what follows a place is part of the term, so look-aheads intersect
    it.
    """

    def __init__(self, terms: Terms, pattern: str) -> None:
        self.terms = terms
        self.pattern = pattern
        self._anything = terms.rest

    def follow(self, tree: Tree, then: Term, start: bool) -> Term:
        """`tree` and then the language `then`; `start`: the text begins here."""
        terms = self.terms
        if isinstance(tree, Sequence):
            return self._sequence(tree.items, then, start)
        if pure(tree):
            return terms.cat(self._term(tree), then)
        if isinstance(tree, Alternatives):
            return terms.either([self.follow(i, then, start) for i in tree.items])
        if isinstance(tree, Anchor):
            if tree.start:
                return then if start else terms.none
            return terms.all_of((terms.cat(terms.end, self._anything), then))
        if isinstance(tree, Look):
            inner = self.follow(tree.item, self._anything, start)
            return terms.all_of((terms.complement(inner) if tree.negative else inner, then))
        if isinstance(tree, Repeat) and tree.high == 1:
            if tree.low == 1:
                return self.follow(tree.item, then, start)
            return terms.either((self.follow(tree.item, then, start), then))
        at = place_of(tree)
        raise ConstraintError(
            f"pattern {self.pattern!r}: an anchor or look-ahead inside a repeat at offset {at} "
            "is not supported; move it out of the repeat"
        )

    def _sequence(self, items: tuple[Tree, ...], then: Term, start: bool) -> Term:
        if not items:
            return then
        head, tail = items[0], items[1:]
        if not pure(head):
            if not tail:
                return self.follow(head, then, start)
            ahead = start and not any(anchored(i) for i in tail)
            if isinstance(head, Anchor | Look) or ahead or not start:
                return self.follow(
                    head, self._sequence(tail, then, start and isinstance(head, Anchor | Look)), start
                )
            if isinstance(head, Alternatives):
                rest = tail
                return self.terms.either(
                    [self._sequence((*items_of(i), *rest), then, start) for i in head.items]
                )
            if isinstance(head, Repeat) and head.high == 1:
                kept = self._sequence((*items_of(head.item), *tail), then, start)
                return kept if head.low else self.terms.either((kept, self._sequence(tail, then, start)))
            if isinstance(head, Sequence):
                return self._sequence((*head.items, *tail), then, start)
            return self.follow(head, self._sequence(tail, then, False), start)
        term = self._term(head)
        if start and term.nullable and any(anchored(i) for i in tail):
            some = self.terms.all_of((term, self.terms.repeat(self.terms.framed, 1, None)))
            return self.terms.either(
                (self.terms.cat(some, self._sequence(tail, then, False)), self._sequence(tail, then, True))
            )
        return self.terms.cat(term, self._sequence(tail, then, start and term.kind == "empty"))

    def _term(self, tree: Tree) -> Term:
        terms = self.terms
        if isinstance(tree, Chars):
            return terms.chars(tree.ranges)
        if isinstance(tree, Sequence):
            out = terms.empty
            for item in reversed(tree.items):
                out = terms.cat(self._term(item), out)
            return out
        if isinstance(tree, Alternatives):
            return terms.either([self._term(i) for i in tree.items])
        assert isinstance(tree, Repeat)
        return terms.repeat(self._term(tree.item), tree.low, tree.high)
