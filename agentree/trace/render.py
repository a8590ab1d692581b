"""Draws a picture as lines of rich text: the tree with its token bars, and the figures above it.

Whatever users, tools or models said becomes `rich.text.Text` with controls escaped, never markup.
"""

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from agentree.events import ModelLoading, PoolState
from agentree.trace.glyphs import ASCII, COLOURED, KINDS, Glyphs, bar, clip, share_bar, wrap
from agentree.trace.rows import Row, fitting
from agentree.trace.state import Picture
from agentree.trace.text import amount, count, duration, escape, percent
from agentree.trace.tree import Branch, Call, Status, Tokens, Writing

_STATUS_STYLE: dict[Status, str] = {
    "idle": "dim",
    "running": "bold",
    "done": "green",
    "failed": "bold red",
    "cancelled": "yellow",
}
_WRITTEN_LINES = 4
"""Lines of generated text under the tree."""


class Drawing:
    """One drawing of a picture for a terminal of some width, at one moment (seconds since the epoch)."""

    def __init__(
        self,
        picture: Picture,
        width: int,
        *,
        now: float,
        since: float | None = None,
        glyphs: Glyphs = COLOURED,
    ) -> None:
        self.picture = picture
        self.width = max(width, 40)
        self.now = now
        self.since = picture.began if since is None else since
        self.glyphs = glyphs
        self.columns = (
            (8, 10, 8, 9) if self.width >= 100 else (7, 9, 7, 8) if self.width >= 70 else (5, 5, 5, 5)
        )
        self.label = max(min(self.width * 5 // 16, 44), 14)
        self.bar = max(self.width - self.label - sum(self.columns) - 1, 0)

    def live(self, height: int) -> list[Text]:
        """The whole view in at most `height` lines: figures, tree, and what is being written."""
        head = self.figures()
        written = self.written()
        room = max(height - len(head) - len(written) - 3, 3)
        tree = self.tree(room) if self.picture.runs else []
        lines = [*head, *tree, *written]
        for line in lines:
            line.truncate(self.width)
        return lines

    def figures(self) -> list[Text]:
        """Model, hit rate, speed and pool: two to four lines."""
        picture, dot = self.picture, self.glyphs.dot
        lines = [self._title()]
        if picture.loading:
            lines.append(self._loading(picture.loading))
        if picture.generations or picture.writing:
            hit, asked = picture.hit_rate()
            line = Text().append("hit rate ", "dim").append(f"{percent(hit, asked):>5} ", "bold")
            line.append_text(share_bar(hit, asked, 12, "blue", self.glyphs))
            line.append(dot, "dim").append(f"{picture.rate(self.now):.0f} tokens/s", "bold")
            line.append(dot, "dim").append(percent(picture.totals.forced, picture.totals.output), "bold")
            line.append(" of output forced", "dim")
            lines.append(line)
        if picture.pool:
            lines.append(self._pool(picture.pool))
        lost = self._pressure()
        return [*lines, lost] if lost else lines

    def _title(self) -> Text:
        model, dot = self.picture.model, self.glyphs.dot
        line = Text().append("agentree", "bold green")
        if model:
            line.append("  ").append(clip(model.model, self.width // 2 - 8, self.glyphs), "bold")
            how = f"{dot}{escape(model.device)}{dot}{escape(model.weights)}"
            line.append(clip(how, self.width - line.cell_len - 11, self.glyphs), "dim")
        if not self.picture.began:
            line.append("  starting ", "dim").append(*self._mark("running"))
        spent = duration(max(self.now - self.since, 0)) if self.since else ""
        return line.append(" " * max(self.width - line.cell_len - len(spent), 1)).append(spent, "dim")

    def _loading(self, event: ModelLoading) -> Text:
        doing = {"fetch": "fetching", "convert": "converting", "load": "loading"}[event.stage]
        mark, style = self._mark("running")
        name = clip(event.model, self.width // 2 - 14, self.glyphs)
        line = Text().append(mark + " ", style).append(f"{doing} ", "dim").append(name, "bold").append("  ")
        figure = amount(event.done, event.total, event.unit) if event.done or event.total else "..."
        room = self.width - line.cell_len - len(figure) - 2
        if event.total and room > 8:
            done = min(event.done, event.total)
            line.append_text(share_bar(done, event.total, min(room, 40), "green", self.glyphs)).append("  ")
        return line.append(figure)

    def _pool(self, pool: PoolState) -> Text:
        dot = self.glyphs.dot
        used = pool.pool - pool.free
        line = Text().append("pool     ", "dim").append(f"{percent(used, pool.pool):>5} ", "bold")
        line.append_text(share_bar(used, pool.pool, 12, "green", self.glyphs))
        line.append(f"{dot}{count(used)} of {count(pool.pool)} tokens", "dim")
        if pool.leased:
            line.append(f"{dot}{count(pool.leased)} leased", "dim")
        if pool.running or pool.waiting:
            line.append(f"{dot}{pool.running} running", "dim")
        if pool.waiting:
            line.append(f", {pool.waiting} waiting", "yellow")
        return line

    def _pressure(self) -> Text | None:
        pressure = self.picture.pressure
        facts = [
            (pressure.evicted, f"{count(pressure.evicted)} tokens evicted"),
            (pressure.revoked, f"{count(pressure.revoked)} leased tokens revoked"),
            (pressure.preempted, f"{pressure.preempted} preempted"),
            (pressure.dropped, f"{count(pressure.dropped)} events lost"),
        ]
        said = [words for number, words in facts if number]
        return Text(self.glyphs.dot.join(said), "yellow") if said else None

    def tree(self, limit: int) -> list[Text]:
        """The radix tree as the agents see it: a header and at most `limit` rows."""
        rows, hidden = fitting(self.picture, limit)
        sizes = [self._tokens(row.item).total for row in rows if isinstance(row.item, Branch)]
        longest = max(sizes, default=0)
        lines = [Text(), self._header()]
        if hidden:
            lines.append(Text(f"{self.glyphs.more} {hidden} more rows", "dim"))
        return lines + [self._row(row, longest) for row in rows]

    def _header(self) -> Text:
        line = Text().append("tokens by path".ljust(self.label + self.bar), "dim")
        for (kind, colour), width in zip(KINDS, self.columns, strict=True):
            line.append(f"{kind[: width - 1]:>{width}}", colour)
        return line

    def _guides(self, row: Row) -> Text:
        branch, last, passing, nothing = self.glyphs.branch
        text = Text()
        for more in row.guides[:-1]:
            text.append(passing if more else nothing, "dim")
        if row.guides:
            text.append(branch if row.guides[-1] else last, "dim")
        return text

    def _mark(self, status: Status) -> tuple[str, str]:
        if status == "running":
            return self.glyphs.spinner[int(self.now * 8) % len(self.glyphs.spinner)], "bold cyan"
        return self.glyphs.marks[status], _STATUS_STYLE[status]

    @staticmethod
    def _tokens(branch: Branch) -> Tokens:
        return branch.tokens if branch.generations else branch.sum()

    def _row(self, row: Row, longest: int) -> Text:
        line = self._guides(row)
        item = row.item
        if isinstance(item, Call):
            return self._call(line, item)
        if not isinstance(item, Branch):
            line.append(*self._mark(item.shown_status)).append(" ")
            line.append(clip(self.picture.label(item, ""), self.width // 3, self.glyphs), "bold")
            room = self.label + self.bar - line.cell_len - 2
            line.append("  ").append(clip(item.input, max(room, 0), self.glyphs), "dim italic")
            return self._numbers(line, item.root.sum(), strong=True)
        mark, style = self._mark(item.shown_status)
        line.append(mark + " ", style)
        times = f" ×{item.generations}" if item.generations > 1 else ""
        times = times.replace("×", "x") if self.glyphs is ASCII else times
        forks = "".join(f" fork {n}" for n, _ in item.forks[-1:] if item.generations)
        name = clip(item.name, self.label - line.cell_len - len(times) - len(forks) - 1, self.glyphs)
        line.append(name).append(times, "dim").append(forks, "dim")
        line.append(" " * max(self.label - line.cell_len, 1))
        tokens = self._tokens(item)
        if item.generations:
            line.append_text(bar(tokens, longest, self.bar - 1, self.glyphs))
        elif item.forks and not item.error:
            n, shared = item.forks[-1]
            line.append(clip(f"{n} share {count(shared)} tokens", self.bar - 1, self.glyphs), "dim")
        elif item.error:
            line.append(clip(item.error, self.bar - 1, self.glyphs), "red")
        return self._numbers(line, tokens, strong=bool(item.generations))

    def _numbers(self, line: Text, tokens: Tokens, *, strong: bool) -> Text:
        line.append(" " * max(self.label + self.bar - line.cell_len, 0))
        parts = (tokens.cached, tokens.computed, tokens.forced, tokens.sampled)
        for part, (_, colour), width in zip(parts, KINDS, self.columns, strict=True):
            line.append(f"{count(part) if part else '':>{width}}", Style.parse(colour if strong else "dim"))
        return line

    def _call(self, line: Text, call: Call) -> Text:
        mark, style = self._mark(call.status)
        line.append(mark + " ", style).append(clip(call.tool, 24, self.glyphs), "bold").append(" ")
        spent = f"  {duration(call.seconds)}" if call.status != "running" else ""
        room = self.width - line.cell_len - len(spent)
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
            clip(content, self.width - line.cell_len - len(spent), self.glyphs),
            "red" if call.status == "failed" else "green",
        )
        return line.append(spent, "dim")

    def written(self) -> list[Text]:
        """What running generations have written so far, or the last one did: the ends, a few lines."""
        latest = sorted(self.picture.writing.values(), key=lambda writing: writing.touched)[-_WRITTEN_LINES:]
        shown = sorted(latest, key=lambda writing: writing.request)
        if not shown and self.picture.last:
            shown = [self.picture.last]
        if not shown:
            return []
        each = _WRITTEN_LINES // len(shown)
        return [Text(), *(line for writing in shown for line in self._written(writing, each))]

    def _written(self, writing: Writing, limit: int) -> list[Text]:
        title = clip(writing.path or "text", self.width // 3, self.glyphs) + " "
        width = self.width - cell_len(title) - 2
        tail = escape(writing.text[-limit * width :], keep="\n")
        lines = [part for line in tail.split("\n") for part in wrap(line, width)]
        if not writing.text:
            lines = ["reading the prompt: " + count(writing.prompt_tokens) + " tokens"]
        style = "" if writing.text else "dim"
        shown = lines[-limit:]
        indent = " " * cell_len(title)
        return [
            Text()
            .append(title if i == 0 else indent, "dim")
            .append(self.glyphs.branch[2][0] + " ", "dim")
            .append(line, style)
            for i, line in enumerate(shown)
        ]
