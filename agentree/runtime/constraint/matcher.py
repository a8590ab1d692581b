"""The state of one request under an automaton."""

from collections.abc import Mapping

from agentree.errors import ConstraintError
from agentree.runtime.constraint.bound import EngineName, Matcher, TokenConstraint
from agentree.runtime.constraint.forming import CallWatch
from agentree.runtime.constraint.masks import Masks
from agentree.runtime.constraint.positions import Position, Positions
from agentree.runtime.constraint.shapes import Objects
from agentree.runtime.constraint.vocabulary import Mask, Vocabulary


class TokenAutomaton(Masks, TokenConstraint):
    """An automaton over one vocabulary."""

    engine: EngineName = "fsm"

    def __init__(
        self, positions: Positions, vocabulary: Vocabulary, calls: Mapping[Objects, str] | None = None
    ) -> None:
        """`calls`: shapes of tool calls with the tools' names, for `watch`."""
        super().__init__(positions, vocabulary)
        self._calls = calls or {}

    def watch(self) -> CallWatch | None:
        """What tells of tool calls while they are written; None where the text holds none."""
        return CallWatch(self.positions.start, self._calls) if self._calls else None

    def matcher(self, max_tokens: int) -> "AutomatonMatcher":
        """The state of one request. Raises ConstraintError if no complete text is sure to fit."""
        if max_tokens < self.min_tokens:
            raise ConstraintError(
                f"max_tokens is {max_tokens}, but the shortest legal text takes {self.min_tokens} tokens: "
                "raise max_tokens"
            )
        return AutomatonMatcher(self, max_tokens)


class AutomatonMatcher(Matcher):
    """Follows one text token by token. From every state it lets happen, a complete text fits into
    `remaining`.

    That is kept true by `_plan`, ids that complete the text: either those of the shortest rest, or what is
    left of an earlier plan whose first tokens were taken.
    """

    __slots__ = ("_constraint", "_plan", "_position", "_stopped", "remaining")

    def __init__(self, constraint: Masks, max_tokens: int) -> None:
        self._constraint = constraint
        self._position: Position = constraint.positions.start
        self._plan: tuple[int, ...] | None = None
        self._stopped = False
        self.remaining = max_tokens

    @property
    def accepting(self) -> bool:
        """Whether the text is complete."""
        return self._position.accepting

    @property
    def done(self) -> bool:
        """Whether the text is complete and nothing but the end may follow."""
        if self._stopped:
            return True
        return self._position.accepting and (self.remaining == 0 or not self._position.legal())

    def _planned(self) -> tuple[int, ...]:
        if self._plan is None:
            self._plan = self._constraint.vocabulary.spell(self._position.w) or ()
        return self._plan

    def mask(self) -> Mask:
        """Legal next tokens, bool[vocabulary]: shared, read-only. End ids are legal where the text is
        complete.
        """
        constraint, position = self._constraint, self._position
        legal = constraint.legal(position)
        if self.remaining > legal.worst:
            return legal.mask
        plan = self._planned()
        return constraint.within(position, self.remaining, plan[0] if plan and self.remaining else -1)

    def forced(self, last: int | None) -> list[int]:
        """Ids that must come now, none where there is a choice. `last` is the token before, if it is text.

        They are the tokenizer's own ids of what must follow, so far as no later text can change them.
        """
        constraint = self._constraint
        if self._stopped or not self.remaining:
            return []
        ids = constraint.forced(self._position, last)[: self.remaining]
        if not ids:
            return []
        position = self._position
        kept = 0
        best: Position | None = None
        for index, token in enumerate(ids):
            after = _after(position, constraint.vocabulary.tokens[token] or b"")
            if after is None:
                break
            position = after
            if self._fits(position, self.remaining - index - 1):
                kept, best = index + 1, position
        if best is None:
            return []
        self._plan = (*ids[:kept], *(constraint.vocabulary.spell(best.w) or ()))
        return list(ids[:kept])

    def _fits(self, position: Position, budget: int) -> bool:
        spell = self._constraint.vocabulary.spell
        if len(position.w) <= budget and not position.w.translate(
            None, self._constraint.vocabulary.spellable
        ):
            return True
        spelled = spell(position.w)
        return spelled is not None and len(spelled) <= budget

    def advance(self, token: int) -> None:
        """Takes one token. Raises ValueError if it is not legal."""
        vocabulary = self._constraint.vocabulary
        if self._stopped:
            raise ValueError(f"token {token} after the end of the text")
        if token in vocabulary.end_ids:
            if not self._position.accepting:
                raise ValueError(f"end token {token}, but the text is not complete")
            self._stopped = True
            return
        text = vocabulary.tokens[token] if 0 <= token < vocabulary.size else None
        after = _after(self._position, text) if text else None
        if after is None:
            raise ValueError(f"token {token} ({text!r}) is not legal here")
        planned = self._plan is not None and bool(self._plan) and self._plan[0] == token
        if not self.remaining or not (planned or self._fits(after, self.remaining - 1)):
            if self.remaining and self._planned()[:1] == (token,):
                planned = True
            else:
                raise ValueError(
                    f"token {token} ({text!r}) leaves too little of max_tokens to complete the text"
                )
        self._plan = self._plan[1:] if planned and self._plan is not None else None
        self._position = after
        self.remaining -= 1

    def copy(self) -> "AutomatonMatcher":
        """An independent matcher in the same state."""
        out = AutomatonMatcher(self._constraint, self.remaining)
        out._position = self._position
        out._plan = self._plan
        out._stopped = self._stopped
        return out


def _after(position: Position, text: bytes) -> Position | None:
    here: Position | None = position
    for byte in text:
        if here is None:
            return None
        here = here.step(byte)
    return here
