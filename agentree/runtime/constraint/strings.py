"""Sets of strings: a term of the decoded text beside a window of lengths that is counted, not copied."""

from dataclasses import dataclass

from agentree.runtime.constraint.terms import Term, Terms
from agentree.runtime.constraint.text import Text, TextAutomaton


@dataclass(frozen=True)
class Strings:
    """A set of strings. `low` and `high` count code points; `texts` are all of its members, if they are
    listed.
    """

    terms: Terms
    term: Term
    low: int = 0
    high: int | None = None
    texts: tuple[str, ...] | None = None

    @property
    def free(self) -> bool:
        """Bounded by its length alone."""
        return self.texts is None and self.term in (self.terms.texts, self.terms.rest, self.terms.everything)

    @property
    def every(self) -> bool:
        """Every string."""
        return self.free and self.low == 0 and self.high is None

    def holds(self, text: str) -> bool:
        """Whether `text` is in the set."""
        if self.texts is not None:
            return text in self.texts
        if len(text) < self.low or (self.high is not None and len(text) > self.high):
            return False
        return self.terms.accepts(self.term, text)

    @property
    def whole(self) -> Term:
        """The set as one term, lengths and all."""
        if self.texts is not None:
            return self.terms.either([self.terms.literal(t) for t in self.texts])
        if self.low == 0 and self.high is None:
            return self.term
        return self.terms.all_of((self.term, self.terms.length(self.low, self.high)))

    @property
    def void(self) -> bool:
        """No string at all."""
        if self.texts is not None:
            return not self.texts
        if self.high is not None and self.high < self.low:
            return True
        return (
            False
            if self.free
            else Text(TextAutomaton.of_term(self.terms, self.term), self.low, self.high).void
        )


def all_strings(terms: Terms) -> Strings:
    """Every string."""
    return Strings(terms, terms.texts)


def listed(terms: Terms, texts: tuple[str, ...]) -> Strings:
    """Exactly these strings."""
    return Strings(terms, terms.texts, texts=tuple(dict.fromkeys(texts)))


def both(a: Strings, b: Strings) -> Strings:
    """Intersection."""
    if a.texts is not None or b.texts is not None:
        first, second = (a, b) if a.texts is not None else (b, a)
        return listed(a.terms, tuple(t for t in first.texts or () if second.holds(t)))
    high = b.high if a.high is None else a.high if b.high is None else min(a.high, b.high)
    low = max(a.low, b.low)
    if high is not None and high < low:
        return listed(a.terms, ())
    return Strings(a.terms, a.terms.all_of((a.term, b.term)), low, high)


def either(a: Strings, b: Strings) -> Strings:
    """Union."""
    terms = a.terms
    if a.every or b.every:
        return all_strings(terms)
    if a.texts is not None and b.texts is not None:
        return listed(terms, (*a.texts, *b.texts))
    if a.texts is None and b.texts is None and (a.low, a.high) == (b.low, b.high):
        return Strings(terms, terms.either((a.term, b.term)), a.low, a.high)
    return Strings(terms, terms.either((a.whole, b.whole)))


def complement(a: Strings) -> Strings:
    """Every other string."""
    if a.every:
        return listed(a.terms, ())
    if a.free and a.low == 0 and a.high is not None:
        return Strings(a.terms, a.terms.texts, a.high + 1)
    if a.free and a.high is None:
        return Strings(a.terms, a.terms.texts, 0, a.low - 1)
    return Strings(a.terms, a.terms.all_of((a.terms.texts, a.terms.complement(a.whole))))
