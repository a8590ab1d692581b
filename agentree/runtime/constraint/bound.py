"""A constraint over the tokens of a model, and the state of one text under it: what an engine asks for."""

from abc import ABC, abstractmethod
from typing import Literal

from agentree.runtime.constraint.forming import CallWatch
from agentree.runtime.constraint.vocabulary import Mask

EngineName = Literal["fsm", "llguidance"]


class Matcher(ABC):
    """Follows one text token by token."""

    __slots__ = ()

    remaining: int
    """Budget left, in tokens. An end token takes none."""

    @property
    @abstractmethod
    def accepting(self) -> bool:
        """Whether the text is complete."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether the text is complete and nothing but the end may follow."""

    @abstractmethod
    def mask(self) -> Mask:
        """Legal next tokens, bool[vocabulary]: read-only. End ids are legal where the text is complete."""

    @abstractmethod
    def forced(self, last: int | None) -> list[int]:
        """Ids that must come now, none where there is a choice. `last` is the token before, if it is text.

        They are the tokenizer's own ids of what must follow, so far as no later text can change them.
        """

    @abstractmethod
    def advance(self, token: int) -> None:
        """Takes one token. Raises ValueError if it is not legal."""

    @abstractmethod
    def copy(self) -> "Matcher":
        """An independent matcher in the same state."""


class TokenConstraint(ABC):
    """A constraint over one vocabulary, shared by all requests."""

    engine: EngineName
    min_tokens: int
    """Tokens within which a complete text certainly fits."""

    @abstractmethod
    def matcher(self, max_tokens: int) -> Matcher:
        """The state of one request. Raises ConstraintError if no complete text is sure to fit."""

    def watch(self) -> CallWatch | None:
        """What tells of tool calls while they are written; None where the text holds none."""
        return None
