"""The picture as rows of a tree, folded to what fits: agents first, and nobody's tokens are left out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agentree.trace.state import Picture
from agentree.trace.tree import Branch, Call, RunView, Status, Tokens


@dataclass
class Rest:
    """Siblings that share a row because there is no room for each."""

    items: list[RunView | Branch | Call] = field(default_factory=list[RunView | Branch | Call])

    def sum(self) -> Tokens:
        """Their tokens, with all below them."""
        total = Tokens()
        for item in self.items:
            if not isinstance(item, Call):
                total.add((item.root if isinstance(item, RunView) else item).total)
        return total

    def statuses(self) -> Counter[Status]:
        """How many of them are in which state."""
        return Counter(status_of(item) for item in self.items)


@dataclass(slots=True)
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


class Rows:
    """The rows of a picture at one moment, made level by level: those below branches of forks come later.

    A screen is often full before they are needed, and they are the most.
    """

    def __init__(self, picture: Picture) -> None:
        self.made: list[Row] = []
        """Parents come before what is below them."""
        self._level = 0
        """Where the last level begins."""
        self._agents: list[int] = []
        """Rows of branches of forks whose visits have no rows yet."""
        for run in picture.runs.values():
            self.made.append(Row(run, -1, run.root.touched))
            self._add_below(run.root, len(self.made) - 1)
        self._tops = [i for i, row in enumerate(self.made) if row.parent < 0]

    def all(self) -> list[Row]:
        """Every row, without guides."""
        while self._more():
            pass
        return self.made

    def exceed(self, limit: int) -> bool:
        """Whether there are more rows than that."""
        while len(self.made) <= limit and self._more():
            pass
        return len(self.made) > limit

    def fitting(self, limit: int) -> list[Row]:
        """At most `limit` rows from top to bottom, with guides.

        Branches come before what is below them, and then what runs before the rest: what runs in its order,
        so that rows don't jump, of the rest what was touched last. A parent whose children have no rows is
        `folded`; where some have, the others share one row. A branch shows all its visits or none.
        """
        chosen = self._chosen(limit) if self.exceed(limit) else set(range(len(self.made)))
        return list(self._laid_out(self._tops, chosen, -1))

    def _more(self) -> bool:
        """Make the next level's rows; False if there are none."""
        agents, self._agents = self._agents, []
        self._level = len(self.made)
        for index in agents:
            branch = self.made[index].item
            if isinstance(branch, Branch):
                self._add_below(branch, index)
        return len(self.made) > self._level

    def _add_below(self, branch: Branch, parent: int) -> None:
        above = self.made[parent]
        depth, agents = above.depth + 1, above.agents + branch.agent
        kids, made = above.kids, self.made
        for call in branch.calls:
            kids.append(len(made))
            made.append(Row(call, parent, branch.touched, depth, agents))
        for child in branch.ordered():
            index = len(made)
            kids.append(index)
            made.append(Row(child, parent, child.touched, depth, agents))
            if child.agent:
                if not child.single:
                    self._agents.append(index)
            else:
                self._add_below(child, index)

    def _chosen(self, limit: int) -> set[int]:
        chosen: set[int] = set()
        shown = Counter[int]()
        used, start = 0, 0
        while True:
            for index in sorted(range(start, len(self.made)), key=self._priority):
                if index in chosen:
                    continue
                new = self._wanted(index, chosen)
                more = Counter(self.made[i].parent for i in new)
                cost = len(new)
                for parent, number in more.items():
                    kids = len(self._tops if parent < 0 else self.made[parent].kids)
                    cost += (shown[parent] + number < kids) - (0 < shown[parent] < kids)
                if used + cost <= limit:
                    chosen.update(new)
                    shown.update(more)
                    used += cost
                elif used == limit:
                    return chosen
            start = len(self.made)
            if used == limit or not self._more():
                return chosen

    def _priority(self, index: int) -> tuple[int, bool, int, int, int]:
        row = self.made[index]
        assert not isinstance(row.item, Rest)
        if status_of(row.item) == "running":
            return row.agents, False, row.depth, index, 0
        return row.agents, True, row.depth, -row.touched, -index

    def _wanted(self, index: int, chosen: set[int]) -> set[int]:
        """A row with what it can't be without: those above it, and the siblings of a branch's visit."""
        wanted: set[int] = set()
        while index >= 0 and index not in chosen:
            parent = self.made[index].parent
            wanted.update(self.made[parent].kids if parent >= 0 and self._is_agent(parent) else (index,))
            index = parent
        return wanted

    def _is_agent(self, index: int) -> bool:
        item = self.made[index].item
        return isinstance(item, Branch) and item.agent

    def _laid_out(self, siblings: Sequence[int], chosen: set[int], parent: int) -> Iterator[Row]:
        hidden = [i for i in siblings if i not in chosen]
        if len(hidden) == 1:
            hidden = []  # it needs no more room than the row that would count it
        shown = [i for i in siblings if i in chosen] if hidden else siblings
        left = [item for item in (self.made[i].item for i in hidden) if not isinstance(item, Rest)]
        guides = self.made[parent].guides if parent >= 0 else ()
        for number, i in enumerate(shown, 1):
            row = self.made[i]
            if parent >= 0:
                row.guides = (*guides, number < len(shown) or bool(left))
            row.folded = _has_below(row.item) and chosen.isdisjoint(row.kids)
            yield row
            if not row.folded:
                yield from self._laid_out(row.kids, chosen, i)
        if left:
            yield Row(Rest(left), parent, guides=(*guides, False) if parent >= 0 else ())


def _has_below(item: RunView | Branch | Call | Rest) -> bool:
    branch = item.root if isinstance(item, RunView) else item
    return isinstance(branch, Branch) and bool(branch.children or branch.calls)
