"""Arithmetic as people write it -> the same as a Python expression, or a sentence on what is unclear.

`1,234 × 2² ÷ 4 =` becomes `1234 * 2 ** 2 / 4`. Nothing is guessed: what could mean two things is refused.
"""

import re

MAX_TEXT = 1000
"""Longest expression, in characters."""
MAX_EXPONENT = 400
"""Largest power of ten in a literal such as 1e400."""

_NUMBER = re.compile(r"(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE](?P<exponent>[+-]?\d+))?", re.ASCII)
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TIMES = re.compile(r"[xX](?=[\s\d.(+\-−]|$)", re.ASCII)
_OPERATORS = {
    "×": "*", "·": "*", "⋅": "*", "∙": "*", "÷": "/", "∕": "/", "−": "-", "–": "-", "^": "**",
    "²": "** 2", "³": "** 3",
}  # fmt: skip

_SUPERSCRIPTS = ("²", "³")
_AMBIGUOUS = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)", re.ASCII)


class Unreadable(ValueError):
    """What the text means is unclear; the message says where and what to write."""


def normalise(text: str) -> str:
    """The expression in Python's notation: ASCII tokens, separated by single spaces.

    Raises Unreadable. The result holds only numbers, names, parentheses, commas and + - * / // % **.
    """
    if len(text) > MAX_TEXT:
        raise Unreadable(f"the expression has {len(text):,} characters, at most {MAX_TEXT:,} are read")
    text = re.sub(r"\s*=\s*\??\s*$", "", text)
    if not text.strip():
        raise Unreadable("the expression is empty")
    tokens: list[str] = []
    in_call: list[bool] = []  # for each open parenthesis, whether a function's name stands before it
    at = 0
    while at < len(text):
        char = text[at]
        last = tokens[-1] if tokens else ""
        value_before = last == ")" or last[-1:].isalnum() or last[-1:] == "."
        if char.isspace():
            at += 1
        elif value_before and _TIMES.match(text, at):
            tokens.append("*")
            at += 1
        elif _NUMBER.match(text, at):
            _refuse_neighbours(last, text[at : at + 12], value_before)
            number, at = _number(text, at, within_call=bool(in_call) and in_call[-1])
            tokens.append(number)
        elif name := _NAME.match(text, at):
            _refuse_neighbours(last, name[0], value_before)
            tokens.append(name[0])
            at = name.end()
        elif char == "(":
            call = bool(_NAME.fullmatch(last))
            if value_before and not call:
                raise Unreadable(f"write * between {last!r} and '('")
            in_call.append(call)
            tokens.append(char)
            at += 1
        elif char in ")," or char in "+-*/%":
            token = text[at : at + 2] if text[at : at + 2] in ("**", "//") else char
            if token == ")" and in_call:
                in_call.pop()
            tokens.append(token)
            at += len(token)
        elif char in _OPERATORS:
            if char in _SUPERSCRIPTS and text[at + 1 : at + 2] in _SUPERSCRIPTS:
                raise Unreadable(f"the exponent {text[at : at + 2]!r} is unclear: write ** and the number")
            tokens.extend(_OPERATORS[char].split())
            at += 1
        else:
            raise Unreadable(
                f"{char!r} can't be calculated with: write numbers, + - * / // % ** and parentheses only"
            )
    return " ".join(tokens)


def _number(text: str, at: int, *, within_call: bool) -> tuple[str, int]:
    grouped = _GROUPED.match(text, at)
    if within_call and (unclear := _AMBIGUOUS.match(text, at)):
        raise Unreadable(
            f"{unclear[0]!r} may be one number or several arguments: write numbers without commas, "
            f"and a space after a comma between arguments"
        )
    match = grouped or _NUMBER.match(text, at)
    if match is None:
        raise Unreadable(f"{text[at : at + 1]!r} starts no number")
    end = match.end()
    after = text[end : end + 1]
    if after == "," and not within_call:
        raise Unreadable(
            f"the comma after {match[0]!r} is unclear: write the number without commas, decimals with a point"
        )
    if after.isalpha() or after == "_":
        if match[0] == "0" and after in "xXoObB" and text[end + 1 : end + 2].isalnum():
            raise Unreadable(
                f"{text[at : end + 2]!r} looks like no decimal number: write it in decimal, or * for times"
            )
        if not _TIMES.match(text, end):
            raise Unreadable(f"write * between {match[0]!r} and {after!r}")
    exponent = match.groupdict().get("exponent") or "0"
    if len(exponent) > 5 or abs(int(exponent)) > MAX_EXPONENT:
        raise Unreadable(f"{match[0]!r} is too large: exponents go up to {MAX_EXPONENT}")
    number = match[0].replace(",", "").replace("_", "")
    return re.sub(r"^0+(?=\d)", "", number), end


def _refuse_neighbours(last: str, new: str, value_before: bool) -> None:
    if value_before:
        raise Unreadable(f"write an operator between {last!r} and {new!r}")
