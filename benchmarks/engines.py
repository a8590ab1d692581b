"""Constraint engines behind one face: ours, llguidance and xgrammar, if they are installed."""

import importlib
import importlib.util
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from agentree.errors import ConstraintError
from agentree.runtime.constraint import JSONSchema, Vocabulary
from agentree.runtime.constraint.bound import Matcher
from agentree.runtime.constraint.constraint import Automaton, compile_schema
from agentree.runtime.constraint.foreign import compile_foreign

ROOM = 500
"""Tokens that a walk may take beyond those of the text."""


class RefusedError(Exception):
    """An engine says that it can't enforce a schema."""


class Walk(ABC):
    """One text under a schema, token by token."""

    @abstractmethod
    def mask(self) -> object:
        """Legal next tokens, in the engine's own form."""

    @abstractmethod
    def advance(self, token: int) -> bool:
        """Takes a token; False if it is not legal."""

    @abstractmethod
    def complete(self) -> bool:
        """Whether the text may end here."""


class Ours(Walk):
    """A matcher of this package, over whichever engine."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher

    def mask(self) -> object:
        """A shared array."""
        return self.matcher.mask()

    def advance(self, token: int) -> bool:
        """Takes a token; False if it is not legal."""
        try:
            self.matcher.advance(token)
        except ValueError:
            return False
        return True

    def complete(self) -> bool:
        """Whether the text may end here."""
        return self.matcher.accepting


class Theirs(Walk):
    """A matcher of xgrammar, with one bitmask for all."""

    def __init__(self, matcher: Any, bits: Any, end: int) -> None:
        self._matcher, self._bits, self._end = matcher, bits, end

    def mask(self) -> object:
        """Fills the bitmask."""
        self._matcher.fill_next_token_bitmask(self._bits)
        return self._bits

    def advance(self, token: int) -> bool:
        """Takes a token; False if it is not legal."""
        return bool(self._matcher.accept_token(token))

    def complete(self) -> bool:
        """Whether the end token is accepted."""
        return bool(self._matcher.accept_token(self._end))


Compiled = Callable[[int], Walk]
"""Starts a walk over a text of so many tokens."""


def ours(schema: Any, vocabulary: Vocabulary) -> tuple[Compiled, Automaton]:
    """This package's automaton."""
    try:
        constraint = compile_schema(JSONSchema(schema))
        bound = constraint.bind(vocabulary)
    except ConstraintError as error:
        raise RefusedError(str(error)) from error
    return (lambda n: Ours(bound.matcher(max(n + ROOM, bound.min_tokens)))), constraint


def _llguidance(schema: Any, vocabulary: Vocabulary) -> Compiled:
    try:
        bound = compile_foreign(JSONSchema(schema)).bind(vocabulary)
    except ConstraintError as error:
        raise RefusedError(str(error)) from error
    return lambda n: Ours(bound.matcher(n + ROOM))


def _xgrammar(vocabulary: Vocabulary) -> Callable[[Any], Compiled]:
    package: Any = importlib.import_module("xgrammar")
    about = package.TokenizerInfo(
        [text or b"" for text in vocabulary.tokens],
        package.VocabType.RAW,
        vocab_size=vocabulary.size,
        stop_token_ids=sorted(vocabulary.end_ids),
    )
    compiler = package.GrammarCompiler(about, max_threads=1, cache_enabled=False)
    bits = package.allocate_token_bitmask(1, vocabulary.size)
    end = min(vocabulary.end_ids)

    def compile_(schema: Any) -> Compiled:
        try:
            grammar = compiler.compile_json_schema(json.dumps(schema), any_whitespace=False)
        except Exception as error:
            raise RefusedError(str(error)) from error
        return lambda _: Theirs(package.GrammarMatcher(grammar), bits, end)

    return compile_


def engines(vocabulary: Vocabulary) -> dict[str, Callable[[Any], Compiled]]:
    """Those that are installed, ready to compile."""
    found: dict[str, Callable[[Any], Compiled]] = {"agentree": lambda s: ours(s, vocabulary)[0]}
    if importlib.util.find_spec("llguidance"):
        found["llguidance"] = lambda s: _llguidance(s, vocabulary)
    if importlib.util.find_spec("xgrammar"):
        found["xgrammar"] = _xgrammar(vocabulary)
    return found
