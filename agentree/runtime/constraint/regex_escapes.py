"""Characters, escapes and classes of regular expressions, in the dialects of ECMA-262, Python and Rust."""

from typing import Final

from agentree.errors import ConstraintError
from agentree.runtime.constraint import charset
from agentree.runtime.constraint.charset import Ranges
from agentree.runtime.constraint.regex_letters import POSIX, Dialect, Letters
from agentree.runtime.constraint.regex_trees import Anchor, Chars, Tree

LONGEST: Final = 20_000
"""Patterns of more characters are refused."""

_SIMPLE: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}


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
            raise self.error(
                f"word boundaries are not supported: leave out \\{char}, or write the characters that may "
                r"stand there, such as (?:^|\W) before a word and (?:\W|$) behind it; it stands",
                start,
            )
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


class Classes(_Escapes):
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
