"""Amounts over time, in few numbers however long it takes."""

from collections.abc import Sequence


class History:
    """Sums of a few amounts over spans of equal length. Where spans run out, they become twice as long."""

    def __init__(self, amounts: int, *, most: int = 64, span: float = 0.25) -> None:
        self.span = span
        """Seconds of one span."""
        self.spans: list[list[int]] = []
        self._amounts = amounts
        self._most = most
        self._began = 0.0

    def add(self, time: float, amounts: Sequence[int]) -> None:
        """Count amounts in at a time, in seconds. What is older than the first one counts as the first."""
        if not self.spans:
            self._began = time
        index = max(int((time - self._began) / self.span), 0)
        while index >= self._most:
            self._halve()
            index //= 2
        while index >= len(self.spans):
            self.spans.append([0] * self._amounts)
        row = self.spans[index]
        for i, amount in enumerate(amounts):
            row[i] += amount

    def cells(self, most: int, now: float) -> tuple[float, list[list[int]]]:
        """At most `most` sums up to `now`, and the seconds of each; one that is not over yet is left out."""
        if not self.spans or most < 1:
            return self.span, []
        past = min(max(int((now - self._began) / self.span), len(self.spans) - 1), 1 << 20)
        group = max(-(-past // most), 1)
        sums: list[list[int]] = []
        for start in range(0, past - past % group, group):
            rows = self.spans[start : start + group]
            sums.append([sum(row[i] for row in rows) for i in range(self._amounts)])
        return self.span * group, sums

    def _halve(self) -> None:
        spans = self.spans
        self.spans = [
            [
                a + b
                for a, b in zip(
                    spans[i], spans[i + 1] if i + 1 < len(spans) else [0] * len(spans[i]), strict=True
                )
            ]
            for i in range(0, len(spans), 2)
        ]
        self.span *= 2
