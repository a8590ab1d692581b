"""The grammar of regular expressions: ECMA-262, Python's `re`, and Rust's `regex`.

What a dialect reads in another way, or what can't be said exactly, is refused with its offset.
"""

from typing import Final

from agentree.runtime.constraint import charset
from agentree.runtime.constraint.regex_escapes import Classes
from agentree.runtime.constraint.regex_letters import Dialect
from agentree.runtime.constraint.regex_trees import Alternatives, Anchor, Chars, Look, Repeat, Sequence, Tree

_DEEPEST: Final = 100
_MOST_REPEATS: Final = 2**31


def parse(pattern: str, dialect: Dialect) -> Tree:
    """The tree of a pattern. Raises ConstraintError, naming the offset."""
    return _Parser(pattern, dialect).parse()


class _Parser(Classes):
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
