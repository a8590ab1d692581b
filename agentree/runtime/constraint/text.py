"""Automata over text: states between characters, progress inside a character, and a counted length.

The length is a counter beside the state and never multiplies the states. What is reachable inside a length
window is known per state: the fewest characters to the end, and below the least length one row per missing
character, kept until the rows only shift.
"""

from collections.abc import Callable, Container, Sequence
from copy import copy
from functools import lru_cache
from typing import Final

from agentree.errors import ConstraintError
from agentree.runtime.constraint.charset import Ranges
from agentree.runtime.constraint.spelling import Mode, Speller, escape
from agentree.runtime.constraint.terms import END, Term, Terms, partition

MOST_STATES: Final = 20_000
FAR: Final = 1 << 60

Row = list[int]


def _first(accepting: tuple[bool, ...]) -> int:
    return 0 if accepting[0] else -1


@lru_cache(maxsize=256)
def _speller(classes: tuple[Ranges, ...], mode: Mode) -> Speller:
    return Speller(list(classes), mode)


class TextAutomaton:
    """A DFA over classes of characters. `after[state][class]` is the next state; `labels[state]` is -1 or
    what the text means if it ends here.
    """

    def __init__(
        self, classes: Sequence[Ranges], after: list[dict[int, int]], labels: list[int], mode: Mode
    ) -> None:
        self.classes = tuple(classes)
        self.speller = _speller(self.classes, mode)
        self.after = after
        self.labels = labels
        self.mode: Mode = mode
        self.alive = sum(1 << number for number in {number for row in after for number in row})
        """Classes of characters that may come anywhere, as a bit set."""
        self.complete = sum(high - low + 1 for ranges in classes for low, high in ranges) == 0x110000 - 0x800
        """The classes cover every character."""

    @staticmethod
    def of_terms(
        terms: Terms, roots: Sequence[Term], label: Callable[[tuple[bool, ...]], int], mode: Mode
    ) -> "TextAutomaton":
        """The DFA of several languages at once; `label` says what the set of those that accept means."""
        classes = partition(terms.sets(roots))
        points = [ranges[0][0] for ranges in classes]
        start = tuple(roots)
        numbers = {start: 0}
        order = [start]
        after: list[dict[int, int]] = []
        labels: list[int] = []
        for state in order:
            terms.tick()
            labels.append(label(tuple(terms.derive(t, END).nullable for t in state)))
            row: dict[int, int] = {}
            for number, point in enumerate(points):
                rest = tuple(terms.derive(t, point) for t in state)
                if all(t.kind == "none" for t in rest):
                    continue
                if rest not in numbers:
                    numbers[rest] = len(order)
                    order.append(rest)
                    if len(order) > MOST_STATES:
                        raise ConstraintError(
                            f"a pattern needs more than {MOST_STATES} states: make its repeats smaller"
                        )
                row[number] = numbers[rest]
            after.append(row)
        return TextAutomaton(classes, after, labels, mode)

    @staticmethod
    def of_term(terms: Terms, term: Term, mode: Mode = "json") -> "TextAutomaton":
        """The DFA of one language."""
        return TextAutomaton.of_terms(terms, [term], _first, mode)

    @staticmethod
    def of_texts(texts: Sequence[str], mode: Mode) -> "TextAutomaton":
        """The trie of listed texts; the label of each is its index."""
        letters = sorted({c for text in texts for c in text})
        numbers = {c: i for i, c in enumerate(letters)}
        after: list[dict[int, int]] = [{}]
        labels = [-1]
        for index, text in enumerate(texts):
            state = 0
            for char in text:
                row = after[state]
                state = row.setdefault(numbers[char], len(after))
                if state == len(after):
                    after.append({})
                    labels.append(-1)
            if labels[state] < 0:
                labels[state] = index
        return TextAutomaton([((ord(c), ord(c)),) for c in letters], after, labels, mode)

    def label_of(self, text: str) -> int:
        """What `text` means, -1 if it is not accepted."""
        state = 0
        for byte_text in text:
            place = 0
            spelled = escape(ord(byte_text)) if self.mode == "json" else byte_text.encode()
            for byte in spelled:
                value = self.speller.rows[place][byte]
                if value == -1:
                    return -1
                if value >= 0:
                    place = value
                elif -2 - value in self.after[state]:
                    state = self.after[state][-2 - value]
                else:
                    return -1
        return self.labels[state]

    def relabelled(self, labels: list[int]) -> "TextAutomaton":
        """The same automaton with other meanings."""
        out = copy(self)
        out.labels = labels
        return out

    @staticmethod
    def of_everything(mode: Mode) -> "TextAutomaton":
        """Any text."""
        return TextAutomaton(partition([]), [{0: 0}], [0], mode)


class Text:
    """A TextAutomaton inside a window of lengths, `low` to `high` code points."""

    def __init__(
        self, automaton: TextAutomaton, low: int = 0, high: int | None = None, spare: int | None = None
    ) -> None:
        self.automaton = automaton
        self.low = low
        self.high = high
        self._rows: list[Row] = []
        self._measure()
        self._prepare()
        if high is None and spare is not None and self._endless() and self.need(0, 0) < FAR:
            self.high = max(spare, self.need(0, 0) + 16)
            self._prepare()
        self._classes: dict[tuple[int, int], int] = {}
        self._endings: dict[tuple[int, int], tuple[bytes, int]] = {}

    # ------------------------------------------------------------------ distances

    def _measure(self) -> None:
        """Fewest characters to an end, per state, and the steps that lead there."""
        automaton = self.automaton
        costs = automaton.speller.finish[0]
        before: list[list[int]] = [[] for _ in automaton.labels]
        self._edges: list[list[tuple[int, int]]] = []
        for state, row in enumerate(automaton.after):
            best: dict[int, int] = {}
            for number, after in row.items():
                old = best.get(after)
                if old is None or _plain(costs[number]) < _plain(costs[old]):
                    best[after] = number
            self._edges.append(list(best.items()))
            for after in best:
                before[after].append(state)
        self._far = [FAR] * len(automaton.labels)
        layer = [s for s, label in enumerate(automaton.labels) if label >= 0]
        distance = 0
        while layer:
            for state in layer:
                self._far[state] = distance
            distance += 1
            layer = list(dict.fromkeys(p for s in layer for p in before[s] if self._far[p] == FAR))
        every = len(automaton.speller.finish[0]) if automaton.complete else -1
        self.sinks = [
            label >= 0 and len(row) == every and all(after == state for after in row.values())
            for state, (label, row) in enumerate(zip(automaton.labels, automaton.after, strict=True))
        ]
        """States in which every character is legal and changes nothing."""
        self.loops = [
            sum(1 << number for number, after in row.items() if after == state)
            for state, row in enumerate(automaton.after)
        ]
        """Classes of characters that change nothing, per state, as bit sets."""
        self.free = len(automaton.labels) == 1 and every == 1 and self.sinks[0]

    def _endless(self) -> bool:
        """Whether some live state can be visited again."""
        state = [0] * len(self._far)
        stack: list[tuple[int, int]] = [(0, 0)]
        while stack:
            here, index = stack.pop()
            state[here] = 1
            edges = self._edges[here]
            while index < len(edges):
                after = edges[index][0]
                index += 1
                if self._far[after] == FAR:
                    continue
                if state[after] == 1:
                    return True
                if state[after] == 0:
                    stack += [(here, index), (after, 0)]
                    break
            else:
                state[here] = 2
        return False

    def _prepare(self) -> None:
        """Rows of fewest characters for each count of characters that the least length still needs."""
        if self.free:
            return
        room = FAR if self.high is None else self.high - self.low
        row = [d if d <= room else FAR for d in self._far]
        self._rows = [row]
        for missing in range(1, self.low + 1):
            fresh = [
                min((row[a] + 1 for a, _ in edges if row[a] < FAR), default=FAR) for edges in self._edges
            ]
            self._rows.append(fresh)
            if all(f == (r + 1 if r < FAR else FAR) for f, r in zip(fresh, row, strict=True)):
                break
            row = fresh
            if missing * len(row) > 4_000_000:
                raise ConstraintError(
                    f"a pattern beside 'minLength' {self.low} needs too many states: make it smaller"
                )

    def need(self, state: int, count: int) -> int:
        """Fewest characters to an end after `count` characters, at least FAR if there is none."""
        missing = self.low - count
        if self.free:
            return max(missing, 0)
        if missing <= 0:
            far = self._far[state]
            return far if self.high is None or count + far <= self.high else FAR
        extra = 0
        if missing >= len(self._rows):
            extra = missing - (len(self._rows) - 1)
            missing = len(self._rows) - 1
        found = self._rows[missing][state]
        return found + extra if found < FAR else FAR

    @property
    def void(self) -> bool:
        """No text at all."""
        if self.high is not None and self.high < self.low:
            return True
        return self.need(0, 0) >= FAR

    # ------------------------------------------------------------------ walking

    def grown(self, count: int, by: int = 1) -> int:
        """The counter after more characters."""
        return min(count + by, self.low) if self.high is None else count + by

    def open_classes(self, state: int, count: int) -> int:
        """Classes of characters that may come next, as a bit set."""
        if self.free:
            return 1 if self.high is None or count < self.high else 0
        key = (state, self.plain_count(count, 1))
        found = self._classes.get(key)
        if found is None:
            found = 0
            after = self.grown(count)
            if self.high is None or after <= self.high:
                for number, target in self.automaton.after[state].items():
                    if self.need(target, after) < FAR:
                        found |= 1 << number
            self._classes[key] = found
        return found

    def plain_count(self, count: int, reach: int) -> int:
        """A count that no text of up to `reach` more characters tells apart from `count`."""
        if count < self.low:
            if self.free and self.low - count > reach:
                short = self.low - reach - 1
                return short if self.high is None or self.high - self.low > reach or short < count else count
            return count
        if self.high is None:
            return self.low
        margin = reach + 1 if self.free else reach + 1 + len(self._far)
        return max(count, min(self.high - margin, max(self.low, self.high - margin)))

    def ends(self, state: int, count: int) -> int:
        """The label if the text may end here, else -1."""
        return self.automaton.labels[state] if count >= self.low else -1

    def step(self, state: int, place: int, count: int, byte: int) -> tuple[int, int, int] | None:
        """One byte on, inside the text."""
        value = self.automaton.speller.rows[place][byte]
        if value == -1:
            return None
        classes = self.open_classes(state, count)
        if value >= 0:
            return (state, value, count) if self.automaton.speller.reach[value] & classes else None
        number = -2 - value
        if not classes >> number & 1:
            return None
        return self.automaton.after[state][number], 0, self.grown(count)

    def ending(self, state: int, place: int, count: int) -> bytes:
        """The bytes that complete the character and then the text in the fewest characters."""
        return self.ending_and_label(state, place, count)[0]

    def ending_and_label(self, state: int, place: int, count: int) -> tuple[bytes, int]:
        """As `ending`, and what the text then means."""
        finish = self.automaton.speller.finish
        out = b""
        if place:
            classes = self.open_classes(state, count)
            after = self.grown(count)
            options = [n for n in finish[place] if classes >> n & 1]
            best = min(
                options,
                key=lambda n: (self.need(self.automaton.after[state][n], after), len(finish[place][n])),
            )
            out = finish[place][best]
            state, count = self.automaton.after[state][best], after
        tail, label = self._rest(state, count)
        return out + tail, label

    def ending_beside(
        self, state: int, place: int, count: int, spelled: bytes, taken: Container[bytes]
    ) -> tuple[bytes, int] | None:
        """As `ending_and_label`, a rest with which the text is none of those taken; None if there is none.

        `spelled` are the bytes so far.
        """
        tail, label = self.ending_and_label(state, place, count)
        if spelled + tail not in taken:
            return tail, label
        pending = [((state, place, count), b"")]
        for start, before in pending:
            here, walked = start, before
            for byte in (*self.ending(*start), -1):
                for other in self.automaton.speller.starts[here[1]]:
                    moved = self.step(*here, other) if other != byte else None
                    if moved is None:
                        continue
                    reached = walked + bytes((other,))
                    tail, label = self.ending_and_label(*moved)
                    if spelled + reached + tail not in taken:
                        return reached + tail, label
                    pending.append((moved, reached))
                following = self.step(*here, byte) if byte >= 0 else None
                if following is not None:
                    here, walked = following, walked + bytes((byte,))
        return None

    def _rest(self, state: int, count: int) -> tuple[bytes, int]:
        finish = self.automaton.speller.finish[0]
        if self.free:
            return finish[0] * max(self.low - count, 0), self.automaton.labels[0]
        key = (state, min(count, self.low))
        found = self._endings.get(key)
        if found is not None:
            return found
        out: list[bytes] = []
        while not (count >= self.low and self.automaton.labels[state] >= 0):
            count += 1
            after, number = min(
                self._edges[state],
                key=lambda edge: (self.need(edge[0], min(count, self.low)), _plain(finish[edge[1]])),
            )
            out.append(finish[number])
            state = after
        self._endings[key] = b"".join(out), self.automaton.labels[state]
        return self._endings[key]


def _plain(spelled: bytes) -> tuple[int, bytes]:
    return len(spelled), b"" if spelled == b"a" else spelled
