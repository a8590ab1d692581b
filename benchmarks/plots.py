"""Pictures of what was measured, as PNG and SVG.

`python -m benchmarks.plots --ablations FILE --peers FILE` reads what `benchmarks.ablations` and
`benchmarks.peers` wrote with `--json`. Needs matplotlib, which the extra `bench` brings.
"""

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

WHOLE = "everything"
COLOURS = ("#33658a", "#f26419", "#86bbd8", "#758e4f", "#9a031e", "#5f4b8b", "#888888")

Medians = Mapping[str, Mapping[str, float]]
"""A figure by variant or engine and workload."""


def middle(runs: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]], figure: str) -> Medians:
    """Medians of a figure, of all that was run."""
    return {
        name: {w: statistics.median(one[figure] for one in of) for w, of in by.items() if of}
        for name, by in runs.items()
    }


def bars(title: str, unit: str, found: Medians, to: Path) -> None:
    """Groups of bars, a group for each workload, saved as PNG and SVG."""
    plot: Any = import_module("matplotlib.figure").Figure
    figure = plot(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    workloads = list(next(iter(found.values())))
    width = 0.8 / len(found)
    for i, (name, of) in enumerate(found.items()):
        places = [k + (i - (len(found) - 1) / 2) * width for k in range(len(workloads))]
        heights = [of.get(w, float("nan")) for w in workloads]
        axes.bar(places, heights, width, label=name, color=COLOURS[i % len(COLOURS)])
    axes.set_xticks(range(len(workloads)), workloads)
    axes.set_title(title)
    axes.set_ylabel(unit)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    to.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".png", ".svg"):
        figure.savefig(to.with_suffix(suffix), dpi=120)
    print(f"{to}.png, {to}.svg")


def over(found: Medians, whole: str) -> Medians:
    """Each figure over that of one of them."""
    return {
        name: {w: value / found[whole][w] for w, value in of.items() if w in found[whole]}
        for name, of in found.items()
        if name != whole
    }


def main() -> None:
    """Draw what was given."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--ablations", type=Path, metavar="FILE")
    made.add_argument("--peers", type=Path, metavar="FILE")
    made.add_argument("--to", type=Path, default=Path("docs/pictures"), help="folder (docs/pictures)")
    arguments = made.parse_args()
    to: Path = arguments.to
    if arguments.ablations is not None:
        kept = json.loads(arguments.ablations.read_text())
        for part, title in (("ample", "a part left out"), ("tight", "a small pool")):
            if kept[part]:
                times = over(middle(kept[part], "cpu"), WHOLE)
                bars(
                    f"CPU time with {title}, over that of the whole",
                    "times as much",
                    times,
                    to / f"{part}-cpu",
                )
                tokens = middle(kept[part], "computed")
                bars(f"Prompt tokens computed, {title}", "tokens", tokens, to / f"{part}-computed")
    if arguments.peers is not None:
        kept = json.loads(arguments.peers.read_text())
        walls = middle({name: one["runs"] for name, one in kept.items()}, "wall")
        bars("Wall time of the workloads", "seconds", walls, to / "peers-wall")


if __name__ == "__main__":
    main()
