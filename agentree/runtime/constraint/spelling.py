"""How characters are spelled in bytes: UTF-8, and inside JSON strings with one escape per character that
needs one.

The automaton over the bytes of one character is shared by all states of a text's automaton: a state of the
text is (state between characters, progress inside the character).
"""

from itertools import pairwise
from typing import Final, Literal

from agentree.errors import ConstraintError
from agentree.runtime.constraint.charset import Ranges, both

Mode = Literal["json", "raw"]
Bytes = tuple[tuple[int, int], ...]

_UTF8: Final = (
    (0x00, 0x7F, ((0x00, 0x7F),)),
    (0x80, 0x7FF, ((0xC2, 0xDF), (0x80, 0xBF))),
    (0x800, 0xFFF, ((0xE0, 0xE0), (0xA0, 0xBF), (0x80, 0xBF))),
    (0x1000, 0xFFFF, ((0xE1, 0xEF), (0x80, 0xBF), (0x80, 0xBF))),
    (0x10000, 0x3FFFF, ((0xF0, 0xF0), (0x90, 0xBF), (0x80, 0xBF), (0x80, 0xBF))),
    (0x40000, 0xFFFFF, ((0xF1, 0xF3), (0x80, 0xBF), (0x80, 0xBF), (0x80, 0xBF))),
    (0x100000, 0x10FFFF, ((0xF4, 0xF4), (0x80, 0x8F), (0x80, 0xBF), (0x80, 0xBF))),
)
_SHORT = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
_RAW_JSON: Ranges = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x10FFFF))
_ESCAPED: Ranges = ((0, 0x1F), (34, 34), (92, 92))
_LIKED: Final = (
    b"aA0 -_./:,;!?()xbcdefghijklmnopqrstuvwyzBCDEFGHIJKLMNOPQRSTUVWXYZ123456789@#$%&'*+<=>[]^`{|}~"
)


def quote(text: str) -> bytes:
    """The JSON string literal of `text`, as the automata spell it.

    Raises ConstraintError for lone surrogates.
    """
    if any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        raise ConstraintError(f"{text!r} has a lone surrogate, which no text can spell: leave it out")
    return b'"' + b"".join(escape(ord(c)) for c in text) + b'"'


def escape(point: int) -> bytes:
    """One character inside a JSON string."""
    if point in _SHORT:
        return _SHORT[point]
    return b"\\u%04x" % point if point < 0x20 else chr(point).encode()


def _utf8(low: int, high: int) -> list[Bytes]:
    """Byte ranges whose products spell exactly the code points from `low` to `high`."""
    out: list[Bytes] = []
    pending = [(low, high)]
    while pending:
        low, high = pending.pop()
        for first, last, _ in _UTF8:
            if first <= low <= last < high:
                pending += [(low, last), (last + 1, high)]
                break
        else:
            a, b = chr(low).encode(), chr(high).encode()
            for tail in range(len(a) - 1, 0, -1):
                size = 1 << (6 * tail)
                if low // size == high // size:
                    continue
                if low % size:
                    edge = (low // size + 1) * size
                    pending += [(low, edge - 1), (edge, high)]
                    break
                if (high + 1) % size:
                    edge = (high + 1) // size * size
                    pending += [(low, edge - 1), (edge, high)]
                    break
            else:
                out.append(tuple(zip(a, b, strict=True)))
    return out


class Speller:
    """The automaton over the bytes of one character, for a partition of the characters into classes.

    `rows[e][byte]` is the next place inside the character, `-1` where the byte is wrong, and `-2 - class`
    where the character is complete. Place 0 is between characters. `reach[e]` are the classes still
    possible, a bit set; `finish[e][class]` the bytes that complete the character, the shortest and
    plainest there are; `starts[e]` the bytes that are not wrong.
    """

    def __init__(self, classes: list[Ranges], mode: Mode) -> None:
        self.rows: list[list[int]] = []
        self.reach: list[int] = []
        self.finish: list[dict[int, bytes]] = []
        self.starts: list[tuple[int, ...]] = []
        self._places: dict[tuple[tuple[Bytes, int], ...], int] = {}
        spellings: list[tuple[Bytes, int]] = []
        for number, ranges in enumerate(classes):
            plain = ranges
            if mode == "json":
                plain = both(ranges, _RAW_JSON)
                for low, high in both(ranges, _ESCAPED):
                    spellings += [(tuple((b, b) for b in escape(p)), number) for p in range(low, high + 1)]
            for low, high in plain:
                spellings += [(s, number) for s in _utf8(low, high)]
        self._place(tuple(spellings))
        self.starts = [tuple(b for b, value in enumerate(row) if value != -1) for row in self.rows]

    def _place(self, spellings: tuple[tuple[Bytes, int], ...]) -> int:
        key = tuple(sorted(set(spellings)))
        found = self._places.get(key)
        if found is not None:
            return found
        place = self._places[key] = len(self.rows)
        row = [-1] * 256
        self.rows.append(row)
        self.reach.append(0)
        self.finish.append({})
        cuts = sorted({c for s, _ in key for c in (s[0][0], s[0][1] + 1)})
        reach = 0
        finish: dict[int, bytes] = {}
        for low, stop in pairwise(cuts):
            rests = tuple((s[1:], c) for s, c in key if s[0][0] <= low and stop - 1 <= s[0][1])
            if not rests:
                continue
            liked = next((b for b in _LIKED if low <= b < stop), low)
            if not rests[0][0]:
                number = rests[0][1]
                value = -2 - number
                ends = {number: b""}
                reach |= 1 << number
            else:
                value = self._place(rests)
                ends = self.finish[value]
                reach |= self.reach[value]
            row[low:stop] = [value] * (stop - low)
            for number, tail in ends.items():
                spelled = bytes((liked,)) + tail
                if number not in finish or _rank(spelled) < _rank(finish[number]):
                    finish[number] = spelled
        self.reach[place] = reach
        self.finish[place] = finish
        return place


def _rank(spelled: bytes) -> tuple[int, int]:
    return len(spelled), _LIKED.find(spelled[:1]) if spelled[:1] in _LIKED else 999
