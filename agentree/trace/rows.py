"""The picture as rows of a tree, cut to what fits: which paths and tool calls are shown."""

from collections.abc import Iterator
from dataclasses import dataclass

from agentree.trace.state import Picture
from agentree.trace.tree import Branch, Call, RunView


@dataclass
class Row:
    """One line of the tree: a run's title, a branch, or a tool call below its branch."""

    item: RunView | Branch | Call
    parent: int
    """Index of the row it hangs under, -1 for a title."""
    touched: int
    """Sequence number of the last event about it."""
    guides: tuple[bool, ...] = ()
    """Per level from the outermost, whether more siblings follow below; the last one is the row's own."""


def _rows_below(branch: Branch, parent: int, out: list[Row]) -> None:
    out += [Row(call, parent, branch.touched) for call in branch.calls]
    for child in branch.ordered():
        out.append(Row(child, parent, child.touched))
        _rows_below(child, len(out) - 1, out)


def all_rows(picture: Picture) -> list[Row]:
    """Every row, top to bottom, without guides."""
    out: list[Row] = []
    for run in picture.runs.values():
        out.append(Row(run, -1, run.root.touched))
        _rows_below(run.root, len(out) - 1, out)
    return out


def _upward(rows: list[Row], index: int) -> Iterator[int]:
    while index >= 0:
        yield index
        index = rows[index].parent


def fitting(picture: Picture, limit: int) -> tuple[list[Row], int]:
    """At most `limit` rows with guides, and how many were left out; what runs or ran last is kept."""
    rows = all_rows(picture)
    chosen = set(range(len(rows)))
    if len(rows) > limit:
        chosen = set[int]()
        for index in sorted(
            range(len(rows)), key=lambda i: (rows[i].item.status != "running", -rows[i].touched, -i)
        ):
            wanted = chosen.union(_upward(rows, index))
            if len(wanted) <= limit:
                chosen = wanted
            if len(chosen) == limit:
                break
    last_child = {rows[index].parent: index for index in sorted(chosen)}
    for index in sorted(chosen):
        row = rows[index]
        if row.parent >= 0:
            row.guides = (*rows[row.parent].guides, last_child[row.parent] != index)
    return [rows[index] for index in sorted(chosen)], len(rows) - len(chosen)
