"""What is said above the tree: model, hit rate and speed over time, the pool, and what it took away."""

from agentree.events import Evicted, LeaseRevoked, ModelLoading, PoolState
from agentree.trace.glyphs import COLOURED, Glyphs, clip, share_bar, sparkline
from agentree.trace.line import Line
from agentree.trace.state import Loss, Picture
from agentree.trace.text import amount, count, duration, escape, percent

_SPARK = 16
"""Cells of a sparkline, at most."""

_DOING = {
    "fetch": "fetching",
    "unpack": "unpacking",
    "verify": "checking",
    "convert": "converting",
    "load": "loading",
}


class Figures:
    """Figures of a picture at one moment, in seconds since the epoch."""

    def __init__(self, picture: Picture, width: int, *, now: float, glyphs: Glyphs = COLOURED) -> None:
        self.picture = picture
        self.width = width
        self.now = now
        self.glyphs = glyphs

    def lines(self, *, losses: int = 0) -> list[Line]:
        """Two to five lines, and as many of the last losses as are asked for."""
        picture = self.picture
        lines = [self._title()]
        if picture.loading:
            lines.append(self._loading(picture.loading))
        if picture.generations or picture.writing:
            lines.append(self._rates())
        if picture.pool:
            lines.append(self._pool(picture.pool))
        lost = self._pressure()
        return [*lines, *([lost] if lost else []), *self._losses(losses)]

    def spinner(self) -> str:
        """What says that something goes on."""
        return self.glyphs.spinner[int(self.now * 8) % len(self.glyphs.spinner)]

    def _title(self) -> Line:
        model, dot = self.picture.model, self.glyphs.dot
        line = Line().append("agentree", "bold green")
        if model:
            line.append("  ").append(clip(model.model, self.width // 2 - 8, self.glyphs), "bold")
            how = f"{dot}{escape(model.device)}{dot}{escape(model.weights)}"
            line.append(clip(how, self.width - line.cells - 11, self.glyphs), "dim")
        if not self.picture.began:
            line.append("  starting ", "dim").append(self.spinner(), "bold cyan")
        began = self.picture.began
        spent = duration(max(self.now - began, 0)) if began else ""
        return line.append(" ").pad(self.width - len(spent)).append(spent, "dim")

    def _loading(self, event: ModelLoading) -> Line:
        doing = _DOING[event.stage]
        name = clip(event.model, self.width // 2 - 14, self.glyphs)
        line = Line().append(self.spinner() + " ", "bold cyan").append(f"{doing} ", "dim")
        line.append(name, "bold").append("  ")
        figure = amount(event.done, event.total, event.unit) if event.done or event.total else "..."
        room = self.width - line.cells - len(figure) - 2
        if event.total and room > 8:
            done = min(event.done, event.total)
            line.add(share_bar(done, event.total, min(room, 40), "green", self.glyphs)).append("  ")
        return line.append(figure)

    def _rates(self) -> Line:
        """Hit rate and speed now, and both from the first generation on."""
        picture, dot = self.picture, self.glyphs.dot
        cells = min((self.width - 49) // 2, _SPARK)
        seconds, sums = picture.history.cells(cells, self.now)
        hits = [cached / prompt if prompt else None for _, cached, prompt in sums]
        rates = [output / seconds for output, _, _ in sums]
        line = Line().append("hit rate ", "dim").append(f"{percent(*picture.hit_rate()):>5} ", "bold")
        line.add(sparkline(hits, 1.0, "blue", self.glyphs))
        line.append(dot, "dim").append(f"{picture.rate(self.now):.0f} tokens/s ", "bold")
        line.add(sparkline(rates, max(rates, default=0.0), "magenta", self.glyphs))
        line.append(dot, "dim").append(percent(picture.totals.forced, picture.totals.output), "bold")
        return line.append(" forced", "dim")

    def _pool(self, pool: PoolState) -> Line:
        dot = self.glyphs.dot
        used = pool.pool - pool.free
        line = Line().append("pool     ", "dim").append(f"{percent(used, pool.pool):>5} ", "bold")
        line.add(share_bar(used, pool.pool, 12, "green", self.glyphs))
        line.append(f"{dot}{count(used)} of {count(pool.pool)} tokens", "dim")
        if pool.leased:
            line.append(f"{dot}{count(pool.leased)} leased", "dim")
        if pool.running or pool.waiting:
            line.append(f"{dot}{pool.running} running", "dim")
        if pool.waiting:
            line.append(f", {pool.waiting} waiting", "yellow")
        return line

    def _pressure(self) -> Line | None:
        pressure = self.picture.pressure
        facts = [
            (pressure.evicted, f"{count(pressure.evicted)} tokens evicted"),
            (pressure.revoked, f"{count(pressure.revoked)} leased tokens revoked"),
            (pressure.preempted, f"{pressure.preempted} preempted"),
            (pressure.dropped, f"{count(pressure.dropped)} events lost"),
        ]
        said = [words for number, words in facts if number]
        return Line(self.glyphs.dot.join(said), "yellow") if said else None

    def _losses(self, most: int) -> list[Line]:
        latest = list(self.picture.pressure.latest)[::-1][:most]
        return [self._loss(event) for event in latest]

    def _loss(self, event: Loss) -> Line:
        ago = f"{duration(max(self.now - event.time, 0))} ago"
        line = Line().append(f"{ago:>14}  ", "dim")
        who = self.picture.named(event.run, event.path)
        match event:
            case Evicted():
                said = f"{count(event.tokens)} tokens evicted to make room for {who}"
            case LeaseRevoked():
                owner = self.picture.owner(event.owner)
                said = f"lease of {owner} revoked for {who}: {count(event.tokens)} tokens"
            case _:
                said = f"{who} preempted: {count(event.tokens)} tokens to compute again"
        return line.append(clip(said, self.width - line.cells, self.glyphs), "yellow")
