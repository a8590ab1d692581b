"""Sets of code points as sorted, disjoint, inclusive ranges, and the classes that patterns name.

Surrogates (U+D800 to U+DFFF) belong to no set: they have no UTF-8 spelling.
"""

import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cache

Ranges = tuple[tuple[int, int], ...]

LAST = sys.maxunicode
ALL: Ranges = ((0, 0xD7FF), (0xE000, LAST))
NONE: Ranges = ()


def normal(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges in order, merged where they touch, without surrogates."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(pairs):
        if out and low <= out[-1][1] + 1:
            if high > out[-1][1]:
                out[-1] = (out[-1][0], high)
        else:
            out.append((low, high))
    if any(low <= 0xDFFF and high >= 0xD800 for low, high in out):
        return both(tuple(out), ALL)
    return tuple(out)


def either(a: Ranges, b: Ranges) -> Ranges:
    """Union."""
    return normal((*a, *b))


def both(a: Ranges, b: Ranges) -> Ranges:
    """Intersection."""
    out: list[tuple[int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low <= high:
            out.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(out)


def outside(a: Ranges) -> Ranges:
    """Complement."""
    out: list[tuple[int, int]] = []
    start = 0
    for low, high in a:
        if low > start:
            out.append((start, low - 1))
        start = high + 1
    if start <= LAST:
        out.append((start, LAST))
    return both(tuple(out), ALL)


def contains(a: Ranges, point: int) -> bool:
    """Whether `point` is in the set."""
    i = bisect_right(a, (point, LAST + 16)) - 1
    return i >= 0 and a[i][0] <= point <= a[i][1]


def of(text: str) -> Ranges:
    """The set of the characters of `text`."""
    return normal((ord(c), ord(c)) for c in text)


DIGIT: Ranges = ((0x30, 0x39),)
WORD: Ranges = normal([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
SPACE_ASCII: Ranges = of(" \t\n\r\f\v")
SPACE_ECMA: Ranges = of(
    " \t\n\r\f\v\u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))
)
SPACE_RUST: Ranges = of(
    "\t\n\v\f\r \u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
)
"""The Unicode property White_Space."""
LINE_ENDS: Ranges = of("\n\r\u2028\u2029")


@cache
def _categories() -> dict[str, Ranges]:
    """General category, and its first letter, to its code points."""
    runs: dict[str, list[tuple[int, int]]] = {}
    start, kind = 0, unicodedata.category("\0")
    for point in range(1, LAST + 2):
        now = unicodedata.category(chr(point)) if point <= LAST else ""
        if now != kind:
            runs.setdefault(kind, []).append((start, point - 1))
            runs.setdefault(kind[0], []).append((start, point - 1))
            start, kind = point, now
    return {name: normal(pairs) for name, pairs in runs.items()}


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


@cache
def unicode_class(name: str) -> Ranges:
    r"""Digits, word characters or blanks as Python's Unicode patterns see them: `d`, `w` or `s`."""
    tests: dict[str, Callable[[str], bool]] = {"d": str.isdecimal, "w": _is_word, "s": str.isspace}
    test = tests[name]
    out: list[tuple[int, int]] = []
    for point in range(LAST + 1):
        if test(chr(point)):
            if out and out[-1][1] == point - 1:
                out[-1] = (out[-1][0], point)
            else:
                out.append((point, point))
    return normal(out)


_LONG_NAMES = {
    "Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt",
    "Cased_Letter": "LC", "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Mark": "M", "Nonspacing_Mark": "Mn",
    "Spacing_Mark": "Mc", "Enclosing_Mark": "Me", "Number": "N", "Decimal_Number": "Nd", "digit": "Nd",
    "Letter_Number": "Nl", "Other_Number": "No", "Punctuation": "P", "punct": "P",
    "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd", "Open_Punctuation": "Ps", "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf", "Other_Punctuation": "Po", "Symbol": "S", "Math_Symbol": "Sm",
    "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk", "Other_Symbol": "So", "Separator": "Z",
    "Space_Separator": "Zs", "Line_Separator": "Zl", "Paragraph_Separator": "Zp", "Other": "C",
    "Control": "Cc",
    "cntrl": "Cc", "Format": "Cf", "Private_Use": "Co", "Unassigned": "Cn",
}  # fmt: skip


def unicode_property(name: str) -> Ranges | None:
    r"""Code points of `\p{name}`: general categories by short or long name; None if unknown."""
    for prefix in ("General_Category=", "gc="):
        name = name.removeprefix(prefix)
    name = _LONG_NAMES.get(name, name)
    if name == "Any":
        return ALL
    if name == "ASCII":
        return ((0, 0x7F),)
    if name == "LC":
        table = _categories()
        return normal((*table["Lu"], *table["Ll"], *table["Lt"]))
    return _categories().get(name)


_OTHER_ALPHABETIC = [(0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189)]
"""Symbols that are letters in circles and squares (Other_Alphabetic less marks and letter numbers)."""


@cache
def word_rust() -> Ranges:
    r"""`\w` of Unicode Technical Standard 18: Alphabetic, marks, decimal digits, connectors and joiners."""
    table = _categories()
    parts = [table[name] for name in ("L", "M", "Nd", "Nl", "Pc")]
    return normal((*(pair for part in parts for pair in part), *_OTHER_ALPHABETIC, (0x200C, 0x200D)))


@cache
def _case_pairs() -> dict[int, tuple[int, ...]]:
    """Each code point that has case, to all that fold to the same one (status C of CaseFolding.txt)."""
    groups: dict[str, list[int]] = {}
    for point in range(LAST + 1):
        folded = chr(point).casefold()
        if len(folded) == 1 and (folded != chr(point) or chr(point).upper() != chr(point)):
            groups.setdefault(folded, []).append(point)
    return {point: tuple(members) for members in groups.values() if len(members) > 1 for point in members}


def ignore_case(a: Ranges) -> Ranges:
    """The set with every member in both cases."""
    if a and a[-1][1] < 0x80:
        extra = [
            (ord(c.swapcase()), ord(c.swapcase()))
            for low, high in a
            for c in map(chr, range(low, high + 1))
            if c.isalpha()
        ]
        return normal((*a, *extra))
    extra = [(o, o) for point, others in _case_pairs().items() if contains(a, point) for o in others]
    return normal((*a, *extra))
