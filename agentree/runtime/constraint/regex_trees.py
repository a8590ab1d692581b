"""What a regular expression says, as a tree."""

from dataclasses import dataclass

from agentree.runtime.constraint.charset import Ranges


@dataclass(frozen=True)
class Chars:
    """One character of a set."""

    ranges: Ranges


@dataclass(frozen=True)
class Sequence:
    """One after the other."""

    items: tuple["Tree", ...]


@dataclass(frozen=True)
class Alternatives:
    """One of them."""

    items: tuple["Tree", ...]


@dataclass(frozen=True)
class Repeat:
    """`low` to `high` times."""

    item: "Tree"
    low: int
    high: int | None


@dataclass(frozen=True)
class Anchor:
    """Start or end of the text."""

    start: bool
    at: int


@dataclass(frozen=True)
class Look:
    """A look-ahead."""

    item: "Tree"
    negative: bool
    at: int


Tree = Chars | Sequence | Alternatives | Repeat | Anchor | Look


def anchored(tree: Tree) -> bool:
    """Whether it speaks of the start of the text."""
    if isinstance(tree, Anchor):
        return tree.start
    if isinstance(tree, Sequence | Alternatives):
        return any(anchored(i) for i in tree.items)
    return not isinstance(tree, Chars) and anchored(tree.item)


def pure(tree: Tree) -> bool:
    """Whether it has neither anchors nor look-aheads."""
    if isinstance(tree, Anchor | Look):
        return False
    if isinstance(tree, Sequence | Alternatives):
        return all(pure(i) for i in tree.items)
    return isinstance(tree, Chars) or pure(tree.item)


def items_of(tree: Tree) -> tuple[Tree, ...]:
    """Its members in a row."""
    return tree.items if isinstance(tree, Sequence) else (tree,)


def place_of(tree: Tree) -> int:
    """Offset in the pattern of its first anchor or look-ahead."""
    if isinstance(tree, Anchor | Look):
        return tree.at
    if isinstance(tree, Sequence | Alternatives):
        return next((place_of(i) for i in tree.items if not pure(i)), 0)
    return 0 if isinstance(tree, Chars) else place_of(tree.item)
