"""The automaton over the written digits of a set of numbers."""

from functools import lru_cache

from agentree.runtime.constraint import numbers

_DIGITS = range(48, 58)


class Decimals:
    """`rows[state]` maps a byte to the next state; `accept[state]`: a number may end here; 0 starts.

    A number with a fraction has at most 15 digits, so that the float it is read as is the number that was
    written, and not, say, the integer next to it.
    """

    def __init__(self, rows: list[dict[int, int]], accept: list[bool]) -> None:
        self.rows = rows
        self.accept = accept
        self._any = _Distances(rows, accept, b"")
        self._whole = _Distances(rows, accept, b".")
        for row in rows:
            for byte in [b for b, after in row.items() if self._any.far[after] < 0]:
                del row[byte]
        shortest = min((f for f in (self._whole.far[0], self._any.far[0]) if f >= 0), default=0)
        self.longest = max(numbers.LONGEST, self._whole.far[0] + 16)
        self._longest_fraction = max(numbers.LONGEST_FRACTION, 0 if self._whole.far[0] >= 0 else shortest)
        fractional = {after for row in rows for byte, after in row.items() if byte == 0x2E}
        pending = list(fractional)
        while pending:
            fresh = set(rows[pending.pop()].values()) - fractional
            fractional |= fresh
            pending += fresh
        for state in fractional:
            self._whole.far[state] = -1

    def fits(self, state: int, count: int) -> bool:
        """Whether a number may stand in `state` after `count` bytes."""
        whole, any_ = self._whole.far[state], self._any.far[state]
        return 0 <= whole <= self.longest - count or 0 <= any_ <= self._longest_fraction - count

    def ending(self, state: int, count: int) -> bytes:
        """The shortest rest of a number that has `count` bytes already."""
        far = self._any.far[state]
        fits = 0 <= far <= self._longest_fraction - count
        return (self._any if fits else self._whole).path(state)


class _Distances:
    """Fewest bytes to an end, -1 if there is none, without some bytes; and the way there."""

    def __init__(self, rows: list[dict[int, int]], accept: list[bool], without: bytes) -> None:
        before: list[list[tuple[int, int]]] = [[] for _ in rows]
        for state, row in enumerate(rows):
            for byte, after in row.items():
                if byte not in without:
                    before[after].append((state, byte))
        self.far = [-1] * len(rows)
        self._hop: list[tuple[int, int]] = [(0, 0)] * len(rows)
        layer = [s for s, a in enumerate(accept) if a]
        for state in layer:
            self.far[state] = 0
        for state in layer:
            for source, byte in sorted(before[state], key=lambda edge: (edge[1] != 48, edge[1])):
                if self.far[source] < 0:
                    self.far[source] = self.far[state] + 1
                    self._hop[source] = (byte, state)
                    layer.append(source)

    def path(self, state: int) -> bytes:
        """The bytes of the shortest way."""
        out = bytearray()
        while self.far[state] > 0:
            byte, state = self._hop[state]
            out.append(byte)
        return bytes(out)


@lru_cache(maxsize=2000)
def decimals(members: numbers.Numbers) -> Decimals:
    """How the members of a set are written."""
    if members.texts is not None:
        return _listed(members.texts)
    if members.every:
        return _every()
    digits = numbers.combine(members.values, numbers.INTEGERS, "and") if members.whole else members.values
    names = b"0123456789.-"
    rows = [{names[i]: after for i, after in enumerate(row) if after >= 0} for row in digits.rows]
    accept = list(digits.accept)
    if members.whole:
        for row in rows:
            row.pop(0x2E, None)
        minus = rows[0].get(0x2D)
        if minus is not None and 48 in rows[minus]:
            rows[0][0x2D] = len(rows)
            rows.append({b: a for b, a in rows[minus].items() if b != 48})
            accept.append(False)
    return Decimals(rows, accept)


def _listed(texts: tuple[str, ...]) -> Decimals:
    rows: list[dict[int, int]] = [{}]
    ends: set[int] = set()
    for text in texts:
        state = 0
        for byte in text.encode():
            state = rows[state].setdefault(byte, len(rows))
            if state == len(rows):
                rows.append({})
        ends.add(state)
    return Decimals(rows, [s in ends for s in range(len(rows))])


def _every() -> Decimals:
    """Any number. An exponent follows one integer digit only and stays below 300, so that no float
    overflows.
    """
    names = ("start", "minus", "zero", "one", "many", "point", "fraction", "many.", "many.fraction")
    names += ("e", "e sign", "e low", "e high", "e two", "e end")
    numbered = {name: i for i, name in enumerate(names)}
    rows: list[dict[int, int]] = [{} for _ in names]

    def link(source: str, target: str, symbols: bytes) -> None:
        rows[numbered[source]].update(dict.fromkeys(symbols, numbered[target]))

    digits = bytes(_DIGITS)
    link("start", "minus", b"-")
    for start in ("start", "minus"):
        link(start, "zero", b"0")
        link(start, "one", digits[1:])
    for whole in ("zero", "one"):
        link(whole, "point", b".")
    for mantissa in ("zero", "one", "fraction"):
        link(mantissa, "e", b"eE")
    link("one", "many", digits)
    link("many", "many", digits)
    link("many", "many.", b".")
    for point, fraction in (("point", "fraction"), ("many.", "many.fraction")):
        link(point, fraction, digits)
        link(fraction, fraction, digits)
    link("e", "e sign", b"+-")
    for mark in ("e", "e sign"):
        link(mark, "e low", digits)
        link(mark, "e high", b"12")
    link("e low", "e end", digits)
    link("e high", "e two", digits)
    link("e two", "e end", digits)
    ends = {"zero", "one", "many", "fraction", "many.fraction", "e low", "e high", "e two", "e end"}
    return Decimals(rows, [name in ends for name in names])
