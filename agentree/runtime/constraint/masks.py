"""Which tokens are legal where: masks per position, worked out when first asked for and shared.

A token is legal if its bytes are and if from where it leads a complete text can still be spelled within the
budget. While the budget is larger than the worst shortest rest in bytes, it rejects nothing and the mask
depends on the position alone. Below, each token is held against the number of tokens that the shortest
rest from its target takes.
"""

from dataclasses import dataclass

import numpy as np

from agentree.errors import ConstraintError
from agentree.runtime.constraint.forced import ForcedRuns
from agentree.runtime.constraint.positions import Position, Positions
from agentree.runtime.constraint.vocabulary import Ids, Mask, Vocabulary
from agentree.runtime.constraint.walk import Reached, walk

MOST_MASKS = 20_000


@dataclass(frozen=True)
class Legal:
    """Tokens of one position without regard to the budget."""

    mask: Mask
    worst: int
    """No legal token leads to where the shortest rest takes more bytes than this."""


@dataclass(frozen=True)
class Priced:
    """Legal tokens of one position with the number of tokens that a complete text then still takes."""

    ids: Ids
    rest: Ids


class Masks:
    """Masks and forced runs of one constraint over one vocabulary.

    Raises ConstraintError if the tokens can't spell any text of the constraint.
    """

    def __init__(self, positions: Positions, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.positions = positions
        self._legal: dict[Position, Legal] = {}
        self._priced: dict[Position, Priced] = {}
        self._tight: dict[tuple[Position, int, int], Mask] = {}
        self._runs = ForcedRuns(vocabulary)
        self._masks: dict[bytes, Mask] = {}
        shortest = vocabulary.spell(positions.start.w)
        if shortest is None:
            lacking = sorted(set(positions.start.w) - set(vocabulary.spellable))
            raise ConstraintError(
                f"the tokenizer can't spell {positions.start.w!r}: "
                f"it has no token for the bytes {bytes(lacking)!r}"
            )
        self.min_tokens = len(shortest)
        """Tokens within which a complete text certainly fits."""

    # ------------------------------------------------------------------ masks

    def legal(self, position: Position) -> Legal:
        """The mask without a budget."""
        found = self._legal.get(position)
        if found is None:
            if len(self._legal) > MOST_MASKS:
                self._legal.clear()
                self._masks.clear()
            plain = self.positions.plain(position, self.vocabulary.longest)
            if plain is position:
                found = self._work_out(position)
            else:
                near = self.legal(plain)
                found = Legal(near.mask, near.worst + max(len(position.w) - len(plain.w), 0))
            self._legal[position] = found
            self.positions.tidy()
        return found

    def _work_out(self, position: Position) -> Legal:
        vocabulary = self.vocabulary
        mask: Mask = np.zeros(vocabulary.size, np.bool_)
        worst = 0
        for reached in walk(vocabulary.trie, position):
            rest = reached.position.w
            if rest.translate(None, vocabulary.spellable) and vocabulary.spell(rest) is None:
                continue
            worst = max(worst, len(rest) + reached.kept)
            mask[reached.ids] = True
        if position.accepting:
            mask[vocabulary.ends] = True
        return Legal(self._shared(mask), worst)

    def _shared(self, mask: Mask) -> Mask:
        key = np.packbits(mask).tobytes()
        found = self._masks.get(key)
        if found is None:
            mask.flags.writeable = False
            found = self._masks[key] = mask
        return found

    def priced(self, position: Position) -> Priced:
        """Legal tokens with what a complete text then takes."""
        found = self._priced.get(position)
        if found is None:
            if len(self._priced) > MOST_MASKS // 10:
                self._priced.clear()
            ids: list[Ids] = []
            rest: list[Ids] = []
            for reached in walk(self.vocabulary.trie, position):
                for target, members in self._apart(reached):
                    spelled = self.vocabulary.spell(target.w)
                    if spelled is not None:
                        ids.append(np.asarray(members, np.int32))
                        rest.append(np.full(len(members), len(spelled) + reached.kept, np.int32))
            none = np.zeros(0, np.int32)
            found = Priced(np.concatenate(ids) if ids else none, np.concatenate(rest) if rest else none)
            self._priced[position] = found
            self.positions.tidy()
        return found

    def _apart(self, reached: Reached) -> list[tuple[Position, Ids | list[int]]]:
        """Tokens by where they lead, where they stay inside one string: by their number of code points."""
        if reached.lengths is None:
            return [(reached.position, reached.ids)]
        out: list[tuple[Position, Ids | list[int]]] = []
        ids = np.asarray(reached.ids, np.int32)
        for length in np.flatnonzero(np.bincount(reached.lengths)).tolist():
            members = ids[reached.lengths == length]
            target: Position | None = reached.position
            for byte in (self.vocabulary.tokens[int(members[0])] or b"")[reached.depth :]:
                target = None if target is None else target.step(byte)
            if target is not None:
                out.append((target, members))
        return out

    def within(self, position: Position, budget: int, planned: int) -> Mask:
        """The mask where a complete text must fit into `budget` tokens; `planned` (or -1) is legal in any
        case.
        """
        key = (position, budget, planned)
        found = self._tight.get(key)
        if found is None:
            if len(self._tight) > MOST_MASKS:
                self._tight.clear()
            priced = self.priced(position)
            mask: Mask = np.zeros(self.vocabulary.size, np.bool_)
            mask[priced.ids[priced.rest < budget]] = True
            if planned >= 0:
                mask[planned] = True
            if position.accepting:
                mask[self.vocabulary.ends] = True
            found = self._tight[key] = self._shared(mask)
        return found

    def forced(self, position: Position, last: int | None) -> tuple[int, ...]:
        """Canonical ids of the run that must follow, its unsure end chopped off."""
        return self._runs.after(position, last)
