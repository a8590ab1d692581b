"""llguidance as the engine of schemas that the automata refuse: an optional extra.

It can't tell how long the shortest rest of a text is, so a value may run out of `max_tokens` before it is
complete. Everything else holds: only legal tokens, and forced runs in the tokenizer's own split.
"""

import importlib
import json
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np

from agentree.errors import ConstraintError
from agentree.runtime.constraint.bound import EngineName, Matcher, TokenConstraint
from agentree.runtime.constraint.constraint import Constraint
from agentree.runtime.constraint.spec import JSONSchema
from agentree.runtime.constraint.vocabulary import Mask, Vocabulary

_SPACING: Final[dict[Literal["template", "compact", "any"], dict[str, object]]] = {
    "template": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
    "compact": {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"},
    "any": {"whitespace_flexible": True, "whitespace_pattern": r"[ \n\t\r]{0,64}"},
}


def _package() -> Any:
    try:
        return importlib.import_module("llguidance")
    except ImportError as error:
        raise ConstraintError(
            "fallback='llguidance' needs the package llguidance: pip install 'agentree[llguidance]'"
        ) from error


def compile_foreign(spec: JSONSchema) -> "Foreign":
    """A schema under llguidance.

    Raises ConstraintError where llguidance refuses it too, where it is not installed, and for `closed`,
    which it does not know.
    """
    if spec.closed:
        raise ConstraintError(
            "closed=True can't go with fallback='llguidance': write \"additionalProperties\": false"
        )
    package = _package()
    grammar = package.LLMatcher.grammar_from_json_schema(json.dumps(spec.schema), _SPACING[spec.spacing])
    made = Foreign(grammar, package)
    refusal = made.matcher(_bytes_tokenizer()).get_error()
    if refusal:
        raise ConstraintError(f"llguidance refuses the schema too: {refusal.splitlines()[0]}")
    return made


@lru_cache(maxsize=1)
def _bytes_tokenizer() -> Any:
    """One token for each byte."""
    return _package().LLTokenizer("byte")


class _Tokens:
    """What llguidance asks of a tokenizer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.eos_token_id = min(vocabulary.end_ids)
        self.bos_token_id = None
        never = [i for i, text in enumerate(vocabulary.tokens) if not text or i in vocabulary.end_ids]
        self.special_token_ids = never
        self.tokens = [text or b"" for text in vocabulary.tokens]
        for i in never:
            self.tokens[i] = f"<|{i}|>".encode()

    def __call__(self, text: bytes) -> list[int]:
        return self._vocabulary.encode(text)


@lru_cache(maxsize=8)
def _tokenizer(vocabulary: Vocabulary) -> Any:
    """A vocabulary as llguidance wants it."""
    if not vocabulary.end_ids:
        raise ConstraintError("fallback='llguidance' needs a tokenizer with an end token")
    package = _package()
    wrapped = package.TokenizerWrapper(_Tokens(vocabulary))
    return package.LLTokenizer(wrapped, eos_token=sorted(vocabulary.end_ids))


class Foreign(Constraint):
    """A schema under llguidance."""

    engine: EngineName = "llguidance"

    def __init__(self, grammar: str, package: Any) -> None:
        self._grammar = grammar
        self._package = package
        self._bound: dict[str, TokenForeign] = {}

    def matcher(self, tokenizer: Any) -> Any:
        """Llguidance's own matcher."""
        return self._package.LLMatcher(tokenizer, self._grammar, log_level=0)

    def accepts(self, text: str | bytes) -> bool:
        """Whether the whole text is legal."""
        state = self._after(text)
        return state is not None and bool(state.is_accepting())

    def forced(self, prefix: str | bytes = b"") -> bytes:
        """The bytes that must follow `prefix`, as far as there is only one continuation."""
        state = self._after(prefix)
        return b"" if state is None else bytes(state.compute_ff_bytes())

    def arranged(self, value: object) -> Any:
        """The value itself if it is legal with its keys in the order that they have."""
        if not self.accepts(json.dumps(value, ensure_ascii=False)):
            raise ValueError(f"{value!r} is not legal with its keys in this order")
        return value

    def bind(self, vocabulary: Vocabulary) -> "TokenForeign":
        """The constraint over the tokens of a model; kept per tokenizer."""
        found = self._bound.get(vocabulary.fingerprint)
        if found is None:
            found = self._bound[vocabulary.fingerprint] = TokenForeign(self, vocabulary)
        return found

    def _after(self, text: str | bytes) -> Any:
        state = self.matcher(_bytes_tokenizer())
        ids = list(text.encode() if isinstance(text, str) else text)
        if state.validate_tokens(ids) != len(ids):
            return None
        state.consume_tokens(ids)
        return state


class TokenForeign(TokenConstraint):
    """A schema under llguidance over one vocabulary."""

    engine: EngineName = "llguidance"
    min_tokens = 1

    def __init__(self, constraint: Foreign, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._first = constraint.matcher(_tokenizer(vocabulary))
        error = self._first.get_error()
        if error:
            raise ConstraintError(f"llguidance can't use the tokenizer: {error.splitlines()[0]}")

    def matcher(self, max_tokens: int) -> "ForeignMatcher":
        """The state of one request."""
        return ForeignMatcher(self.vocabulary, self._first.deep_copy(), max_tokens)


class ForeignMatcher(Matcher):
    """The state of one request. A text may be incomplete when the budget is used up."""

    __slots__ = ("_ended", "_state", "_vocabulary", "remaining")

    def __init__(self, vocabulary: Vocabulary, state: Any, max_tokens: int) -> None:
        self._vocabulary = vocabulary
        self._state = state
        self._ended = False
        self.remaining = max_tokens

    @property
    def accepting(self) -> bool:
        """Whether the text is complete."""
        return bool(self._state.is_accepting())

    @property
    def done(self) -> bool:
        """Whether the text is complete and nothing but the end may follow."""
        return self._ended or (self.accepting and (bool(self._state.is_stopped()) or not self.remaining))

    def mask(self) -> Mask:
        """Legal next tokens. Raises ConstraintError where llguidance gives up."""
        vocabulary = self._vocabulary
        bits = np.frombuffer(self._state.compute_bitmask(), np.uint8)
        mask: Mask = np.unpackbits(bits, count=vocabulary.size, bitorder="little").astype(np.bool_)
        self._refuse_failure()
        mask[vocabulary.ends] = self.accepting
        return mask

    def forced(self, last: int | None) -> list[int]:
        """Ids that must come now, none where there is a choice."""
        if self.done or not self.remaining:
            return []
        ids = list(self._state.compute_ff_tokens())[: self.remaining]
        known = self._vocabulary.end_ids
        return ids[: next((i for i, token in enumerate(ids) if token in known), len(ids))]

    def advance(self, token: int) -> None:
        """Takes one token. Raises ValueError if it is not legal."""
        if self._ended:
            raise ValueError(f"token {token} after the end of the text")
        if token in self._vocabulary.end_ids:
            if not self.accepting:
                raise ValueError(f"end token {token}, but the text is not complete")
            self._ended = True
            return
        if not self.remaining or self._state.validate_tokens([token]) != 1:
            raise ValueError(f"token {token} is not legal here, or max_tokens is used up")
        self._state.consume_token(token)
        self._refuse_failure()
        self.remaining -= 1

    def copy(self) -> "ForeignMatcher":
        """An independent matcher in the same state."""
        out = ForeignMatcher(self._vocabulary, self._state.deep_copy(), self.remaining)
        out._ended = self._ended
        return out

    def _refuse_failure(self) -> None:
        if self._state.is_error():
            raise ConstraintError(f"llguidance gave up: {self._state.get_error().splitlines()[0]}")
