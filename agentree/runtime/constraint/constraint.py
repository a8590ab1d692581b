"""Compiled constraints: what may be written, without regard to a tokenizer."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

from agentree.errors import ConstraintError
from agentree.runtime.constraint.arrange import arranged
from agentree.runtime.constraint.bound import EngineName, TokenConstraint
from agentree.runtime.constraint.clashes import clash
from agentree.runtime.constraint.grammar import STYLES, Grammar
from agentree.runtime.constraint.matcher import TokenAutomaton
from agentree.runtime.constraint.pattern import Dialect, whole
from agentree.runtime.constraint.positions import Position, Positions
from agentree.runtime.constraint.schema import Schema
from agentree.runtime.constraint.shapes import Objects
from agentree.runtime.constraint.spec import Choice, JSONSchema, Regex
from agentree.runtime.constraint.structure import Structure
from agentree.runtime.constraint.terms import Terms
from agentree.runtime.constraint.text import Text, TextAutomaton
from agentree.runtime.constraint.values import Book
from agentree.runtime.constraint.vocabulary import Vocabulary

SPARE: int | None = None
"""Length bound of strings and patterns that state none, in code points; None is no bound."""

SECONDS = 20.0
"""A compile that takes longer is given up."""


class Deadline:
    """Gives up work that takes too long. Each compile, and each step whose states are worked out only when a
    text first reaches them, has the whole time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.begin()

    def begin(self) -> None:
        """The time starts now."""
        self._end = time.monotonic() + self._seconds

    def __call__(self) -> None:
        """Raises ConstraintError once the time is over."""
        if time.monotonic() > self._end:
            raise ConstraintError(
                f"compiling took longer than {self._seconds:g} s: make patterns and alternatives smaller, "
                "or allow more time"
            )


class Constraint(ABC):
    """A compiled constraint. Shared by all requests with the same spec."""

    engine: EngineName
    unchecked: tuple[str, ...] = ()
    """Keywords, with their places, that are only checked afterwards (`lenient`)."""

    @abstractmethod
    def accepts(self, text: str | bytes) -> bool:
        """Whether the whole text is legal."""

    @abstractmethod
    def forced(self, prefix: str | bytes = b"") -> bytes:
        """The bytes that must follow `prefix`, as far as there is only one continuation."""

    @abstractmethod
    def arranged(self, value: object) -> Any:
        """A JSON value with its keys in the order in which they are written.

        Raises ValueError if the value is not legal in any order of its keys.
        """

    @abstractmethod
    def bind(self, vocabulary: Vocabulary) -> TokenConstraint:
        """The constraint over the tokens of a model; kept per tokenizer."""


class Automaton(Constraint):
    """A constraint as an automaton of this package's own."""

    engine: EngineName = "fsm"

    def __init__(
        self,
        positions: Positions,
        book: Book | None = None,
        number: int = 0,
        calls: Mapping[Objects, str] | None = None,
    ) -> None:
        self._positions = positions
        self._calls = calls
        self._bound: dict[str, TokenAutomaton] = {}
        self._book = book
        self._number = number

    def accepts(self, text: str | bytes) -> bool:
        """Whether the whole text is legal."""
        position = self._after(text)
        return position is not None and position.accepting

    def arranged(self, value: object) -> Any:
        """A JSON value with its keys in the order in which they are written.

        Raises ValueError if the value is not legal in any order of its keys.
        """
        if self._book is None:
            raise ValueError("the constraint is no JSON Schema")
        self._positions.begin()
        return arranged(self._book, self._number, value)

    def forced(self, prefix: str | bytes = b"") -> bytes:
        """The bytes that must follow `prefix`, as far as there is only one continuation."""
        position = self._after(prefix)
        return b"" if position is None else position.forced()[0]

    def _after(self, text: str | bytes) -> Position | None:
        position: Position | None = self._positions.start
        for byte in text.encode() if isinstance(text, str) else text:
            if position is None:
                return None
            position = position.step(byte)
        return position

    def bind(self, vocabulary: Vocabulary) -> TokenAutomaton:
        """The constraint over the tokens of a model; kept per tokenizer."""
        found = self._bound.get(vocabulary.fingerprint)
        if found is None:
            found = TokenAutomaton(self._positions, vocabulary, self._calls)
            self._bound[vocabulary.fingerprint] = found
        return found


def compile_regex(spec: Regex, spare: int | None = SPARE, seconds: float = SECONDS) -> Automaton:
    """The texts that a pattern matches as a whole."""
    tick = Deadline(seconds)
    terms = Terms(tick=tick)
    automaton = TextAutomaton.of_term(terms, whole(terms, spec.pattern), "raw")
    text = Text(automaton, spare=spare)
    if text.void:
        raise ConstraintError(f"pattern {spec.pattern!r} matches no text")
    return Automaton(Positions(text, begin=tick.begin))


def compile_choice(spec: Choice) -> Automaton:
    """One of the options."""
    options = tuple(spec.options)
    if not options:
        raise ConstraintError("Choice has no options: name at least one")
    for option in options:
        if any(0xD800 <= ord(c) <= 0xDFFF for c in option):
            raise ConstraintError(f"the option {option!r} has a lone surrogate, which no text can spell")
    return Automaton(Positions(Text(TextAutomaton.of_texts(options, "raw"))))


def compile_schema(
    spec: JSONSchema, spare: int | None = SPARE, seconds: float = SECONDS, patterns: Dialect = "ecma"
) -> Automaton:
    """The JSON values of a schema."""
    tick = Deadline(seconds)
    book = Book(tick=tick)
    schema = Schema(book, spec.schema, closed=spec.closed, lenient=spec.lenient, patterns=patterns)
    try:
        constraint = compile_set(book, schema.number, spec.spacing, spare, tick)
    except NoValue as error:
        bounds = clash(spec.schema)
        raise ConstraintError(f"{error}: {bounds}" if bounds else str(error)) from None
    constraint.unchecked = tuple(dict.fromkeys(schema.unchecked))
    return constraint


class NoValue(ConstraintError):
    """A set of values is empty."""


def compile_set(
    book: Book,
    number: int,
    spacing: Literal["template", "compact", "any"],
    spare: int | None,
    tick: Deadline,
    calls: Mapping[Objects, str] | None = None,
) -> Automaton:
    """The JSON values of a set; `tick` is what the book was made with, `calls` the shapes of tool calls."""
    try:
        grammar = Grammar(book, number, STYLES[spacing], spare)
    except RecursionError:
        raise ConstraintError("the schema or one of its patterns is nested too deeply") from None
    if not grammar.live(number):
        raise NoValue("no JSON value satisfies the schema: its keywords contradict each other")
    return Automaton(Positions(Structure(grammar), number, tick.begin), book, number, calls)
