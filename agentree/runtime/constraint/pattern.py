r"""Regular expressions to terms: the ECMA-262 subset that schemas use, and Python's spelling.

A look-ahead outside a repeat is an intersection with what follows, so it is exact. Refused, with their
offset: look-behind, back-references, word boundaries, conditionals, and anchors or look-aheads inside a
repeat.
"""

from dataclasses import dataclass
from typing import Final, Literal

from agentree.errors import ConstraintError
from agentree.runtime.constraint import charset
from agentree.runtime.constraint.charset import Ranges
from agentree.runtime.constraint.terms import Term, Terms

Dialect = Literal["ecma", "python"]

LONGEST: Final = 20_000
"""Patterns of more characters are refused."""

_DEEPEST = 100
_SIMPLE = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}


@dataclass(frozen=True)
class Chars:
    """One character of a set."""

    ranges: Ranges


@dataclass(frozen=True)
class Sequence:
    """One after the other."""

    items: tuple["Tree", ...]


@dataclass(frozen=True)
class Alternatives:
    """One of them."""

    items: tuple["Tree", ...]


@dataclass(frozen=True)
class Repeat:
    """`low` to `high` times."""

    item: "Tree"
    low: int
    high: int | None


@dataclass(frozen=True)
class Anchor:
    """Start or end of the text."""

    start: bool
    at: int


@dataclass(frozen=True)
class Look:
    """A look-ahead."""

    item: "Tree"
    negative: bool
    at: int


Tree = Chars | Sequence | Alternatives | Repeat | Anchor | Look


def search(terms: Terms, pattern: str) -> Term:
    """The texts in which the ECMA-262 `pattern` matches somewhere."""
    tree = _Parser(pattern, "ecma").parse()
    build = _Builder(terms, pattern)
    at_start = build.follow(tree, terms.rest, True)
    if not _anchored(tree):
        return terms.cat(terms.repeat(terms.any, 0, None), at_start)
    later = build.follow(tree, terms.rest, False)
    return terms.either((at_start, terms.cat(terms.repeat(terms.any, 1, None), later)))


def whole(terms: Terms, pattern: str) -> Term:
    """The texts that `pattern`, in Python's spelling, matches as a whole."""
    return _Builder(terms, pattern).follow(_Parser(pattern, "python").parse(), terms.end, True)


def simple_repeat(pattern: str) -> tuple[Ranges, int, int | None] | None:
    """`^[class]{m,n}$`, the pattern that is one counted character set: its set and bounds."""
    tree = _Parser(pattern, "ecma").parse()
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


def _anchored(tree: Tree) -> bool:
    if isinstance(tree, Anchor):
        return tree.start
    if isinstance(tree, Sequence | Alternatives):
        return any(_anchored(i) for i in tree.items)
    return not isinstance(tree, Chars) and _anchored(tree.item)


def _pure(tree: Tree) -> bool:
    if isinstance(tree, Anchor | Look):
        return False
    if isinstance(tree, Sequence | Alternatives):
        return all(_pure(i) for i in tree.items)
    return isinstance(tree, Chars) or _pure(tree.item)


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
        if _pure(tree):
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
        at = _place(tree)
        raise ConstraintError(
            f"pattern {self.pattern!r}: an anchor or look-ahead inside a repeat at offset {at} "
            "is not supported; move it out of the repeat"
        )

    def _sequence(self, items: tuple[Tree, ...], then: Term, start: bool) -> Term:
        if not items:
            return then
        head, tail = items[0], items[1:]
        if not _pure(head):
            if not tail:
                return self.follow(head, then, start)
            ahead = start and not any(_anchored(i) for i in tail)
            if isinstance(head, Anchor | Look) or ahead or not start:
                return self.follow(
                    head, self._sequence(tail, then, start and isinstance(head, Anchor | Look)), start
                )
            if isinstance(head, Alternatives):
                rest = tail
                return self.terms.either(
                    [self._sequence((*_items(i), *rest), then, start) for i in head.items]
                )
            if isinstance(head, Repeat) and head.high == 1:
                kept = self._sequence((*_items(head.item), *tail), then, start)
                return kept if head.low else self.terms.either((kept, self._sequence(tail, then, start)))
            if isinstance(head, Sequence):
                return self._sequence((*head.items, *tail), then, start)
            return self.follow(head, self._sequence(tail, then, False), start)
        term = self._term(head)
        if start and term.nullable and any(_anchored(i) for i in tail):
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


def _items(tree: Tree) -> tuple[Tree, ...]:
    return tree.items if isinstance(tree, Sequence) else (tree,)


def _place(tree: Tree) -> int:
    if isinstance(tree, Anchor | Look):
        return tree.at
    if isinstance(tree, Sequence | Alternatives):
        return next((_place(i) for i in tree.items if not _pure(i)), 0)
    return 0 if isinstance(tree, Chars) else _place(tree.item)


class _Parser:
    def __init__(self, pattern: str, dialect: Dialect) -> None:
        if len(pattern) > LONGEST:
            raise ConstraintError(
                f"a pattern of {len(pattern)} characters is longer than the limit of {LONGEST}"
            )
        self.text = pattern
        self.at = 0
        self.python = dialect == "python"
        self.fold = False
        self.dotall = False
        self.depth = 0

    def parse(self) -> Tree:
        tree = self._alternatives()
        if self.at < len(self.text):
            raise self._error("unbalanced ')'")
        return tree

    def _error(self, what: str, at: int | None = None) -> ConstraintError:
        return ConstraintError(f"pattern {self.text!r}: {what} at offset {self.at if at is None else at}")

    def _peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def _alternatives(self) -> Tree:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self._error(f"groups nested more than {_DEEPEST} deep")
        branches = [self._branch()]
        while self._peek() == "|":
            self.at += 1
            branches.append(self._branch())
        self.depth -= 1
        return branches[0] if len(branches) == 1 else Alternatives(tuple(branches))

    def _branch(self) -> Tree:
        items: list[Tree] = []
        while self.at < len(self.text) and self._peek() not in ("|", ")"):
            start = self.at
            atom = self._atom()
            if atom is None:
                continue
            items.append(self._quantified(atom, start))
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _quantified(self, atom: Tree, start: int) -> Tree:
        while True:
            bounds = self._quantifier()
            if bounds is None:
                return atom
            if isinstance(atom, Anchor | Look):
                raise self._error("nothing to repeat", start)
            low, high = bounds
            if high is not None and high < low:
                raise self._error(f"repeat bounds {low} and {high} are the wrong way round", start)
            atom = Repeat(atom, low, high)
            if self._peek() == "?":
                self.at += 1
            elif self._peek() == "+":
                raise self._error("possessive repeats are not supported")
            if self._quantifier_ahead():
                raise self._error("multiple repeat")

    def _quantifier_ahead(self) -> bool:
        saved = self.at
        found = self._quantifier() is not None
        self.at = saved
        return found

    def _quantifier(self) -> tuple[int, int | None] | None:
        char = self._peek()
        if char in ("*", "+", "?") and char:
            self.at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        if char != "{":
            return None
        close = self.text.find("}", self.at)
        body = self.text[self.at + 1 : close] if close > 0 else ""
        low, comma, high = body.partition(",")
        plain = all(p == "" or (p.isascii() and p.isdigit()) for p in (low, high))
        if not plain or (low == "" and not (self.python and high)) or not body:
            return None
        self.at = close + 1
        return int(low or 0), (int(high) if high else None) if comma else int(low)

    def _atom(self) -> Tree | None:
        char = self._peek()
        start = self.at
        self.at += 1
        if char == "(":
            return self._group(start)
        if char == "[":
            return Chars(self._fold(self._class(start)))
        if char == ".":
            if self.dotall:
                return Chars(charset.ALL)
            return Chars(charset.outside(((10, 10),) if self.python else charset.LINE_ENDS))
        if char == "^":
            return Anchor(True, start)
        if char == "$":
            return Anchor(False, start)
        if char == "\\":
            return self._escape(start)
        if char in "*+?":
            raise self._error("nothing to repeat", start)
        if char == "{" and not self.python and self._peek().isdigit():
            raise self._error("nothing to repeat", start)
        return Chars(self._fold(((ord(char), ord(char)),)) if not 0xD800 <= ord(char) <= 0xDFFF else ())

    def _fold(self, ranges: Ranges) -> Ranges:
        return charset.ignore_case(ranges) if self.fold else ranges

    def _group(self, start: int) -> Tree | None:
        fold, dotall = self.fold, self.dotall
        look: bool | None = None
        if self._peek() == "?":
            self.at += 1
            if self._peek(2) in ("<=", "<!"):
                raise self._error("look-behind is not supported", start)
            if self._peek() in ("=", "!"):
                look = self._peek() == "!"
                self.at += 1
            elif self._peek() == ":":
                self.at += 1
            elif self._peek(2) in ("P<",) or self._peek() == "<":
                self._name(start)
            elif self._peek(2) == "P=":
                raise self._error("back-references are not supported", start)
            elif self._peek() == "#" and self.python:
                self.at = self.text.find(")", self.at) + 1
                if not self.at:
                    raise self._error("unterminated comment", start)
                return None
            elif self._flags(start):
                return None
        inner = self._alternatives()
        if self._peek() != ")":
            raise self._error("missing ')' for the group", start)
        self.at += 1
        self.fold, self.dotall = fold, dotall
        return inner if look is None else Look(inner, look, start)

    def _name(self, start: int) -> None:
        self.at += 2 if self._peek() == "P" else 1
        close = self.text.find(">", self.at)
        if close < 0 or not self.text[self.at : close].isidentifier():
            raise self._error("bad group name", start)
        self.at = close + 1

    def _flags(self, start: int) -> bool:
        """Inline flags; True if they hold for the rest of the group."""
        on = True
        while self.at < len(self.text):
            char = self._peek()
            self.at += 1
            if char == "-":
                on = False
            elif char == "i":
                self.fold = on
            elif char == "s":
                self.dotall = on
            elif char in ("u", "a") and self.python:
                continue
            elif char in (":", ")") and self.at - start > 3:
                return char == ")"
            else:
                break
        raise self._error(f"group of unknown kind {self.text[start : start + 4]!r}", start)

    def _class(self, start: int) -> Ranges:
        negative = self._peek() == "^"
        self.at += negative
        out: list[tuple[int, int]] = []
        first = True
        while True:
            if self.at >= len(self.text):
                raise self._error("missing ']' for the class", start)
            if self._peek() == "]" and not (first and self.python):
                self.at += 1
                break
            first = False
            low = self._member()
            if self._peek() == "-" and self._peek(2) not in ("-]", "-") and len(self._peek(2)) == 2:
                self.at += 1
                high = self._member()
                if len(low) == 1 and low[0][0] == low[0][1] and len(high) == 1 and high[0][0] == high[0][1]:
                    if high[0][0] < low[0][0]:
                        raise self._error("a range of the class is the wrong way round")
                    out.append((low[0][0], high[0][0]))
                    continue
                if self.python:
                    raise self._error("a range of the class has no end points")
                out += [*low, (0x2D, 0x2D), *high]
                continue
            out += low
        ranges = self._fold(charset.normal(out))
        return charset.outside(ranges) if negative else ranges

    def _member(self) -> Ranges:
        start = self.at
        char = self._peek()
        self.at += 1
        if char != "\\":
            return ((ord(char), ord(char)),)
        if self._peek() == "b":
            self.at += 1
            return ((8, 8),)
        if self._peek() == "-":
            self.at += 1
            return ((0x2D, 0x2D),)
        tree = self._escape(start, inside=True)
        assert isinstance(tree, Chars)
        return tree.ranges

    def _escape(self, start: int, inside: bool = False) -> Tree:
        char = self._peek()
        self.at += 1
        if not char:
            raise self._error("a lone backslash", start)
        if char in "dwsDWS":
            return Chars(self._shorthand(char))
        if char in _SIMPLE:
            return Chars(charset.of(_SIMPLE[char]))
        if char == "a" and self.python:
            return Chars(((7, 7),))
        if char == "A" and self.python and not inside:
            return Anchor(True, start)
        if char in ("Z", "z") and self.python and not inside:
            return Anchor(False, start)
        if char in "bB":
            raise self._error("word boundaries are not supported", start)
        if char == "0" and not self._peek().isdigit():
            return Chars(((0, 0),))
        if char.isdigit() or (char == "k" and not self.python):
            raise self._error("back-references are not supported", start)
        if char in "pP":
            return Chars(self._property(start, char == "P"))
        if char == "c" and not self.python and self._peek().isascii() and self._peek().isalpha():
            self.at += 1
            point = ord(self.text[self.at - 1]) % 32
            return Chars(((point, point),))
        if char in "xuU":
            return Chars(self._fold(self._code(char, start)))
        if char.isascii() and char.isalpha():
            raise self._error(f"unknown escape \\{char}", start)
        return Chars(((ord(char), ord(char)),))

    def _shorthand(self, char: str) -> Ranges:
        space = charset.SPACE_ASCII if self.python else charset.SPACE_ECMA
        ranges = {"d": charset.DIGIT, "w": charset.WORD, "s": space}[char.lower()]
        if char.islower():
            return ranges
        return charset.outside(charset.unicode_class(char.lower()) if self.python else ranges)

    def _property(self, start: int, negative: bool) -> Ranges:
        close = self.text.find("}", self.at)
        if self._peek() != "{" or close < 0:
            raise self._error("\\p needs a name in braces", start)
        name = self.text[self.at + 1 : close]
        self.at = close + 1
        inverse = name.startswith("^")
        ranges = charset.unicode_property(name[inverse:])
        if ranges is None:
            raise self._error(
                f"unknown property {name!r} (general categories such as \\p{{L}} are known)", start
            )
        return charset.outside(ranges) if negative != inverse else ranges

    def _code(self, char: str, start: int) -> Ranges:
        if char == "u" and self._peek() == "{" and not self.python:
            close = self.text.find("}", self.at)
            digits, self.at = self.text[self.at + 1 : close], close + 1
        else:
            size = {"x": 2, "u": 4, "U": 8}[char]
            if char == "U" and not self.python:
                raise self._error("unknown escape \\U", start)
            digits, self.at = self._peek(size), self.at + size
            if len(digits) < size:
                raise self._error(f"\\{char} needs {size} hexadecimal digits", start)
        try:
            point = int(digits, 16)
        except ValueError:
            raise self._error(f"\\{char} needs hexadecimal digits", start) from None
        if 0xD800 <= point <= 0xDBFF and self._peek(2) == "\\u":
            low = self.text[self.at + 2 : self.at + 6]
            if len(low) == 4 and low[0] in "dD" and low[1] in "cdefCDEF":
                self.at += 6
                point = 0x10000 + ((point - 0xD800) << 10) + (int(low, 16) - 0xDC00)
        if point > charset.LAST:
            raise self._error(f"U+{point:X} is no code point", start)
        return charset.normal([(point, point)])
