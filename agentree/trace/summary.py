"""What remains to be said when a trace is over: the figures of the whole, in words."""

from agentree.trace.state import Picture
from agentree.trace.text import count, duration, one_line, percent, plural

_MISSES = 3
"""Cache misses that a summary lists with their reasons: those that cost most."""


def facts(picture: Picture, *, output: bool) -> list[tuple[str, str, str]]:
    """(name, figure, remark) of each fact; `output` to list the runs' outputs too."""
    totals = picture.totals
    out: list[tuple[str, str, str]] = []
    if picture.generations:
        hit, asked = picture.hit_rate()
        out += [
            (
                "hit rate",
                percent(hit, asked),
                f"{count(hit)} of {count(asked)} prompt tokens came from the cache",
            ),
            (
                "forced tokens",
                count(totals.forced),
                f"{percent(totals.forced, totals.output)} of {count(totals.output)} output tokens",
            ),
            (
                "forward passes",
                count(picture.passes),
                f"{picture.mean_rate():.1f} tokens/s over {plural(picture.generations, 'generation')}",
            ),
        ]
    calls = [call for _, call in picture.calls()]
    if calls:
        failed = sum(call.status == "failed" for call in calls)
        out.append(("tool calls", count(len(calls)), f"{failed} failed" if failed else "none failed"))
    ready = f"model ready {duration(picture.model.seconds)} after its loading began" if picture.model else ""
    out.append(("wall time", duration(picture.seconds), ready))
    out += _pressure(picture)
    for run in picture.runs.values():
        if output and run.output:
            out.append(("output", one_line(run.output, 500), ""))
    missed = [
        (branch.tokens.computed, picture.label(run, branch.path), branch.miss)
        for run in picture.runs.values()
        for branch in run.root.walk()
        if branch.miss
    ]
    missed.sort(key=lambda miss: -miss[0])
    out += [("miss", one_line(name, 60), one_line(miss)) for _, name, miss in missed[:_MISSES]]
    if len(missed) > _MISSES:
        out.append(("miss", f"{len(missed) - _MISSES} more", "smaller ones"))
    return out


def _pressure(picture: Picture) -> list[tuple[str, str, str]]:
    pressure = picture.pressure
    out: list[tuple[str, str, str]] = []
    if pressure.evicted:
        out.append(("evicted", count(pressure.evicted), "tokens, to make room"))
    if pressure.revoked:
        out.append(
            ("revoked", count(pressure.revoked), "tokens under lease: their agents compute them again")
        )
    if pressure.preempted:
        out.append(("preempted", count(pressure.preempted), "requests, resumed later"))
    if pressure.dropped:
        remark = "the figures above are too low" if pressure.facts else "progress only: no figure is too low"
        out.append(("events lost", count(pressure.dropped), remark))
    return out
