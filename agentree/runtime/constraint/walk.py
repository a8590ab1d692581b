"""The tokens that are legal at a position, by where they lead: as many at once as can be."""

from dataclasses import dataclass

import numpy as np

from agentree.runtime.constraint.class_trie import MOST_CLASSES, ClassTrie
from agentree.runtime.constraint.items import Inside, inside, whole
from agentree.runtime.constraint.positions import Position
from agentree.runtime.constraint.vocabulary import Ids, Mask, Trie

FEW = 4000
"""Tokens that are walked one by one rather than by their classes."""


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
            target = after.get(byte) or here.step(byte)
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
    if body is None or legal < FEW or len(body.text.automaton.classes) > MOST_CLASSES:
        return None
    if body.loops and body.room >= trie.longest:
        looping = (trie.used(body.text.automaton.classes) & ~body.loops) == 0
        if 2 * np.count_nonzero(looping) > legal:
            return [
                Reached(start, trie.clean[looping], trie.lengths[looping]),
                *_beside(trie, start, ~looping),
            ]
    automaton = body.text.automaton
    tree = trie.by_class(automaton.classes, automaton.alive)
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
