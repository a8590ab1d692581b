"""Texts of a language one after the other, to find those that differ from texts already taken.

The texts that begin with a prefix are its shortest one and, for each place on it, those that leave it there:
a partition, so that each text comes once, the shorter ones first (Lawler 1972). A prefix is parted only when
no other text is as short as its own: longer ones can't come before.
"""

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from agentree.runtime.constraint.decimals import Decimals
from agentree.runtime.constraint.machines import Node, stepped
from agentree.runtime.constraint.text import FAR, Text

S = TypeVar("S")


class Others(ABC, Generic[S]):
    """All texts from a start, remembered as far as they were asked for."""

    def __init__(self, starts: Iterable[S]) -> None:
        # Prefixes by the length of their shortest texts, and a number that tells equal ones apart.
        self._waiting: list[tuple[int, int, bytes, int, S, bytes]] = []
        self._whole: list[tuple[int, int, S, bytes]] = []
        self._numbers = count()
        self._found: list[tuple[bytes, int]] = []
        self._known: set[bytes] = set()
        for start in starts:
            self._add(start, b"")

    @abstractmethod
    def _ending(self, state: S) -> tuple[bytes, int]:
        """The shortest rest, and what the text then means."""

    @abstractmethod
    def _bytes(self, state: S) -> Iterable[int]:
        """Bytes that may follow: a superset."""

    @abstractmethod
    def _steps(self, state: S, byte: int) -> Iterable[S]:
        """The states after one more byte."""

    def _add(self, state: S, before: bytes) -> None:
        rest, label = self._ending(state)
        text = before + rest
        heappush(self._waiting, (len(text), next(self._numbers), text, label, state, before))

    def beside(self, taken: Container[bytes]) -> Iterator[tuple[bytes, int]]:
        """The texts that are not taken, with what they mean."""
        index = 0
        while True:
            while index < len(self._found):
                if self._found[index][0] not in taken:
                    yield self._found[index]
                index += 1
            if not self._more():
                return

    def _more(self) -> bool:
        """Find the next text; False if there is none."""
        while self._whole and (not self._waiting or self._whole[0][0] < self._waiting[0][0]):
            *_, state, before = heappop(self._whole)
            self._part(state, before)
        if not self._waiting:
            return False
        length, number, text, label, state, before = heappop(self._waiting)
        heappush(self._whole, (length, number, state, before))
        if text not in self._known:
            self._known.add(text)
            self._found.append((text, label))
        return True

    def _part(self, state: S, walked: bytes) -> None:
        """The texts of a prefix but for the shortest, by where they leave it."""
        for byte in (*self._ending(state)[0], -1):
            for other in self._bytes(state):
                if other != byte:
                    for after in self._steps(state, other):
                        self._add(after, walked + bytes((other,)))
            if byte < 0:
                break
            walked += bytes((byte,))
            state, *more = self._steps(state, byte)
            for after in more:
                self._add(after, walked)


class OtherTexts(Others[tuple[int, int, int]]):
    """Texts of a `Text`."""

    def __init__(self, text: Text) -> None:
        self._text = text
        super().__init__([(0, 0, 0)] if text.need(0, 0) < FAR else [])

    def _ending(self, state: tuple[int, int, int]) -> tuple[bytes, int]:
        return self._text.ending_and_label(*state)

    def _bytes(self, state: tuple[int, int, int]) -> Iterable[int]:
        return self._text.automaton.speller.starts[state[1]]

    def _steps(self, state: tuple[int, int, int], byte: int) -> Iterable[tuple[int, int, int]]:
        after = self._text.step(*state, byte)
        return () if after is None else (after,)


class OtherNumbers(Others[tuple[int, int]]):
    """Numbers as they are written."""

    def __init__(self, form: Decimals) -> None:
        self._form = form
        super().__init__([(0, 0)] if form.fits(0, 0) else [])

    def _ending(self, state: tuple[int, int]) -> tuple[bytes, int]:
        return self._form.ending(*state), 0

    def _bytes(self, state: tuple[int, int]) -> Iterable[int]:
        return self._form.rows[state[0]]

    def _steps(self, state: tuple[int, int], byte: int) -> Iterable[tuple[int, int]]:
        after = self._form.rows[state[0]].get(byte)
        return ((after, state[1] + 1),) if after is not None and self._form.fits(after, state[1] + 1) else ()


class OtherValues(Others[Node]):
    """Texts of JSON values, each walked from a node of its own."""

    def _ending(self, state: Node) -> tuple[bytes, int]:
        return state.w, 0

    def _bytes(self, state: Node) -> Iterable[int]:
        return state.machine.candidates(state.state)

    def _steps(self, state: Node, byte: int) -> Iterable[Node]:
        return stepped(state, byte)
