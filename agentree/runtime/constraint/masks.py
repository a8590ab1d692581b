"""Which tokens are legal where: masks per position, worked out when first asked for and shared.

A token is legal if its bytes are and if from where it leads a complete text can still be spelled within the
budget. While the budget is larger than the worst shortest rest in bytes, it rejects nothing and the mask
depends on the position alone. Below, each token is held against the number of tokens that the shortest
rest from its target takes.
"""

from dataclasses import dataclass

import numpy as np

from agentree.errors import ConstraintError
from agentree.runtime.constraint.class_trie import MOST_CLASSES, ClassTrie
from agentree.runtime.constraint.items import Inside, inside, whole
from agentree.runtime.constraint.positions import Position, Positions
from agentree.runtime.constraint.vocabulary import Ids, Mask, Trie, Vocabulary

MOST_MASKS = 20_000
_TYPICAL = b'aetsi AT1"\\.,-}]:/('
"""Bytes that stand for what may follow where nearly anything may."""

_FEW = 4000
"""Tokens that are walked one by one rather than by their classes."""

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
        return found

    def _apart(self, reached: "Reached") -> list[tuple[Position, Ids | list[int]]]:
        """Tokens by where they lead, where they stay inside one string: by their number of code points."""
        if reached.lengths is None:
            return [(reached.position, reached.ids)]
        out: list[tuple[Position, Ids | list[int]]] = []
        ids = np.asarray(reached.ids, np.int32)
        for length in np.unique(reached.lengths).tolist():
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
        left = b""
        before = vocabulary.tokens[last] if last is not None and 0 <= last < vocabulary.size else None
        if before and _decodes(before + run):
            together = vocabulary.encode(before + run)
            if together and together[0] == last:
                ids, left = together[1:], before
        if not ids and _decodes(run):
            ids = vocabulary.encode(run)
        end: Position | None = position
        for byte in b"".join(vocabulary.tokens[i] or b"" for i in ids):
            assert end is not None
            end = end.step(byte)
        if not ids or end is None:
            return ()
        return tuple(self._steady(self._chopped(ids, end), left + run, end, 1 if left else 0))

    def _steady(self, ids: list[int], text: bytes, end: Position, skip: int) -> list[int]:
        """As far as the tokenizer splits `text` alike before whatever may follow it.

        A merge across the end can undo an earlier one, although no single token crosses the end.
        """
        vocabulary = self.vocabulary
        following = end.legal()
        if len(following) > len(_TYPICAL):
            following = bytes(b for b in _TYPICAL if b in following)
        for byte in following:
            after = end.step(byte)
            if not ids or after is None:
                break
            longer = text + bytes((byte,)) + after.forced()[0]
            longer = longer[: _whole_characters(longer)]
            other = vocabulary.encode(longer)[skip:] if _decodes(longer) else ids
            same = 0
            while same < min(len(ids), len(other)) and ids[same] == other[same]:
                same += 1
            ids = ids[:same]
        return ids

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


@dataclass(frozen=True)
class Reached:
    """Tokens that lead to one position, or (`lengths` given) that go on from it inside a string.

    `lengths` are their code points, `depth` the bytes before the position. `kept`: 1 where the text of the
    string decides what may follow, so that one more character may be needed than from the position itself.
    """

    position: Position
    ids: Ids | list[int]
    lengths: Ids | None = None
    depth: int = 0
    kept: int = 0


def walk(trie: Trie, start: Position) -> list[Reached]:
    """The tokens that are legal at a position, by where they lead.

    Where every character is legal and changes nothing but the length, all clean tokens are taken at once.
    """
    exact: dict[Position | Inside, list[int]] = {}
    out: list[Reached] = []
    all_kids, soiled = trie.kids, trie.soiled
    # (position, place in the trie, bytes and characters so far, whether the clean tokens are taken already)
    pending: list[tuple[Position | Inside, int, int, int, bool]] = [(inside(start) or start, 0, 0, 0, False)]
    while pending:
        here, place, depth, characters, taken = pending.pop()
        if not taken and trie.last[place] - trie.first[place] > 8:
            free = here.free_body()
            if free is not None and (
                free[1].free or trie.within(place, free[1].text.automaton.classes, free[1].loops)
            ):
                body_at, body = free
                # Clean tokens that end at the place itself come first, and are not part of what goes on
                # from it.
                first = trie.first[place] + len(trie.ids[place]) - len(trie.others[place])
                ids = trie.clean[first : trie.last[place]]
                lengths = trie.lengths[first : trie.last[place]] - characters
                if body.room < trie.longest:
                    fits = lengths <= body.room
                    ids, lengths = ids[fits], lengths[fits]
                dead = _dead_ends(trie, place, whole(body_at), body.beside)
                if dead:
                    lives = ~np.isin(ids, dead)
                    ids, lengths = ids[lives], lengths[lives]
                if len(ids):
                    kept = body.taken is not None or isinstance(body_at, Inside)
                    out.append(Reached(whole(body_at), ids, lengths, depth, int(kept)))
                taken = body.room >= trie.longest or here.single
            elif place == 0 and isinstance(here, Position):
                alike = _alike(trie, here)
                taken = alike is not None
                out += alike or ()
        kids = all_kids[place]
        after = here.after
        if taken:
            pairs = [(b, child) for b, child in kids.items() if soiled[child]]
        elif len(kids) > 16:
            pairs = [(b, kids[b]) for b in here.legal() if b in kids]
        else:
            pairs = list(kids.items())
        for byte, child in pairs:
            target = after[byte] if byte in after else here.step(byte)
            if target is None:
                continue
            ids_here = trie.others[child] if taken else trie.ids[child]
            if ids_here:
                exact.setdefault(target, []).extend(ids_here)
            if all_kids[child]:
                pending.append((target, child, depth + 1, characters + (byte & 0xC0 != 0x80), taken))
    return out + [Reached(whole(target), ids) for target, ids in exact.items()]


def _alike(trie: Trie, start: Position) -> list[Reached] | None:
    """The clean tokens that are legal inside a string, many at once.

    None where the position is not one place inside one string, where the text itself matters, or where few
    tokens are legal anyway.
    """
    body = start.body()
    legal = sum(trie.last[k] - trie.first[k] for b in start.legal() if (k := trie.kids[0].get(b)))
    if body is None or legal < _FEW or len(body.text.automaton.classes) > MOST_CLASSES:
        return None
    if body.loops and body.room >= trie.longest:
        looping = (trie.used(body.text.automaton.classes) & ~body.loops) == 0
        if 2 * np.count_nonzero(looping) > legal:
            return [
                Reached(start, trie.clean[looping], trie.lengths[looping]),
                *_beside(trie, start, ~looping),
            ]
    tree = trie.by_class(body.text.automaton.classes)
    return None if tree is None else _by_class(start, tree)


def _beside(trie: Trie, start: Position, wanted: Mask) -> list[Reached]:
    """The legal ones of some clean tokens, by where they lead."""
    before = [0, *np.cumsum(wanted).tolist()]
    exact: dict[Position, list[int]] = {}
    pending = [(start, 0)]
    while pending:
        here, place = pending.pop()
        for byte, child in trie.kids[place].items():
            first, last = trie.first[child], trie.last[child]
            target = here.step(byte) if before[last] > before[first] else None
            if target is None:
                continue
            own = first + len(trie.ids[child]) - len(trie.others[child])
            if before[own] > before[first]:
                ids = trie.clean[first:own][wanted[first:own]]
                exact.setdefault(target, []).extend(int(i) for i in ids)
            if before[last] > before[own]:
                pending.append((target, child))
    return [Reached(target, ids) for target, ids in exact.items()]


def _by_class(start: Position, tree: ClassTrie) -> list[Reached]:
    """The legal clean tokens: those of the same classes of characters lead to the same place."""
    out: list[Reached] = []
    pending = [(start, 0)]
    while pending:
        here, place = pending.pop()
        for child in tree.kids[place].values():
            target: Position | None = here
            for byte in tree.via[child]:
                target = None if target is None else target.step(byte)
            if target is None:
                continue
            if len(tree.ids[child]):
                out.append(Reached(target, tree.ids[child]))
            if tree.kids[child]:
                pending.append((target, child))
    return out


def _dead_ends(trie: Trie, place: int, inside: Position, texts: list[bytes]) -> list[int]:
    """Tokens from `place` on along a text that the string must differ from, after which it can't any more."""
    out: list[int] = []
    for text in texts:
        here: Position | None = inside
        at = place
        for byte in text:
            at = trie.kids[at].get(byte, -1)
            if at < 0:
                break
            here = None if here is None else here.step(byte)
            if here is None:
                out.extend(trie.ids[at])
    return out


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
