"""Dialects of regular expressions, each against the engine whose spelling it reads."""

import random
import re
import sys
from functools import cache
from typing import Annotated, Any

import pytest
from constraint_tools import any_token, play, small_vocabulary, stubborn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError

from agentree.errors import ConstraintError
from agentree.runtime.constraint import Regex, compile_constraint, output_of
from agentree.runtime.constraint.charset import contains
from agentree.runtime.constraint.pattern import Dialect, search
from agentree.runtime.constraint.regex_letters import POSIX, Letters
from agentree.runtime.constraint.terms import Terms

EDGES = "aAbBzZ09_- \t\n\v\f\r\x1c\x1f\x7f\x85\xa0ªµßéÉİıſK٣²½Ⅷⓐ🄰日́‌‍\u2028\u2029\u3000\ufeff\U000e0100😀"


@cache
def rust(pattern: str) -> TypeAdapter[str]:
    kind: Any = Annotated[str, Field(pattern=pattern)]
    return TypeAdapter(kind)


def matches(pattern: str, text: str) -> bool:
    """Whether Rust's regex finds the pattern in the text."""
    try:
        rust(pattern).validate_python(text)
    except ValidationError:
        return False
    return True


def found(pattern: str, text: str, dialect: Dialect) -> bool:
    terms = Terms()
    return terms.accepts(search(terms, pattern, dialect), text)


SETS = [
    r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"[\w-]", r"[^\w]", r"[^\W]", r"[^\s\d]", r"[\D]", ".",
    r"\p{L}", r"\P{L}", r"\pN", r"[^\p{Lu}]", "[[:alpha:]]", "[[:^punct:]_]", "[^[:space:]]", "(?i)[a-k]",
    "(?i)[^ks]", "(?s).",
    "(?i)s", r"\x{e9}", r"\u{1F600}", r"\u00e9", r"\U0001F600", "[]a]", "[^]a]", r"[\]\-]", "[a-]",
    r"\a", "(?U)a",
    "(?i)É", r"(?i)[^\d]",
]  # fmt: skip


@pytest.mark.parametrize("pattern", SETS)
def test_sets_of_rust_are_those_of_the_validator(pattern: str) -> None:
    terms = Terms()
    term = search(terms, f"^(?:{pattern})$", "rust")
    for char in EDGES:
        mine, theirs = terms.accepts(term, char), matches(f"^(?:{pattern})$", char)
        assert mine == theirs or (theirs and _known_narrower(pattern, char)), (pattern, char, mine)


def _known_narrower(pattern: str, char: str) -> bool:
    """Case-insensitive letters of ASCII are written in ASCII."""
    return "(?i)" in pattern and not char.isascii()


@pytest.mark.parametrize("char", "dDwWsS")
def test_every_character_of_the_classes_of_rust(char: str) -> None:
    ranges = Letters("rust").shorthand(char, wide=False)
    points = [
        p for p in range(0, sys.maxunicode + 1, 7 if char.isupper() else 1) if not 0xD800 <= p <= 0xDFFF
    ]
    one = f"^\\{char}$"
    for start in range(0, len(points), 997):  # whole runs at once, single ones where a run is mixed
        block = points[start : start + 997]
        mine = [contains(ranges, p) for p in block]
        text = "".join(chr(p) for p, m in zip(block, mine, strict=True) if m)
        assert matches(f"^\\{char}*$", text), [hex(ord(c)) for c in text if not matches(one, c)]
    if char == "s":
        wanted = {c for c in map(chr, points[:0x10000]) if c.isspace() and matches(one, c)}
        assert {chr(p) for p in points if contains(ranges, p)} == wanted


def test_posix_classes_are_those_of_the_validator() -> None:
    for name, ranges in POSIX.items():
        for point in range(256):
            assert contains(ranges, point) == matches(f"^[[:{name}:]]$", chr(point)), (name, point)


REFUSED: list[tuple[Dialect, str, str]] = [
    ("rust", "[a-z&&[^b]]", "&&"), ("rust", "[a-z--b]", "--"), ("rust", "[a~~b]", "~~"),
    ("rust", "[a[bc]]", "inside"), ("ecma", "(?<=a)", "look-behind"), ("ecma", "[", "']'"),
    ("rust", "(?x) a b", "unknown kind"), ("rust", "(?m)^a", "unknown kind"),
    ("rust", "(?R)a", "unknown kind"),
    ("rust", "(?-u)a", "unknown kind"), ("rust", r"\bword", "word boundaries"), ("ecma", "\\", "backslash"),
    ("rust", r"\<word", "word boundaries"), ("ecma", "[a-", "']'"),
    ("rust", r"\p{Greek}", "'Greek'"), ("rust", r"\p{Cn}", "versions of Unicode"),
    ("rust", "(?i)[^é]", "ASCII"),
    ("rust", "(?=a)a", "unknown kind"), ("python", "(?<=a)b", "look-behind"), ("python", "(?i)[^é]", "ASCII"),
    ("python", "a++", "possessive"), ("python", "(?>a)", "unknown kind"),
    ("python", "(a)(?(1)b)", "unknown kind"),
    ("ecma", r"\k<a>", "back-references"), ("ecma", "a{3,1}", "wrong way"),
    ("ecma", r"\u{110000}", "no code point"), ("ecma", r"\uD8", "hexadecimal"),
    ("ecma", "a{9999999999}", "more than"), ("ecma", "a{" + "9" * 5000 + "}", "more than"),
    ("ecma", "(" * 200 + ")" * 200, "nested"), ("ecma", r"\uD83D\udcZZ", "hexadecimal"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "pattern", "words"), REFUSED)
def test_what_a_dialect_reads_otherwise_is_refused(dialect: Dialect, pattern: str, words: str) -> None:
    with pytest.raises(ConstraintError, match=re.escape(words)) as caught:
        search(Terms(), pattern, dialect)
    assert len(pattern) > 100 or re.search(r"at offset \d+$", str(caught.value))


def test_fields_are_read_in_the_dialect_of_their_engine() -> None:
    spaces: Any = Annotated[str, Field(pattern=r"^\s$")]
    constraint = output_of(list[spaces]).constraint
    assert constraint is not None
    assert constraint.accepts('["\x85"]') and not constraint.accepts('["\ufeff"]')
    look: Any = Annotated[str, Field(pattern=re.compile("^(?=a)[a-z]{2}$"))]
    constraint = output_of(list[look]).constraint
    assert constraint is not None and constraint.accepts('["ab"]') and not constraint.accepts('["ba"]')
    with pytest.raises(ConstraintError, match=r"Rust's regex .*look-around.*; write re.compile"):
        output_of(list[Annotated[str, Field(pattern="(?=a)a")]])
    with pytest.raises(ConstraintError, match=r"'pattern' at #/items.*'Greek'"):
        _ = output_of(list[Annotated[str, Field(pattern=r"\p{Greek}")]]).constraint


_ATOMS = st.sampled_from(
    ["a", "é", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", ".", "[ab]", "[^a]", r"[^\d]", r"[^\w]", r"[\da-]"]
)  # fmt: skip


def _patterns(anchors: bool) -> st.SearchStrategy[str]:
    def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda p: f"(?:{p[0]}|{p[1]})"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,}"])).map(
                lambda p: f"(?:{p[0]}){p[1]}"
            ),
            inner.map(lambda p: f"(?i:{p})") if not anchors else inner.map(lambda p: f"^{p}|{p}$"),
        )

    return st.recursive(_ATOMS, grow, max_leaves=5)


_TEXTS = st.text(st.sampled_from("aAbBé9٣ \n\x1c.-_😀"), max_size=4)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_patterns(anchors=True), st.lists(_TEXTS, min_size=4, max_size=8))
def test_rust_patterns_find_what_the_validator_finds(pattern: str, texts: list[str]) -> None:
    terms = Terms()
    try:
        term = search(terms, pattern, "rust")
    except ConstraintError as error:
        assert "inside a repeat" in str(error)
        return
    for text in texts:
        assert terms.accepts(term, text) == matches(pattern, text), (pattern, text)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_patterns(anchors=False), st.booleans(), st.integers(0, 9))
def test_python_patterns_match_what_is_generated(pattern: str, negative: bool, seed: int) -> None:
    if negative:  # what is forbidden in one reading of the classes must be forbidden in both
        pattern = rf"(?!{pattern}$)[\s\S]*"
    try:
        constraint = compile_constraint(Regex(pattern))
    except ConstraintError as error:
        assert "ASCII characters only" in str(error) or "matches no text" in str(error)
        return
    vocabulary, rng = small_vocabulary(), random.Random(seed)
    least = constraint.bind(vocabulary).min_tokens
    for pick in (any_token(rng), stubborn(rng, b"9a\n\xd9\xa3")):
        text, _ = play(constraint, vocabulary, least + 4, pick)
        folds = "(?i" in pattern and not text.isascii()  # re.ASCII knows no case beyond ASCII
        for flags in (re.UNICODE,) if folds else (re.UNICODE, re.ASCII):
            assert re.fullmatch(pattern, text.decode(), flags), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"[^\d]", "٣"), (r"[^\w]", "é"), (r"(?!\d).", "٣"), (r"(?![\s\S]*x$)[\s\S]*", "ax\n"),
        (r"(?!\w\w$)..", "éa"), (r"(?i)[^k]", "K"), (r"(?!(?i:k)).", "K"), (r"\W", "é"), (r"\D", "٣"),
    ],
)  # fmt: skip
def test_python_patterns_forbid_in_every_reading(pattern: str, text: str) -> None:
    assert not re.fullmatch(pattern, text)
    assert not compile_constraint(Regex(pattern)).accepts(text)
