"""The grammar of regular expressions: ECMA-262, Python's `re`, and Rust's `regex`.

What a dialect reads in another way, or what can't be said exactly, is refused with its offset.
"""

from typing import Final

from agentree.errors import ConstraintError
from agentree.runtime.constraint import charset
from agentree.runtime.constraint.charset import Ranges
from agentree.runtime.constraint.regex_letters import POSIX, Dialect, Letters
from agentree.runtime.constraint.regex_trees import Alternatives, Anchor, Chars, Look, Repeat, Sequence, Tree

LONGEST: Final = 20_000
"""Patterns of more characters are refused."""

_DEEPEST: Final = 100
_MOST_REPEATS: Final = 2**31
_SIMPLE: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}


def parse(pattern: str, dialect: Dialect) -> Tree:
    """The tree of a pattern. Raises ConstraintError, naming the offset."""
    return _Parser(pattern, dialect).parse()


class _Cursor:
    """A place in a pattern, and the flags that hold there."""

    def __init__(self, pattern: str, dialect: Dialect) -> None:
        if len(pattern) > LONGEST:
            raise ConstraintError(
                f"a pattern of {len(pattern)} characters is longer than the limit of {LONGEST}"
            )
        self.text = pattern
        self.at = 0
        self.letters = Letters(dialect)
        self.ecma = dialect == "ecma"
        self.python = dialect == "python"
        self.rust = dialect == "rust"
        self.fold = False
        self.dotall = False
        self.wide = False
        """Inside something that forbids what matches."""

    def error(self, what: str, at: int | None = None) -> ConstraintError:
        return ConstraintError(f"pattern {self.text!r}: {what} at offset {self.at if at is None else at}")

    def peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def folded(self, ranges: Ranges, start: int) -> Ranges:
        if not self.fold:
            return ranges
        try:
            return self.letters.folded(ranges, self.wide)
        except ValueError as error:
            raise self.error(str(error), start) from None


class _Escapes(_Cursor):
    """What follows a backslash."""

    def escape(self, start: int, inside: bool = False) -> Tree:
        char = self.peek()
        self.at += 1
        if not char:
            raise self.error("a lone backslash", start)
        if char in "dwsDWS":
            return Chars(self.letters.shorthand(char, self.wide))
        if char in _SIMPLE:
            return Chars(charset.of(_SIMPLE[char]))
        if char == "a" and not self.ecma:
            return Chars(((7, 7),))
        if char == "A" and not self.ecma and not inside:
            return Anchor(True, start)
        if not inside and ((char == "Z" and self.python) or (char == "z" and not self.ecma)):
            return Anchor(False, start)
        if char in "bB" or (char in "<>" and self.rust):
            raise self.error("word boundaries are not supported", start)
        if char == "0" and not self.peek().isdigit() and not self.rust:
            return Chars(((0, 0),))
        if char.isdigit() or (char == "k" and not self.python):
            raise self.error("back-references are not supported", start)
        if char in "pP":
            return Chars(self._property(start, char == "P"))
        if char == "c" and self.ecma and self.peek().isascii() and self.peek().isalpha():
            self.at += 1
            point = ord(self.text[self.at - 1]) % 32
            return Chars(((point, point),))
        if char in "xuU":
            return Chars(self.folded(self._code(char, start), start))
        if char.isascii() and char.isalpha():
            raise self.error(f"unknown escape \\{char}", start)
        return Chars(((ord(char), ord(char)),))

    def _property(self, start: int, negative: bool) -> Ranges:
        close = self.text.find("}", self.at)
        if self.rust and self.peek() not in ("{", ""):
            name, self.at = self.peek(), self.at + 1
        elif self.peek() != "{" or close < 0:
            raise self.error("\\p needs a name in braces", start)
        else:
            name = self.text[self.at + 1 : close]
            self.at = close + 1
        inverse = name.startswith("^")
        try:
            ranges = self.letters.property_of(name[inverse:])
        except ValueError as error:
            raise self.error(str(error), start) from None
        if negative == inverse:
            return ranges
        return self.letters.outside(ranges, unicode=True, wide=self.wide)

    def _code(self, char: str, start: int) -> Ranges:
        size = {"x": 2, "u": 4, "U": 8}[char]
        if self.peek() == "{" and ((char == "u" and self.ecma) or self.rust):
            close = self.text.find("}", self.at)
            digits, self.at = self.text[self.at + 1 : close], close + 1
        else:
            if char == "U" and self.ecma:
                raise self.error("unknown escape \\U", start)
            digits, self.at = self.peek(size), self.at + size
            if len(digits) < size:
                raise self.error(f"\\{char} needs {size} hexadecimal digits", start)
        try:
            point = int(digits, 16)
        except ValueError:
            raise self.error(f"\\{char} needs hexadecimal digits", start) from None
        if 0xD800 <= point <= 0xDBFF and self.peek(2) == "\\u":
            low = self.text[self.at + 2 : self.at + 6]
            if len(low) == 4 and low[0] in "dD" and low[1] in "cdefCDEF":
                self.at += 6
                try:
                    point = 0x10000 + ((point - 0xD800) << 10) + (int(low, 16) - 0xDC00)
                except ValueError:
                    raise self.error("\\u needs hexadecimal digits", start) from None
        if not 0 <= point <= charset.LAST:
            raise self.error(f"U+{point:X} is no code point", start)
        return charset.normal([(point, point)])


class _Classes(_Escapes):
    """What stands in square brackets."""

    def klass(self, start: int) -> Ranges:
        negative = self.peek() == "^"
        self.at += negative
        outer, self.wide = self.wide, self.wide != negative
        stated: list[tuple[int, int]] = []
        closed: list[tuple[int, int]] = []
        first, unicode = True, False
        while True:
            if self.at >= len(self.text):
                raise self.error("missing ']' for the class", start)
            if self.peek() == "]" and (self.ecma or not first):
                self.at += 1
                break
            first = False
            kind = self.peek(2)[1:] if self.peek() == "\\" else ""
            unicode = unicode or kind in set("dDwWpP")
            # Digits, words and blanks have their members in both cases already.
            (closed if kind in set("dDwWsS") else stated).extend(self._range())
        ranges = charset.either(self.folded(charset.normal(stated), start), charset.normal(closed))
        self.wide = outer
        return self.letters.outside(ranges, unicode=unicode, wide=outer) if negative else ranges

    def _range(self) -> Ranges:
        if self.rust and self.peek(2) in ("&&", "--", "~~"):
            raise self.error(f"the set operation {self.peek(2)} is not supported")
        low = self._member()
        if self.peek() != "-" or self.peek(2) in ("-]", "-"):
            return low
        if self.rust and self.peek(2) == "--":
            raise self.error("the set operation -- is not supported")
        self.at += 1
        high = self._member()
        if len(low) == 1 and low[0][0] == low[0][1] and len(high) == 1 and high[0][0] == high[0][1]:
            if high[0][0] < low[0][0]:
                raise self.error("a range of the class is the wrong way round")
            return charset.normal([(low[0][0], high[0][0])])
        if not self.ecma:
            raise self.error("a range of the class has no end points")
        return charset.normal([*low, (0x2D, 0x2D), *high])

    def _member(self) -> Ranges:
        start = self.at
        char = self.peek()
        if not char:
            raise self.error("missing ']' for the class")
        self.at += 1
        if char == "[" and self.rust:
            return self._posix(start)
        if char != "\\":
            return charset.normal([(ord(char), ord(char))])
        if self.peek() == "b" and not self.rust:
            self.at += 1
            return ((8, 8),)
        if self.peek() == "-":
            self.at += 1
            return ((0x2D, 0x2D),)
        tree = self.escape(start, inside=True)
        if not isinstance(tree, Chars):
            raise self.error("no character", start)
        return tree.ranges

    def _posix(self, start: int) -> Ranges:
        close = self.text.find(":]", self.at)
        if self.peek() != ":" or close < 0:
            raise self.error("a class inside a class is not supported", start)
        name = self.text[self.at + 1 : close]
        self.at = close + 2
        ranges = POSIX.get(name.removeprefix("^"))
        if ranges is None:
            raise self.error(f"unknown class {name!r}", start)
        return charset.outside(ranges) if name.startswith("^") else ranges


class _Parser(_Classes):
    def __init__(self, pattern: str, dialect: Dialect) -> None:
        super().__init__(pattern, dialect)
        self.depth = 0

    def parse(self) -> Tree:
        tree = self._alternatives()
        if self.at < len(self.text):
            raise self.error("unbalanced ')'")
        return tree

    def _alternatives(self) -> Tree:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.error(f"groups nested more than {_DEEPEST} deep")
        branches = [self._branch()]
        while self.peek() == "|":
            self.at += 1
            branches.append(self._branch())
        self.depth -= 1
        return branches[0] if len(branches) == 1 else Alternatives(tuple(branches))

    def _branch(self) -> Tree:
        items: list[Tree] = []
        while self.at < len(self.text) and self.peek() not in ("|", ")"):
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
                raise self.error("nothing to repeat", start)
            low, high = bounds
            if high is not None and high < low:
                raise self.error(f"repeat bounds {low} and {high} are the wrong way round", start)
            if max(low, high or 0) > _MOST_REPEATS:
                raise self.error(f"a repeat of more than {_MOST_REPEATS:,} times", start)
            atom = Repeat(atom, low, high)
            if self.peek() == "?":
                self.at += 1
            elif self.peek() == "+" and not self.rust:
                raise self.error("possessive repeats are not supported")
            if not self.rust and self._quantifier_ahead():
                raise self.error("multiple repeat")

    def _quantifier_ahead(self) -> bool:
        saved = self.at
        found = self._quantifier() is not None
        self.at = saved
        return found

    def _quantifier(self) -> tuple[int, int | None] | None:
        char = self.peek()
        if char in ("*", "+", "?") and char:
            self.at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        if char != "{":
            return None
        close = self.text.find("}", self.at)
        body = self.text[self.at + 1 : close] if close > 0 else ""
        low, comma, high = body.partition(",")
        plain = all(p == "" or (p.isascii() and p.isdigit()) for p in (low, high))
        if not plain or (low == "" and (self.ecma or not high)) or not body:
            return None
        if len(body) > 20:
            raise self.error(f"a repeat of more than {_MOST_REPEATS:,} times")
        self.at = close + 1
        return int(low or 0), (int(high) if high else None) if comma else int(low)

    def _atom(self) -> Tree | None:
        char = self.peek()
        start = self.at
        self.at += 1
        if char == "(":
            return self._group(start)
        if char == "[":
            return Chars(self.klass(start))
        if char == ".":
            return Chars(self.letters.dot(self.dotall))
        if char == "^":
            return Anchor(True, start)
        if char == "$":
            return self._dollar(start)
        if char == "\\":
            return self.escape(start)
        if char in "*+?":
            raise self.error("nothing to repeat", start)
        if char == "{" and (self.rust or (self.ecma and self.peek().isdigit())):
            raise self.error("nothing to repeat", start)
        return Chars(self.folded(charset.normal([(ord(char), ord(char))]), start))

    def _dollar(self, start: int) -> Tree:
        """The end; where that is forbidden, also what Python takes for the end: before a last line feed."""
        end = Anchor(False, start)
        if not (self.python and self.wide):
            return end
        return Look(Alternatives((end, Sequence((Chars(((10, 10),)), end)))), False, start)

    def _group(self, start: int) -> Tree | None:
        fold, dotall, wide = self.fold, self.dotall, self.wide
        look: bool | None = None
        if self.peek() == "?":
            self.at += 1
            if self.peek(2) in ("<=", "<!"):
                raise self.error("look-behind is not supported", start)
            if self.peek() in ("=", "!") and not self.rust:
                look = self.peek() == "!"
                self.wide = wide != look
                self.at += 1
            elif self.peek() == ":":
                self.at += 1
            elif self.peek(2) in ("P<",) or self.peek() == "<":
                self._name(start)
            elif self.peek(2) == "P=":
                raise self.error("back-references are not supported", start)
            elif self.peek() == "#" and self.python:
                self.at = self.text.find(")", self.at) + 1
                if not self.at:
                    raise self.error("unterminated comment", start)
                return None
            elif self._flags(start):
                return None
        inner = self._alternatives()
        if self.peek() != ")":
            raise self.error("missing ')' for the group", start)
        self.at += 1
        self.fold, self.dotall, self.wide = fold, dotall, wide
        return inner if look is None else Look(inner, look, start)

    def _name(self, start: int) -> None:
        self.at += 2 if self.peek() == "P" else 1
        close = self.text.find(">", self.at)
        if close < 0 or not self.text[self.at : close].isidentifier():
            raise self.error("bad group name", start)
        self.at = close + 1

    def _flags(self, start: int) -> bool:
        """Inline flags; True if they hold for the rest of the group."""
        on = True
        while self.at < len(self.text):
            char = self.peek()
            self.at += 1
            if char == "-":
                on = False
            elif char == "i":
                self.fold = on
            elif char == "s":
                self.dotall = on
            elif on and ((char in "ua" and self.python) or (char in "uU" and self.rust)):
                continue
            elif char in (":", ")") and self.at - start > 3:
                return char == ")"
            else:
                break
        raise self.error(f"group of unknown kind {self.text[start : start + 4]!r}", start)
