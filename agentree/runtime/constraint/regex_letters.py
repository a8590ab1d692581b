r"""What `\d`, `.`, `\p{L}` and the case flag mean in each dialect of regular expressions.

A set that tables of different Unicode versions may see differently is taken narrow where it lets characters
happen and wide where it forbids them, so that what is generated matches under all of them.
"""

from typing import Final, Literal

from agentree.runtime.constraint import charset
from agentree.runtime.constraint.charset import Ranges

Dialect = Literal["ecma", "python", "rust"]

_ASCII_END: Final = 0x80
_FOLDS_BESIDE: Final = {"k": (0x212A,), "s": (0x17F,), "i": (0x130, 0x131)}
"""Characters beyond ASCII that may equal ASCII letters when case is ignored."""

POSIX: Final[dict[str, Ranges]] = {
    "alnum": charset.normal([(0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)]),
    "alpha": charset.normal([(0x41, 0x5A), (0x61, 0x7A)]),
    "ascii": ((0, 0x7F),),
    "blank": charset.of("\t "),
    "cntrl": charset.normal([(0, 0x1F), (0x7F, 0x7F)]),
    "digit": charset.DIGIT,
    "graph": ((0x21, 0x7E),),
    "lower": ((0x61, 0x7A),),
    "print": ((0x20, 0x7E),),
    "punct": charset.normal([(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)]),
    "space": charset.SPACE_ASCII,
    "upper": ((0x41, 0x5A),),
    "word": charset.WORD,
    "xdigit": charset.normal([(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)]),
}
"""`[[:name:]]` of the Rust dialect: ASCII all of them."""


class Letters:
    """The sets of one dialect. Raises ValueError, with the reason, for what can't be said exactly."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect: Dialect = dialect

    def shorthand(self, char: str, wide: bool) -> Ranges:
        r"""`\d`, `\w`, `\s` and their complements; `wide`: where the set forbids characters."""
        kind = char.lower()
        if self.dialect == "rust":
            ranges = {
                "d": charset.unicode_property("Nd") or (),
                "w": charset.word_rust(),
                "s": charset.SPACE_RUST,
            }[kind]
            return ranges if char.islower() else self.outside(ranges, unicode=kind != "s", wide=wide)
        if self.dialect == "ecma":
            ranges = {"d": charset.DIGIT, "w": charset.WORD, "s": charset.SPACE_ECMA}[kind]
            return ranges if char.islower() else charset.outside(ranges)
        narrow = {"d": charset.DIGIT, "w": charset.WORD, "s": charset.SPACE_ASCII}[kind]
        if char.islower():
            return charset.unicode_class(kind) if wide else narrow
        return charset.outside(narrow if wide else charset.unicode_class(kind))

    def outside(self, ranges: Ranges, *, unicode: bool, wide: bool) -> Ranges:
        """Complement. `unicode`: the set is of a table that grows with each version."""
        if unicode and self.dialect == "rust" and not wide:
            ranges = charset.either(ranges, charset.unicode_property("Cn") or ())
        return charset.outside(ranges)

    def dot(self, everything: bool) -> Ranges:
        """`.`, with and without the flag `s`."""
        if everything:
            return charset.ALL
        return charset.outside(charset.LINE_ENDS if self.dialect == "ecma" else ((10, 10),))

    def property_of(self, name: str) -> Ranges:
        r"""`\p{name}`."""
        if self.dialect == "rust" and name in ("C", "Cn", "Other", "Unassigned"):
            raise ValueError(f"the property {name!r} differs between versions of Unicode")
        ranges = charset.unicode_property(name)
        if ranges is None:
            raise ValueError(f"unknown property {name!r} (general categories such as \\p{{L}} are known)")
        return ranges

    def folded(self, ranges: Ranges, wide: bool) -> Ranges:
        """The set with its members in both cases."""
        out = charset.ignore_case(ranges)
        if not wide:
            return out
        if ranges and ranges[-1][1] >= _ASCII_END:
            raise ValueError("a case-insensitive set that is forbidden may hold ASCII characters only")
        beside = [
            (p, p) for c, points in _FOLDS_BESIDE.items() if charset.contains(out, ord(c)) for p in points
        ]
        return charset.normal((*out, *beside))
