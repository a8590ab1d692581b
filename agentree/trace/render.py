"""Draws a picture as lines: the tree with its token bars, and the figures above it.

Whatever users, tools or models said is text with controls escaped, never markup.
"""

from rich.cells import cell_len

from agentree.trace.figures import Figures
from agentree.trace.glyphs import ASCII, COLOURED, KINDS, Glyphs, bar, clip, wrap
from agentree.trace.line import Line
from agentree.trace.rows import Rest, Row, Rows
from agentree.trace.state import Picture
from agentree.trace.text import count, duration, escape, in_words
from agentree.trace.tree import Branch, Call, RunView, Status, Tokens, Writing

_STATUS_STYLE: dict[Status, str] = {
    "idle": "dim",
    "running": "bold",
    "done": "green",
    "failed": "bold red",
    "cancelled": "yellow",
    "waiting": "yellow",
    "limit": "yellow",
}
_WRITTEN_LINES = 4
"""Lines of generated text under the tree."""


class Drawing:
    """One drawing of a picture for a terminal of some width, at one moment (seconds since the epoch)."""

    def __init__(self, picture: Picture, width: int, *, now: float, glyphs: Glyphs = COLOURED) -> None:
        self.picture = picture
        self.width = max(width, 40)
        self.now = now
        self.glyphs = glyphs
        self.head = Figures(picture, self.width, now=now, glyphs=glyphs)
        self.columns = (
            (8, 10, 8, 9) if self.width >= 100 else (7, 9, 7, 8) if self.width >= 70 else (5, 5, 5, 5)
        )
        self.label = max(min(self.width * 5 // 16, 44), 14)
        self.bar = max(self.width - self.label - sum(self.columns) - 1, 0)

    def live(self, height: int) -> list[Line]:
        """The whole view in at most `height` lines: figures, tree, and what is being written."""
        head = self.head.lines(losses=0 if height < 16 else 2 if height < 28 else 4)
        room = max(height - len(head) - 2, 3)
        rows = Rows(self.picture)
        written = self.written(2 if rows.exceed(room - _WRITTEN_LINES - 1) else _WRITTEN_LINES)
        tree = self._lines(rows.fitting(max(room - len(written), 3))) if self.picture.runs else []
        return [line.cut(self.width) for line in [*head, *tree, *written][:height]]

    def tree(self, limit: int) -> list[Line]:
        """The radix tree as the agents see it: a header and at most `limit` rows."""
        return self._lines(Rows(self.picture).fitting(limit))

    def _lines(self, rows: list[Row]) -> list[Line]:
        longest = max((self._tokens(row).total for row in rows if self._measured(row)), default=0)
        return [Line(), self._header(), *(self._row(row, longest) for row in rows)]

    def _measured(self, row: Row) -> bool:
        """Whether a branch's row stands for generations: its own, or those below that have no rows."""
        item = row.item
        return isinstance(item, Branch) and (item.total if row.folded else item.tokens).total > 0

    def _header(self) -> Line:
        line = Line().append("tokens by path".ljust(self.label + self.bar), "dim")
        for (kind, colour), width in zip(KINDS, self.columns, strict=True):
            line.append(f"{kind[: width - 1]:>{width}}", colour)
        return line

    def _guides(self, row: Row) -> Line:
        branch, last, passing, nothing = self.glyphs.branch
        text = Line()
        for more in row.guides[:-1]:
            text.append(passing if more else nothing, "dim")
        if row.guides:
            text.append(branch if row.guides[-1] else last, "dim")
        return text

    def _mark(self, status: Status) -> tuple[str, str]:
        if status == "running":
            return self.head.spinner(), "bold cyan"
        return self.glyphs.marks[status], _STATUS_STYLE[status]

    def _tokens(self, row: Row) -> Tokens:
        match row.item:
            case Branch() if row.folded or not row.item.generations:
                return row.item.total
            case Branch():
                return row.item.tokens
            case RunView():
                return row.item.root.total
            case Rest():
                return row.item.sum()
            case Call():
                return Tokens()

    def _row(self, row: Row, longest: int) -> Line:
        line = self._guides(row)
        match row.item:
            case Call():
                return self._call(line, row.item)
            case Rest():
                return self._rest(line, row)
            case RunView():
                return self._title(line, row, row.item)
            case Branch():
                return self._branch(line, row, row.item, longest)

    def _title(self, line: Line, row: Row, item: RunView) -> Line:
        line.append(*self._mark(item.shown_status)).append(" ")
        line.append(clip(self.picture.label(item, ""), self.width // 3, self.glyphs), "bold")
        room = self.label + self.bar - line.cells - 2
        line.append("  ").append(clip(item.input, max(room, 0), self.glyphs), "dim italic")
        return self._numbers(line, self._tokens(row), strong=True)

    def _rest(self, line: Line, row: Row) -> Line:
        assert isinstance(row.item, Rest)
        states = row.item.statuses()
        each = ", ".join(f"{states[status]} {in_words(status)}" for status in _STATUS_STYLE if states[status])
        said = f": {each}" if len(states) > 1 else f", {in_words(next(iter(states)))}"
        room = self.label + self.bar - line.cells - 1
        line.append(clip(f"{self.glyphs.more} {len(row.item.items)} more{said}", room, self.glyphs), "dim")
        return self._numbers(line, self._tokens(row), strong=False)

    def _branch(self, line: Line, row: Row, item: Branch, longest: int) -> Line:
        mark, style = self._mark(item.shown_status)
        line.append(mark + " ", style)
        only = item.only_call() if row.folded else None
        if only is not None:
            line.append(clip(item.name, self.width // 4, self.glyphs)).append(" ")
            return self._call(line, only)
        times = f" ×{item.generations}" if item.generations > 1 else ""
        times = times.replace("×", "x") if self.glyphs is ASCII else times
        notes = self._doing(item) if row.folded else ""
        notes += self._forming(item.latest() or item if row.folded else item)
        notes += "".join(f" fork {n}" for n, _ in item.forks[-1:] if item.generations)
        room = self.label - line.cells - 1
        name = clip(item.name, max(room - len(times) - cell_len(escape(notes)), room // 2, 1), self.glyphs)
        line.append(name).append(times, "dim")
        line.append(clip(notes, max(self.label - line.cells - 1, 0), self.glyphs), "dim")
        line.append(" ").pad(self.label)
        tokens = self._tokens(row)
        if self._measured(row):
            line.add(bar(tokens, longest, self.bar - 1, self.glyphs))
        elif item.forks and not item.error:
            n, shared = item.forks[-1]
            line.append(clip(f"{n} share {count(shared)} tokens", self.bar - 1, self.glyphs), "dim")
        elif item.error:
            style = "red" if item.shown_status == "failed" else "yellow"
            line.append(clip(item.error, self.bar - 1, self.glyphs), style)
        return self._numbers(line, tokens, strong=self._measured(row))

    @staticmethod
    def _doing(item: Branch) -> str:
        """What a folded branch did last: the visit, or the tool that it called."""
        at = item.latest()
        if at is None or at.name.startswith("[") or (item.parent and at.name == item.parent.name):
            return ""
        return f" {at.calls[-1].tool}" if at.calls else f" {at.name}"

    def _forming(self, branch: Branch) -> str:
        """The tools whose calls it writes just now, each marked once its arguments are complete."""
        marks = {True: f" {self.glyphs.marks['done']}", False: ""}
        calls = [call.tool + marks[call.written] for call in branch.forming.values()]
        return f" {self.glyphs.arrow} {', '.join(calls)}" if calls else ""

    def _numbers(self, line: Line, tokens: Tokens, *, strong: bool) -> Line:
        line.pad(self.label + self.bar)
        parts = (tokens.cached, tokens.computed, tokens.forced, tokens.sampled)
        for part, (_, colour), width in zip(parts, KINDS, self.columns, strict=True):
            line.append(f"{count(part) if part else '':>{width}}", colour if strong else "dim")
        return line

    def _call(self, line: Line, call: Call) -> Line:
        mark, style = self._mark(call.status)
        line.append(mark + " ", style).append(clip(call.tool, 24, self.glyphs), "bold").append(" ")
        spent = f"  {duration(call.seconds)}" if call.status != "running" else ""
        room = self.width - line.cells - len(spent)
        arguments = escape(call.arguments)
        content = escape(call.content)
        result = f" {self.glyphs.arrow} "
        if call.status == "running":
            return line.append(clip(arguments, room, self.glyphs), "dim")
        need = cell_len(arguments) + cell_len(result) + cell_len(content)
        half = max(room // 2, room - cell_len(result) - cell_len(content))
        line.append(arguments if need <= room else clip(arguments, half, self.glyphs), "dim").append(
            result, "dim"
        )
        line.append(
            clip(content, self.width - line.cells - len(spent), self.glyphs),
            "red" if call.status == "failed" else "green",
        )
        return line.append(spent, "dim")

    def written(self, limit: int = _WRITTEN_LINES) -> list[Line]:
        """What running generations have written so far, or the last one did: the ends, a few lines."""
        latest = sorted(self.picture.writing.values(), key=lambda writing: writing.touched)[-limit:]
        shown = sorted(latest, key=lambda writing: writing.request)
        if not shown and self.picture.last:
            shown = [self.picture.last]
        if not shown:
            return []
        each = limit // len(shown)
        return [Line(), *(line for writing in shown for line in self._written(writing, each))]

    def _written(self, writing: Writing, limit: int) -> list[Line]:
        title = clip(writing.name, self.width // 3, self.glyphs) + " "
        width = self.width - cell_len(title) - 2
        tail = escape(writing.text[-limit * width :], keep="\n")
        lines = [part for line in tail.split("\n") for part in wrap(line, width)]
        if not writing.text:
            lines = ["reading the prompt: " + count(writing.prompt_tokens) + " tokens"]
        style = "" if writing.text else "dim"
        shown = lines[-limit:]
        indent = " " * cell_len(title)
        return [
            Line()
            .append(title if i == 0 else indent, "dim")
            .append(self.glyphs.branch[2][0] + " ", "dim")
            .append(line, style)
            for i, line in enumerate(shown)
        ]
