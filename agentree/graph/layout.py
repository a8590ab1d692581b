"""A layered drawing: where the boxes of a graph stand, and which way its arrows take.

After Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures" (1981):
layers by the longest way from the start, waypoints where an arrow passes a layer, an order of each layer with
few crossings by barycentres. Places inside a layer are a least-squares fit with a least distance, which is
isotonic regression (pool adjacent violators).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import networkx as nx

GAP = 24.0
"""Least distance of two boxes of a layer."""
RISE = 18.0
"""Distance of two layers; between two boxes there is always a layer of waypoints, which may hold a label."""
SWEEPS = 12

Point = tuple[float, float]


@dataclass(frozen=True)
class Way:
    """An arrow, and the size of what is written at it."""

    source: str
    target: str
    width: float = 0.0
    height: float = 0.0


@dataclass(frozen=True)
class Layout:
    """Places in a plane whose y grows downwards; (0, 0) is its upper left corner."""

    width: float
    height: float
    boxes: Mapping[str, Point]
    """The middle of each box's upper side."""
    ways: Sequence[Sequence[Point]]
    """The points of each arrow, from its source to its target. Every second stretch is a straight one."""
    labels: Sequence[Point]
    """The middle of what is written at each arrow."""


@dataclass(eq=False)
class _Item:
    """A box, or the waypoint of an arrow in one layer."""

    layer: int
    width: float
    height: float
    x: float = 0.0
    above: list["_Item"] = field(default_factory=list["_Item"])
    below: list["_Item"] = field(default_factory=list["_Item"])


def lay_out(boxes: Mapping[str, Point], ways: Sequence[Way]) -> Layout:
    """Place boxes of given widths and heights, the first one on top. The same input, the same drawing."""
    back = _back_ways(list(boxes), ways)
    depth = _depths(list(boxes), ways, back)
    items = {name: _Item(2 * depth[name], *size) for name, size in boxes.items()}
    chains = [_chain(items, way, i in back) for i, way in enumerate(ways)]
    layers: list[list[_Item]] = [[] for _ in range(2 * max(depth.values(), default=0) + 1)]
    for item in [*items.values(), *(item for chain in chains for item in chain[1:-1])]:
        layers[item.layer].append(item)
    _order(layers)
    for box, *beside, end in chains:
        if box is end:
            _move_beside(layers[box.layer], beside[0], box)
    _place(layers)
    tops, bottom = _heights(layers)
    left = min((item.x - item.width / 2 for layer in layers for item in layer), default=0.0)
    for layer in layers:
        for item in layer:
            item.x -= left
    right = max((item.x + item.width / 2 for layer in layers for item in layer), default=0.0)
    routes = [_route(chain, tops, i in back) for i, chain in enumerate(chains)]
    labels = [_label(chain, tops, i in back) for i, chain in enumerate(chains)]
    found = {name: (item.x, tops[item.layer]) for name, item in items.items()}
    return Layout(right, bottom, found, routes, labels)


def _back_ways(names: Sequence[str], ways: Sequence[Way]) -> set[int]:
    """Those that close a cycle, seen depth first from the first box."""
    out: dict[str, list[int]] = {name: [] for name in names}
    for i, way in enumerate(ways):
        out[way.source].append(i)
    back: set[int] = set()
    done: set[str] = set()
    for root in names:
        if root in done:
            continue
        open_: dict[str, int] = {root: 0}
        while open_:
            name, at = next(reversed(open_.items()))
            if at == len(out[name]):
                done.add(name)
                del open_[name]
                continue
            open_[name] += 1
            to = ways[out[name][at]].target
            if to in open_:
                back.add(out[name][at])
            elif to not in done:
                open_[to] = 0
    return back


def _depths(names: Sequence[str], ways: Sequence[Way], back: set[int]) -> dict[str, int]:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(names)
    for i, way in enumerate(ways):
        if way.source != way.target:
            graph.add_edge(*((way.target, way.source) if i in back else (way.source, way.target)))
    depth: dict[str, int] = {}
    for name in nx.topological_sort(graph):
        depth[name] = max((depth[before] + 1 for before in graph.predecessors(name)), default=0)
    return depth


def _chain(items: Mapping[str, _Item], way: Way, is_back: bool) -> list[_Item]:
    """From the upper box to the lower one, a waypoint in each layer between; a loop's is beside it."""
    source, target = items[way.source], items[way.target]
    if source is target:
        return [source, _Item(source.layer, way.width, way.height), source]
    upper, lower = (target, source) if is_back else (source, target)
    chain = [upper, *(_Item(layer, 0.0, 0.0) for layer in range(upper.layer + 1, lower.layer)), lower]
    labelled = chain[-2 if is_back else 1]
    labelled.width, labelled.height = way.width, way.height
    for one, next_ in pairwise(chain):
        one.below.append(next_)
        next_.above.append(one)
    return chain


def _order(layers: list[list[_Item]]) -> None:
    """Order each layer by the mean place of its neighbours; the order with the fewest crossings stays."""
    best, fewest = [list(layer) for layer in layers], _crossings(layers)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for i in range(len(layers)) if down else reversed(range(len(layers))):
            beside = layers[i - 1 if down else i + 1] if 0 <= (i - 1 if down else i + 1) < len(layers) else []
            at = {item: float(place) for place, item in enumerate(beside)}
            own = {item: float(place) for place, item in enumerate(layers[i])}

            def mean(item: _Item, at: dict[_Item, float] = at, own: dict[_Item, float] = own) -> float:
                near = [at[other] for other in (*item.above, *item.below) if other in at]
                return sum(near) / len(near) if near else own[item]

            layers[i].sort(key=mean)
        crossings = _crossings(layers)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    layers[:] = best


def _move_beside(layer: list[_Item], item: _Item, box: _Item) -> None:
    layer.remove(item)
    layer.insert(layer.index(box) + 1, item)


def _crossings(layers: Sequence[Sequence[_Item]]) -> int:
    found = 0
    for upper, lower in pairwise(layers):
        at = {item: place for place, item in enumerate(lower)}
        ends = [sorted(at[to] for to in item.below if to in at) for item in upper]
        flat = [end for group in ends for end in group]
        found += sum(a > b for i, a in enumerate(flat) for b in flat[i + 1 :])
    return found


def _place(layers: Sequence[Sequence[_Item]]) -> None:
    for layer in layers:
        _fit(layer, [0.0] * len(layer))
    for sweep in range(2 * SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            near = [item.above if sweep % 2 == 0 else item.below for item in layer]
            if sweep >= SWEEPS:
                near = [[*item.above, *item.below] for item in layer]
            wanted = [
                sum(other.x for other in others) / len(others) if others else item.x
                for item, others in zip(layer, near, strict=True)
            ]
            _fit(layer, wanted)


def _fit(layer: Sequence[_Item], wanted: Sequence[float]) -> None:
    """Put items as near as they can be to where they should be, in their order and apart."""
    offsets = [0.0]
    for one, next_ in pairwise(layer):
        offsets.append(offsets[-1] + (one.width + next_.width) / 2 + GAP)
    pools: list[tuple[float, int]] = []  # sum of wishes, and of how many
    for wish, offset in zip(wanted, offsets, strict=False):
        pools.append((wish - offset, 1))
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [(a + b, m + n)]
    places = [total / count for total, count in pools for _ in range(count)]
    for item, place, offset in zip(layer, places, offsets, strict=False):
        item.x = place + offset


def _heights(layers: Sequence[Sequence[_Item]]) -> tuple[list[float], float]:
    """Where each layer begins, and where the last one ends."""
    tops: list[float] = []
    y = 0.0
    for layer in layers:
        tops.append(y)
        y += max((item.height for item in layer), default=0.0) + RISE
    return tops, max(y - RISE, 0.0)


def _port(box: _Item, to: _Item, *, lower_side: bool) -> float:
    """Where an arrow meets a box: its arrows are spread over a side in the order of their other ends."""
    others = sorted(box.below if lower_side else box.above, key=lambda item: item.x)
    return box.x + box.width * ((others.index(to) + 1) / (len(others) + 1) - 0.5)


def _route(chain: Sequence[_Item], tops: Sequence[float], is_back: bool) -> list[Point]:
    upper, lower = chain[0], chain[-1]
    if upper is lower:
        beside, top = chain[1], tops[upper.layer]
        edge, out = upper.x + upper.width / 2, beside.x - beside.width / 2
        return [
            (edge, top + upper.height / 3),
            (out, top + upper.height / 3),
            (out, top + upper.height * 2 / 3),
            (edge, top + upper.height * 2 / 3),
        ]
    points = [(_port(upper, chain[1], lower_side=True), tops[upper.layer] + upper.height)]
    for item in chain[1:-1]:
        # straight through the layer, so that no arrow cuts across a box that is taller than its neighbours
        end = tops[item.layer + 1] - RISE
        points += [(item.x, tops[item.layer]), (item.x, end)]
    points.append((_port(lower, chain[-2], lower_side=False), tops[lower.layer]))
    return points[::-1] if is_back else points


def _label(chain: Sequence[_Item], tops: Sequence[float], is_back: bool) -> Point:
    item = chain[-2 if is_back and len(chain) > 3 else 1]
    return item.x, tops[item.layer] + item.height / 2
