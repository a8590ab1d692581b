"""The picture as rows of a tree, folded to what fits: agents first, and nobody's tokens are left out."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from agentree.trace.state import Picture
from agentree.trace.tree import Branch, Call, RunView, Status, Tokens


@dataclass
class Rest:
    """Siblings that share a row because there is no room for each."""

    items: list[RunView | Branch | Call] = field(default_factory=list[RunView | Branch | Call])

    def sum(self, known: dict[Branch, Tokens] | None = None) -> Tokens:
        """Their tokens, with all below them; `known` keeps what was added up before."""
        known = {} if known is None else known
        total = Tokens()
        for item in self.items:
            if isinstance(item, RunView):
                total.add(item.root.sum(known))
            elif isinstance(item, Branch):
                total.add(item.sum(known))
        return total

    def statuses(self) -> Counter[Status]:
        """How many of them are in which state."""
        return Counter(status_of(item) for item in self.items)


@dataclass
class Row:
    """One line of the tree: a run's title, a branch, a tool call below its branch, or the rest of these."""

    item: RunView | Branch | Call | Rest
    parent: int
    """Index of the row it hangs under, -1 for a title."""
    touched: int = 0
    """Sequence number of the last event about it."""
    depth: int = 0
    agents: int = 0
    """How many branches of forks it is below of."""
    guides: tuple[bool, ...] = ()
    """Per level from the outermost, whether more siblings follow below; the last one is the row's own."""
    folded: bool = False
    """What is below it is counted in it, and has no rows."""
    kids: list[int] = field(default_factory=list[int])


def status_of(item: RunView | Branch | Call) -> Status:
    """What its mark says."""
    return item.status if isinstance(item, Call) else item.shown_status


def all_rows(picture: Picture) -> list[Row]:
    """Every row, top to bottom, without guides."""
    out: list[Row] = []
    for run in picture.runs.values():
        out.append(Row(run, -1, run.root.touched))
        _add_below(run.root, len(out) - 1, out)
    return out


def _add_below(branch: Branch, parent: int, out: list[Row]) -> None:
    def add(item: Branch | Call, touched: int) -> int:
        above = out[parent]
        out.append(Row(item, parent, touched, above.depth + 1, above.agents + _is_agent(above)))
        above.kids.append(len(out) - 1)
        return len(out) - 1

    for call in branch.calls:
        add(call, branch.touched)
    for child in branch.ordered():
        index = add(child, child.touched)
        if not child.single:
            _add_below(child, index, out)


def fitting(rows: list[Row], limit: int) -> list[Row]:
    """Of all rows, at most `limit` with guides.

    Branches come before what is below them, and then what runs before the rest: what runs in its order, so
    that rows don't jump, of the rest what was touched last. A parent whose children have no rows is `folded`;
    where some have, the others share one row. A branch shows all its visits or none.
    """
    chosen = set(range(len(rows))) if len(rows) <= limit else _chosen(rows, limit)
    tops = [i for i, row in enumerate(rows) if row.parent < 0]
    return list(_laid_out(rows, tops, chosen, -1))


def _chosen(rows: list[Row], limit: int) -> set[int]:
    def priority(index: int) -> tuple[int, bool, int, int, int]:
        row = rows[index]
        assert not isinstance(row.item, Rest)
        if status_of(row.item) == "running":
            return row.agents, False, row.depth, index, 0
        return row.agents, True, row.depth, -row.touched, -index

    tops = sum(row.parent < 0 for row in rows)
    chosen: set[int] = set()
    shown = Counter[int]()
    used = 0
    for index in sorted(range(len(rows)), key=priority):
        if index in chosen:
            continue
        new = _wanted(rows, index, chosen)
        more = Counter(rows[i].parent for i in new)
        cost = len(new)
        for parent, number in more.items():
            kids = tops if parent < 0 else len(rows[parent].kids)
            cost += (shown[parent] + number < kids) - (0 < shown[parent] < kids)
        if used + cost <= limit:
            chosen.update(new)
            shown.update(more)
            used += cost
        elif used == limit:
            break
    return chosen


def _wanted(rows: list[Row], index: int, chosen: set[int]) -> set[int]:
    """A row with what it can't be without: those above it, and the siblings of a branch's visit."""
    wanted: set[int] = set()
    while index >= 0 and index not in chosen:
        parent = rows[index].parent
        wanted.update(rows[parent].kids if parent >= 0 and _is_agent(rows[parent]) else (index,))
        index = parent
    return wanted


def _is_agent(row: Row) -> bool:
    return isinstance(row.item, Branch) and row.item.agent


def _laid_out(rows: list[Row], siblings: list[int], chosen: set[int], parent: int) -> Iterator[Row]:
    hidden = [i for i in siblings if i not in chosen]
    if len(hidden) == 1:
        hidden = []  # it needs no more room than the row that would count it
    shown = [i for i in siblings if i not in hidden]
    left = [item for item in (rows[i].item for i in hidden) if not isinstance(item, Rest)]
    guides = rows[parent].guides if parent >= 0 else ()
    for number, i in enumerate(shown, 1):
        row = rows[i]
        if parent >= 0:
            row.guides = (*guides, number < len(shown) or bool(left))
        row.folded = _has_below(row.item) and chosen.isdisjoint(row.kids)
        yield row
        if not row.folded:
            yield from _laid_out(rows, row.kids, chosen, i)
    if left:
        yield Row(Rest(left), parent, guides=(*guides, False) if parent >= 0 else ())


def _has_below(item: RunView | Branch | Call | Rest) -> bool:
    branch = item.root if isinstance(item, RunView) else item
    return isinstance(branch, Branch) and bool(branch.children or branch.calls)
