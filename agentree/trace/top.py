"""Draws snapshots of running engines: pool, requests, queue, agents and tree, as lines of rich text."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from agentree.trace.glyphs import COLOURED, Glyphs, clip
from agentree.trace.text import count, duration, percent

Snapshot = dict[str, Any]

_POOL = (("locked", "magenta"), ("leased", "yellow"), ("cached", "blue"), ("free", "dim"))
"""Parts of the pool from the firmest hold to none, with their colours."""


def pool_parts(stats: dict[str, int]) -> dict[str, int]:
    """Slots by what it takes to get them: locked by requests, leased, only cached, free."""
    locked = stats["private"] + stats["locked"]
    return {
        "locked": locked,
        "leased": stats["idle"],
        "cached": stats["evictable"] - stats["idle"],
        "free": stats["free"],
    }


def lines(
    snapshot: Snapshot,
    before: Snapshot | None,
    *,
    now: float,
    width: int,
    height: int,
    glyphs: Glyphs = COLOURED,
) -> list[Text]:
    """One runtime in at most `height` lines; `before` is an earlier snapshot of it, for rates."""
    head = Text(clip(f"{snapshot['model']} on {snapshot['device']}", width - 30, glyphs), "bold")
    head.append(f"  pid {snapshot['pid']}, up {duration(now - snapshot['since'])}", "dim")
    if "stats" not in snapshot:
        return [head, Text("in a step that takes long: try again", "yellow")]
    stats: dict[str, int] = snapshot["stats"]
    out = [head, *_figures(stats, snapshot, before), *_pool(stats, width, glyphs)]
    sections = (
        ("running", stats["running"], [_request(r) for r in snapshot["running"]]),
        ("waiting", stats["waiting"], [_request(r) for r in snapshot["waiting"]]),
        ("agents", len(snapshot["agents"]), [_agent(a) for a in snapshot["agents"]]),
        ("tree", stats["nodes"], list(snapshot["tree"])),
    )
    shown = [section for section in sections if section[2]]
    room = max(height - len(out), 0)
    for left, (name, total, rows) in zip(range(len(shown), 0, -1), shown, strict=True):
        share = max(room // left - 1, 1)
        out.append(Text(f"{name} ({count(total)})", "bold"))
        out += [Text("  " + clip(row, width - 2, glyphs)) for row in rows[:share]]
        if len(rows) > share:
            out[-1] = Text(f"  {glyphs.more} {count(total - share + 1)} more", "dim")
        room = max(height - len(out), 0)
    return out[:height]


def _figures(stats: dict[str, int], now: Snapshot, before: Snapshot | None) -> list[Text]:
    text = Text()
    text.append(f"hit rate {percent(stats['hit_tokens'], stats['lookup_tokens'])}")
    text.append(
        f"{'':3}computed {count(stats['computed_tokens'])}{'':3}sampled {count(stats['sampled_tokens'])}"
    )
    text.append(f"{'':3}forced {count(stats['forced_tokens'])}{'':3}passes {count(stats['forward_passes'])}")
    if before is not None and "stats" in before and now["taken"] > before["taken"]:
        made = sum(stats[key] - before["stats"][key] for key in ("sampled_tokens", "forced_tokens"))
        passes = stats["forward_passes"] - before["stats"]["forward_passes"]
        seconds = now["taken"] - before["taken"]
        text.append(f"   {made / seconds:.1f} tokens/s in {passes / seconds:.1f} passes/s", "bold")
    pressure = Text(
        f"evicted {count(stats['evicted_tokens'])}   revoked {count(stats['revoked_leases'])} leases   "
        f"preempted {count(stats['preempted_requests'])} requests",
        "dim",
    )
    return [text, pressure]


def _pool(stats: dict[str, int], width: int, glyphs: Glyphs) -> list[Text]:
    parts = pool_parts(stats)
    cells = max(min(width - 4, 80), 10)
    bar, legend = Text("  "), Text("  ")
    for (name, colour), glyph in zip(_POOL, (*glyphs.bars[:3], glyphs.rest), strict=True):
        bar.append(glyph * round(parts[name] * cells / max(stats["pool"], 1)), colour)
        legend.append(f"{glyph} {name} {count(parts[name])}   ", colour)
    return [Text(f"pool of {count(stats['pool'])} tokens", "bold"), bar, legend]


def _request(r: Snapshot) -> str:
    who = f"{r['run']}/{r['path']}" if r["run"] else r["path"] or "-"
    return (
        f"#{r['request']:<6} {who}: prompt {count(r['prompt'])}, cached {count(r['cached'])}, "
        f"generated {count(r['generated'])}, slots {count(r['slots'])}, "
        f"{duration(r['seconds'])}"
    )


def _agent(a: Snapshot) -> str:
    return (
        f"{a['agent'] or '-'}: held {count(a['held'])}, leased {count(a['leased'])}, "
        f"evictable {count(a['evictable'])}"
    )


def all_lines(
    now: Sequence[Snapshot],
    before: Sequence[Snapshot],
    *,
    clock: float,
    width: int,
    height: int,
    glyphs: Glyphs,
) -> list[Text]:
    """All runtimes one below the other, each with its share of the height."""
    if not now:
        return [Text("no runtime is open: start one, with `agentree demo` for example")]
    earlier = {(s["pid"], s["since"]): s for s in before}
    out: list[Text] = []
    for number, snapshot in enumerate(now):
        share = (height - len(out)) // (len(now) - number)
        out += lines(
            snapshot,
            earlier.get((snapshot["pid"], snapshot["since"])),
            now=clock,
            width=width,
            height=max(share, 8),
            glyphs=glyphs,
        )
        out.append(Text())
    return out[:-1]
