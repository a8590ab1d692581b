"""Sets of JSON numbers as automata over their decimal spelling.

The automata are closed under spelling (`5`, `5.0` and `5.00` are one value), so union, intersection and
complement speak of values. What is finally written is narrower: integers without a fraction, listed values
as the schema spells them, exponents only where every number is legal, and few digits (see `LONGEST`).
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Final, Literal, TypeVar

from agentree.errors import ConstraintError

LONGEST: Final = 40
"""Whole numbers are written in at most so many bytes, or 16 more than the shortest that is legal."""

LONGEST_FRACTION: Final = 17
"""Numbers with a fraction are written in at most so many bytes: 15 digits, a point and a sign."""

LARGEST_MODULUS: Final = 20_000

DOT, MINUS = 10, 11
_SYMBOLS = 12
_S = TypeVar("_S", bound=Hashable)

Comparison = Literal[">=", ">", "<=", "<"]
# (negative, phase, integer digits read, comparison of magnitudes so far)
_Compared = tuple[bool, str, int, int]
# (phase, places after the point, remainder)
_Remainder = tuple[str, int, int]


@dataclass(frozen=True)
class Digits:
    """A minimal DFA over the digits, `.` and `-`: `rows[state][symbol]` is the next state or -1; 0 starts."""

    rows: tuple[tuple[int, ...], ...]
    accept: tuple[bool, ...]

    @property
    def void(self) -> bool:
        """No number at all."""
        return not any(self.accept)

    def holds(self, text: str) -> bool:
        """Whether a spelling without exponent is in the language."""
        state = 0
        for char in text:
            symbol = DOT if char == "." else MINUS if char == "-" else ord(char) - 48
            state = self.rows[state][symbol] if 0 <= symbol < _SYMBOLS else -1
            if state < 0:
                return False
        return self.accept[state]


def _tabulate(start: _S, step: Callable[[_S, int], _S | None], accept: Callable[[_S], bool]) -> Digits:
    numbers: dict[_S, int] = {start: 0}
    order = [start]
    rows: list[list[int]] = []
    for state in order:
        row: list[int] = []
        for symbol in range(_SYMBOLS):
            after = step(state, symbol)
            if after is None:
                row.append(-1)
                continue
            number = numbers.setdefault(after, len(order))
            if number == len(order):
                order.append(after)
            row.append(number)
        rows.append(row)
    return _minimal(rows, [accept(s) for s in order])


def _minimal(rows: list[list[int]], accept: list[bool]) -> Digits:
    """Moore's partition refinement, dead states removed."""
    before: list[list[int]] = [[] for _ in rows]
    for state, row in enumerate(rows):
        for after in row:
            if after >= 0:
                before[after].append(state)
    live = {i for i, a in enumerate(accept) if a}
    pending = list(live)
    while pending:
        for state in before[pending.pop()]:
            if state not in live:
                live.add(state)
                pending.append(state)
    block = [(2 if accept[s] else 1) if s in live else 0 for s in range(len(rows))]
    count = 0
    while True:
        keys: dict[tuple[int, ...], int] = {}
        fresh: list[int] = []
        for state, row in enumerate(rows):
            if not block[state]:
                fresh.append(0)
                continue
            key = (block[state], *[block[t] if t >= 0 else 0 for t in row])
            fresh.append(keys.setdefault(key, len(keys) + 1))
        block = fresh
        if len(keys) == count:
            break
        count = len(keys)
    if not block[0]:
        return Digits(((-1,) * _SYMBOLS,), (False,))
    order: dict[int, int] = {block[0]: 0}
    queue = [0]
    out_rows: list[tuple[int, ...]] = []
    out_accept: list[bool] = []
    for state in queue:
        row: list[int] = []
        for after in rows[state]:
            if after < 0 or not block[after]:
                row.append(-1)
                continue
            if block[after] not in order:
                order[block[after]] = len(queue)
                queue.append(after)
            row.append(order[block[after]])
        out_rows.append(tuple(row))
        out_accept.append(accept[state])
    return Digits(tuple(out_rows), tuple(out_accept))


def _shape(phase: str, symbol: int) -> str | None:
    """Spelling of JSON numbers: start, minus, zero, integer digits, point, fraction digits."""
    if symbol == MINUS:
        return "-" if phase == "S" else None
    if symbol == DOT:
        return "." if phase in "ZI" else None
    if phase in "S-":
        return "Z" if symbol == 0 else "I"
    if phase == "Z":
        return None
    return "I" if phase == "I" else "F"


EVERY: Final = _tabulate("S", _shape, lambda p: p in "ZIF")
NOTHING: Final = _minimal([[-1] * _SYMBOLS], [False])


@lru_cache(maxsize=4096)
def combine(a: Digits, b: Digits, operation: Literal["and", "or", "less"]) -> Digits:
    """Intersection, union or difference."""

    def step(pair: tuple[int, int], symbol: int) -> tuple[int, int] | None:
        left = a.rows[pair[0]][symbol] if pair[0] >= 0 else -1
        right = b.rows[pair[1]][symbol] if pair[1] >= 0 else -1
        if left < 0 and (operation != "or" or right < 0):
            return None
        return None if operation == "and" and right < 0 else (left, right)

    def accept(pair: tuple[int, int]) -> bool:
        left = pair[0] >= 0 and a.accept[pair[0]]
        right = pair[1] >= 0 and b.accept[pair[1]]
        if operation == "and":
            return left and right
        return (left or right) if operation == "or" else left and not right

    return _tabulate((0, 0), step, accept)


def _parts(value: Decimal) -> tuple[str, str]:
    whole, _, fraction = format(abs(value), "f").partition(".")
    return whole.lstrip("0") or "0", fraction.rstrip("0")


@lru_cache(maxsize=1024)
def compared(operation: Comparison, bound: Decimal) -> Digits:
    """Numbers on one side of `bound`, by comparing digit after digit."""
    whole, fraction = _parts(bound)
    if len(whole) + len(fraction) > 400:
        raise ConstraintError(f"the bound {bound} has more than 400 digits")
    size = len(whole)

    def resolved(digits: int, sign: int) -> int:
        return (digits > size) - (digits < size) if digits != size else sign

    def step(state: _Compared, symbol: int) -> _Compared | None:
        negative, phase, digits, sign = state
        after = _shape(phase, symbol)
        if after is None:
            return None
        if after == "-":
            return True, after, 0, 0
        if after in "ZI":
            if digits > size:
                return negative, after, digits, 0
            if sign == 0 and digits < size:
                own = int(whole[digits])
                sign = (symbol > own) - (symbol < own)
            return negative, after, digits + 1, sign
        if after == ".":
            return negative, after, 0, resolved(digits, sign)
        if sign == 0:
            own = int(fraction[digits]) if digits < len(fraction) else 0
            sign = (symbol > own) - (symbol < own)
            digits = min(digits + 1, len(fraction))
        return negative, after, digits if sign == 0 else 0, sign

    def accept(state: _Compared) -> bool:
        negative, phase, digits, sign = state
        if phase not in "ZIF":
            return False
        if phase == "F":
            size_sign = sign if sign or digits >= len(fraction) else -1
        else:
            size_sign = resolved(digits, sign) or (-1 if fraction else 0)
        if negative:
            zero_bound = whole == "0" and not fraction
            order = -size_sign if bound < 0 or zero_bound else -1
        else:
            order = 1 if bound < 0 else size_sign
        return {">=": order >= 0, ">": order > 0, "<=": order <= 0, "<": order < 0}[operation]

    return _tabulate((False, "S", 0, 0), step, accept)


@lru_cache(maxsize=256)
def multiples(of: Decimal) -> Digits:
    """Multiples of a positive number, by its remainder."""
    exponent = of.as_tuple().exponent
    assert isinstance(exponent, int)
    places = max(-exponent, 0)
    modulus = int(of.scaleb(places))
    while places and modulus % 10 == 0:
        modulus, places = modulus // 10, places - 1
    if modulus * (places + 1) > LARGEST_MODULUS:
        raise ConstraintError(f"multipleOf {of} needs more than {LARGEST_MODULUS} states")

    def step(state: _Remainder, symbol: int) -> _Remainder | None:
        phase, places_read, remainder = state
        after = _shape(phase, symbol)
        if after is None:
            return None
        if after in "-.":
            return after, 0, remainder
        if after == "F":
            if places_read == places:
                return (after, places, remainder) if symbol == 0 else None
            return after, places_read + 1, (remainder * 10 + symbol) % modulus
        return after, 0, (remainder * 10 + symbol) % modulus

    def accept(state: _Remainder) -> bool:
        phase, read, remainder = state
        return phase in "ZIF" and remainder * 10 ** (places - read) % modulus == 0

    return _tabulate(("S", 0, 0), step, accept)


INTEGERS: Final = multiples(Decimal(1))


def decimal(value: int | float) -> Decimal:
    """The decimal number that the schema spells."""
    return Decimal(value) if isinstance(value, int) else Decimal(repr(value))


@dataclass(frozen=True)
class Numbers:
    """A set of numbers and how they are spelled.

    `values`: closed under spelling. `whole`: written without a fraction. `texts`: written as one of these.
    """

    values: Digits
    whole: bool = False
    texts: tuple[str, ...] | None = None

    @property
    def void(self) -> bool:
        """No number at all."""
        if self.texts is not None:
            return not self.texts
        return self.values.void or (self.whole and combine(self.values, INTEGERS, "and").void)

    @property
    def every(self) -> bool:
        """Every number: the only set in which exponents are written."""
        return self.texts is None and not self.whole and self.values == EVERY


ALL: Final = Numbers(EVERY)
NONE: Final = Numbers(NOTHING)
WHOLE: Final = Numbers(INTEGERS, whole=True)


def listed(values: Iterable[int | float]) -> Numbers:
    """Exactly these values."""
    texts = {repr(value): decimal(value) for value in values}
    return Numbers(_any_of([*texts.values()]), texts=tuple(texts))


def _any_of(values: Sequence[Decimal]) -> Digits:
    """Every spelling of some values: a trie, with zeros at the end of each fraction."""
    zeros = 1
    rows = [[-1] * _SYMBOLS, [zeros if symbol == 0 else -1 for symbol in range(_SYMBOLS)]]
    accept = [False, True]

    def under(state: int, symbol: int) -> int:
        if rows[state][symbol] < 0:
            rows[state][symbol] = len(rows)
            rows.append([-1] * _SYMBOLS)
            accept.append(False)
        return rows[state][symbol]

    ends: list[int] = []
    for value in values:
        whole, fraction = _parts(value)
        for sign in ("-", "") if value == 0 else ("-",) if value < 0 else ("",):
            state = 0
            for char in f"{sign}{whole}.{fraction}":
                if char == "." and not fraction:
                    accept[state] = True
                state = under(state, DOT if char == "." else MINUS if char == "-" else ord(char) - 48)
            if fraction:
                accept[state] = True
            ends.append(state)
    for end in ends:
        state = end
        while rows[state][0] > zeros:
            state = rows[state][0]
            accept[state] = True
        rows[state][0] = zeros
    return _minimal(rows, accept)


def equal(value: Decimal) -> Digits:
    """Every spelling of one value."""
    return combine(compared(">=", value), compared("<=", value), "and")


def both(a: Numbers, b: Numbers) -> Numbers:
    """Intersection."""
    if a.texts is None and b.texts is None:
        return Numbers(combine(a.values, b.values, "and"), a.whole or b.whole)
    first, second = (a, b) if a.texts is not None else (b, a)
    texts = tuple(t for t in first.texts or () if _holds(second, t))
    return Numbers(combine(a.values, b.values, "and"), texts=texts)


def either(a: Numbers, b: Numbers) -> Numbers:
    """Union."""
    if a.void or b.void:
        return b if a.void else a
    values = combine(a.values, b.values, "or")
    if a.texts is not None and b.texts is not None:
        return Numbers(values, texts=tuple(dict.fromkeys((*a.texts, *b.texts))))
    if a.texts is not None or b.texts is not None:
        whole = (a.whole or b.whole) and not any("." in t or "e" in t for t in (a.texts or b.texts or ()))
        return Numbers(values, whole)
    return Numbers(values, a.whole and b.whole)


def complement(a: Numbers) -> Numbers:
    """Every other number."""
    return Numbers(combine(EVERY, a.values, "less"))


def _holds(a: Numbers, text: str) -> bool:
    return a.values.holds(format(Decimal(text), "f"))
