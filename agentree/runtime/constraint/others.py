"""Texts of a language one after the other, to find those that differ from texts already taken.

The texts that begin with a prefix are its shortest one and, for each place on it, those that leave it there:
a partition, so that each text comes once (Lawler 1972), shorter ones first by and large.
"""

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator
from typing import Generic, TypeVar

from agentree.runtime.constraint.machines import Node, stepped
from agentree.runtime.constraint.text import FAR, Text

S = TypeVar("S")


class Others(ABC, Generic[S]):
    """All texts from a start, remembered as far as they were asked for."""

    def __init__(self, starts: Iterable[S]) -> None:
        self._prefixes: list[tuple[S, bytes]] = []
        self._split = 0
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
        self._prefixes.append((state, before))
        rest, label = self._ending(state)
        if before + rest not in self._known:
            self._known.add(before + rest)
            self._found.append((before + rest, label))

    def beside(self, taken: Container[bytes]) -> Iterator[tuple[bytes, int]]:
        """The texts that are not taken, with what they mean."""
        index = 0
        while True:
            while index < len(self._found):
                if self._found[index][0] not in taken:
                    yield self._found[index]
                index += 1
            if self._split == len(self._prefixes):
                return
            self._grow()

    def _grow(self) -> None:
        state, walked = self._prefixes[self._split]
        self._split += 1
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


class OtherValues(Others[Node]):
    """Texts of JSON values, each walked from a node of its own."""

    def _ending(self, state: Node) -> tuple[bytes, int]:
        return state.w, 0

    def _bytes(self, state: Node) -> Iterable[int]:
        return state.machine.candidates(state.state)

    def _steps(self, state: Node, byte: int) -> Iterable[Node]:
        return stepped(state, byte)
