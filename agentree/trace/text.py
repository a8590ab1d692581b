"""Text for people to read: control characters made visible, numbers made short. No colours here."""

import unicodedata

from agentree.events import STOPPED, WAITS

_ESCAPED_KINDS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"
"""Zero-width joiners: format characters that emoji and several scripts can't do without."""


def _visible(char: str, keep: str) -> str:
    if char in keep or char in _JOINERS or unicodedata.category(char) not in _ESCAPED_KINDS:
        return char
    short = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(char)
    code = ord(char)
    return short or (
        rf"\x{code:02x}" if code < 0x100 else rf"\u{code:04x}" if code < 0x10000 else rf"\U{code:08x}"
    )


def escape(text: str, keep: str = "") -> str:
    """The text with every character that could move a cursor or reorder a line written as its escape.

    Covers controls, format characters (right-to-left overrides among them), lone surrogates and Unicode's
    own line breaks; `keep` names exceptions, such as a line feed.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(char, keep) for char in text)


def one_line(text: str, limit: int = 200) -> str:
    """The text on one line of at most `limit` characters; an ellipsis says that more follows."""
    shown = escape(text[: limit + 1])
    return shown if len(shown) <= limit else shown[: max(limit - 1, 0)] + "…"


def count(number: int) -> str:
    """A number of tokens: 1,234 up to five digits, 123.4k and 1.23M beyond."""
    if number < 100_000:
        return f"{number:,}"
    return f"{number / 1000:.1f}k" if number < 1_000_000 else f"{number / 1_000_000:.2f}M"


def plural(number: int, noun: str, several: str = "") -> str:
    """A number of things: "1 generation", "1,234 generations"; `several` where an s is not enough."""
    return f"{count(number)} {noun if number == 1 else several or noun + 's'}"


def percent(part: float, whole: float) -> str:
    """A share, "-" of nothing. 100 % and 0 % are said only when they are exact."""
    if not whole:
        return "-"
    share = 100 * part / whole
    if 0 < share < 1:
        return "<1 %"
    return ">99 %" if 99 < share < 100 else f"{share:.0f} %"


def duration(seconds: float) -> str:
    """A time span in the unit that fits: 3 ms, 4.2 s, 1:05 min."""
    if 0 < seconds < 0.0005:
        return "<1 ms"
    if seconds < 0.9995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d} h" if hours else f"{minutes}:{rest:02d} min"


def amount(done: int, total: int, unit: str) -> str:
    """Progress in words: "30.1 of 92.0 MB", "120 of 272 tensors", "30.1 MB" when the total is unknown."""
    if unit == "bytes":
        size = f"{done / 1e6:.1f}"
        return f"{size} of {total / 1e6:.1f} MB" if total else f"{size} MB"
    return f"{done:,} of {total:,} {unit}" if total else f"{done:,} {unit}"


def in_words(status: str) -> str:
    """How a status is told."""
    return "stopped by a limit" if status == "limit" else status


def ending(status: str, said: str) -> str:
    """How a run ended, in words: with an output, or with why it has none."""
    if status in ("limit", "waiting") and said.startswith((STOPPED, WAITS)):
        return said
    return in_words(status) + (f": {said}" if said else "")
