"""A graph as a tree of lines, each for one node: what a plan and a run are explained on, also from a file."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence

from agentree.events import GenerationEnded
from agentree.graph.flow import show
from agentree.graph.nodes import (
    Branch,
    CallNode,
    Definition,
    Edge,
    EndNode,
    ForkWay,
    MapWay,
    NodeSpec,
    StartNode,
)
from agentree.graph.types import Limits

Notes = Callable[[str], list[str]]
"""What is said below a node, by its path: its name, after those of the calls that it is inside of."""
_VISIT = re.compile(r"(\[\d+\])*(#\d+)?(?=/|$)")
"""What the path of a visit has after the name of each node."""


def outline(definition: Definition, limits: Limits | None) -> str:
    """The graph as a tree, each node once; a node met again is only named. Called programs stand below
    their calls.

    A line is what is printed, and for a node the guides of lines below it and its path, separated by tabs.
    """
    return "\n".join(_program(definition, limits, "", ""))


def annotated(outline: str, notes: Notes) -> str:
    """An outline as it is printed, with notes below each node."""
    lines: list[str] = []
    for line in outline.split("\n"):
        text, *node = line.split("\t")
        lines.append(text)
        if len(node) == 2:
            guides, name = node
            lines += [guides + note for note in notes(name)]
    return "\n".join(lines)


def run_notes(outline: str, record: Sequence[GenerationEnded]) -> Notes:
    """What each visit of a node really took, in tokens, and why what was not in the cache was missing.

    In the order of branches and visits; below a call, what belongs to no node of the outline inside of it.
    """
    names = {line.rpartition("\t")[2] for line in outline.split("\n") if line.count("\t") == 2}
    by_node: dict[str, list[GenerationEnded]] = {}
    for event in record:
        by_node.setdefault(_node(event.path, names), []).append(event)

    def notes(name: str) -> list[str]:
        found = sorted(by_node.get(name, ()), key=_place)
        return [line for event in found for line in actual(event, event.path)]

    return notes


def _node(path: str, names: Collection[str]) -> str:
    """The innermost of the nodes that a visit is of or inside of; "" if it is none of them."""
    name = _VISIT.sub("", path)
    while name and name not in names:
        name = name.rpartition("/")[0]
    return name


def _place(event: GenerationEnded) -> list[tuple[list[int], int]]:
    """Orders visits by branches and numbers; those that have the same keep the order in which they ended."""
    places: list[tuple[list[int], int]] = []
    for segment in event.path.split("/"):
        visit = re.search(r"#(\d+)", segment)
        indices = [int(index) for index in re.findall(r"\[(\d+)\]", segment)]
        places.append((indices, int(visit[1]) if visit else 1))
    return places


def actual(event: GenerationEnded, path: str) -> list[str]:
    """What a generation took, in tokens, and on another line why what was not in the cache was missing."""
    prompt = f"prompt {event.prompt_tokens} = {event.cached_tokens} cached + {event.computed_tokens} computed"
    output = f"output {event.sampled_tokens + event.forced_tokens} ({event.forced_tokens} forced)"
    ended = "" if event.finish == "stop" else f" ({event.finish})"
    return [f"{path}: {prompt}; {output}{ended}", *([f"  missed: {event.miss}"] if event.miss else [])]


def ways(route: object) -> list[tuple[str, NodeSpec]]:
    """Where a route leads to, with what is written at each way."""
    if isinstance(route, Edge):
        notes = ["with a new transcript"] if route.fresh else []
        notes += [] if route.max_visits is None else [f"at most {route.max_visits}x"]
        return [(f"({', '.join(notes)}) " if notes else "", route.to)]
    if isinstance(route, MapWay):
        each = "each: " if route.parallel is None else f"each, {route.parallel} at a time: "
        return [(each, route.to)]
    if isinstance(route, ForkWay):
        return [("", to) for to in route.to]
    if isinstance(route, Branch):
        cases = [
            (f"{show(case.kind)}{' where ...' if case.where else ''}: ", case.to) for case in route.cases
        ]
        return cases + ([] if route.otherwise is None else [("otherwise: ", route.otherwise)])
    return []


def _bounds(limits: Limits) -> str:
    named = [("turns", limits.turns), ("tool calls", limits.tool_calls), ("tokens", limits.tokens)]
    parts = [f"{name} <= {value}" for name, value in named if value is not None]
    if limits.seconds is not None:
        parts.append(f"{limits.seconds:g} s")
    return ", ".join(parts) + (", then a forced answer" if limits.on_limit == "answer" else "")


def _program(definition: Definition, limits: Limits | None, path: str, guides: str) -> Iterator[str]:
    """The lines of a program, below `guides`, whose nodes have paths that begin with `path`."""
    bounds = "" if limits is None else f"  ({_bounds(limits)})"
    yield guides + _plain(f"{definition.name}: {show(definition.input)} -> {show(definition.output)}{bounds}")
    yield from _subtree(definition, definition.start, "", set(), guides, guides, path)


def _subtree(
    definition: Definition, node: NodeSpec, label: str, seen: set[str], first: str, rest: str, path: str
) -> Iterator[str]:
    again = node.name in seen and not isinstance(node, EndNode)
    kind = "" if isinstance(node, StartNode | EndNode) else f"  [{node.kind}]"
    text = _plain(f"{first}{label}{node.name}{' (again)' if again else kind}")
    if again:
        yield text
        return
    seen.add(node.name)
    below = ways(definition.routes.get(node.name))
    inside = rest + ("│  " if below else "   ")
    yield f"{text}\t{inside}\t{_plain(path + node.name)}"
    if isinstance(node, CallNode):
        yield from _program(node.program._definition, node.program.limits, f"{path}{node.name}/", inside)
    # a single way on stays in the column, so that long chains don't drift to the right
    for i, (label, to) in enumerate(below):
        if len(below) == 1:
            yield from _subtree(definition, to, label, seen, rest, rest, path)
        else:
            last = i == len(below) - 1
            yield from _subtree(
                definition,
                to,
                label,
                seen,
                rest + ("└─ " if last else "├─ "),
                rest + ("   " if last else "│  "),
                path,
            )


def _plain(text: str) -> str:
    return text.replace("\t", " ").replace("\n", " ")
