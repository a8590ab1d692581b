"""Which tokens are legal where: masks per position, worked out when first asked for and shared.

A token is legal if its bytes are and if from where it leads a complete text can still be spelled within the
budget. While the budget is larger than the worst shortest rest in bytes, it rejects nothing and the mask
depends on the position alone. Below, each token is held against the number of tokens that the shortest
rest from its target takes.
"""

from dataclasses import dataclass

import numpy as np

from agentree.errors import ConstraintError
from agentree.runtime.constraint.machines import Body
from agentree.runtime.constraint.positions import Position, Positions
from agentree.runtime.constraint.vocabulary import Ids, Mask, Trie, Vocabulary

MOST_MASKS = 20_000
LOOK_BACK = 4
"""Tokens at the end of a forced run that are checked for a longer token across its end."""


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
        self._runs: dict[tuple[Position, int | None], tuple[int, ...]] = {}
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
        return found

    def _work_out(self, position: Position) -> Legal:
        vocabulary = self.vocabulary
        mask: Mask = np.zeros(vocabulary.size, np.bool_)
        worst = 0
        for target, ids, more in self._targets(position):
            if target.w.translate(None, vocabulary.spellable) and vocabulary.spell(target.w) is None:
                continue
            worst = max(worst, len(target.w) + more)
            mask[ids] = True
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

    def _targets(self, position: Position) -> list[tuple[Position, Ids | list[int], int]]:
        """Legal tokens by where they lead, and how many tokens more than from there a text may take."""
        if len(position.nodes) == 1:
            (node,) = position.nodes
            body = node.machine.body(node.state)
            if body is not None and body.place == 0 and body.text.sinks[body.state]:
                return self._inside(position, body) + walk(self.vocabulary.unclean, position)
        return walk(self.vocabulary.trie, position)

    def _inside(self, position: Position, body: Body) -> list[tuple[Position, Ids | list[int], int]]:
        """Tokens that stay inside a string where every character is legal, by their number of code points."""
        ids, lengths = self.vocabulary.clean
        high: int | None = body.text.high
        room = len(ids)
        if high is not None:
            room = int(np.searchsorted(lengths, high - body.count, "right"))
        out: list[tuple[Position, Ids | list[int], int]] = []
        start = 0
        while start < room:
            stop = min(int(np.searchsorted(lengths, int(lengths[start]), "right")), room)
            target: Position | None = position
            for byte in self.vocabulary.tokens[int(ids[start])] or b"":
                target = None if target is None else target.step(byte)
            if target is not None:
                # Where the text is kept, another token may lead to one that is taken: a character more tells.
                out.append((target, ids[start:stop], 1 if body.kept else 0))
            start = stop
        return out

    def priced(self, position: Position) -> Priced:
        """Legal tokens with what a complete text then takes."""
        found = self._priced.get(position)
        if found is None:
            if len(self._priced) > MOST_MASKS // 10:
                self._priced.clear()
            ids: list[Ids] = []
            rest: list[Ids] = []
            for target, members, more in self._targets(position):
                spelled = self.vocabulary.spell(target.w)
                if spelled is not None:
                    ids.append(np.asarray(members, np.int32))
                    rest.append(np.full(len(members), len(spelled) + more, np.int32))
            none = np.zeros(0, np.int32)
            found = Priced(np.concatenate(ids) if ids else none, np.concatenate(rest) if rest else none)
            self._priced[position] = found
        return found

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

    # ------------------------------------------------------------------ forced runs

    def forced(self, position: Position, last: int | None) -> tuple[int, ...]:
        """Canonical ids of the run that must follow, its unsure end chopped off."""
        run, _ = position.forced()
        if not run:
            return ()
        key = (position, last)
        found = self._runs.get(key)
        if found is None:
            if len(self._runs) > MOST_MASKS:
                self._runs.clear()
            found = self._runs[key] = self._force(position, last)
        return found

    def _force(self, position: Position, last: int | None) -> tuple[int, ...]:
        vocabulary = self.vocabulary
        run, _ = position.forced()
        run = run[: _whole_characters(run)]
        if not run:
            return ()
        ids: list[int] = []
        before = vocabulary.tokens[last] if last is not None and 0 <= last < vocabulary.size else None
        if before and _decodes(before + run):
            together = vocabulary.encode(before + run)
            if together and together[0] == last:
                ids = together[1:]
        if not ids and _decodes(run):
            ids = vocabulary.encode(run)
        end: Position | None = position
        for byte in b"".join(vocabulary.tokens[i] or b"" for i in ids):
            assert end is not None
            end = end.step(byte)
        if not ids or end is None:
            return ()
        return tuple(self._chopped(ids, end))

    def _chopped(self, ids: list[int], end: Position) -> list[int]:
        """Without the tokens that a longer one could replace, once it is known what follows."""
        vocabulary = self.vocabulary
        tail = b"".join(vocabulary.tokens[i] or b"" for i in ids[-LOOK_BACK:])[-vocabulary.longest :]
        for start in range(len(tail)):
            place = vocabulary.trie.find(tail[start:])
            if place >= 0 and _extends(vocabulary.trie, place, end):
                drop = len(tail) - start
                while drop > 0:
                    drop -= len(vocabulary.tokens[ids.pop()] or b"")
                break
        return ids


def walk(trie: Trie, position: Position) -> list[tuple[Position, Ids | list[int], int]]:
    """The tokens of a trie that are legal at a position, by where they lead."""
    out: dict[Position, list[int]] = {}
    all_kids, all_ids = trie.kids, trie.ids
    pending = [(position, 0)]
    while pending:
        here, place = pending.pop()
        kids = all_kids[place]
        after = here.after
        pairs = [(b, kids[b]) for b in here.legal() if b in kids] if len(kids) > 16 else kids.items()
        for byte, child in pairs:
            target = after[byte] if byte in after else here.step(byte)
            if target is None:
                continue
            ids = all_ids[child]
            if ids:
                out.setdefault(target, []).extend(ids)
            if all_kids[child]:
                pending.append((target, child))
    return [(target, ids, 0) for target, ids in out.items()]


def _extends(trie: Trie, place: int, position: Position) -> bool:
    """Whether some token goes on from `place` with bytes that are legal at `position`."""
    pending = [(position, place)]
    while pending:
        here, at = pending.pop()
        for byte, child in trie.kids[at].items():
            target = here.step(byte)
            if target is not None:
                if trie.ids[child]:
                    return True
                pending.append((target, child))
    return False


def _decodes(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _whole_characters(text: bytes) -> int:
    """Length without an unfinished character at the end."""
    for back in range(1, min(4, len(text)) + 1):
        byte = text[-back]
        if byte & 0xC0 != 0x80:
            size = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(text) if size <= back else len(text) - back
    return len(text)
