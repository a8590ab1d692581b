"""Programs as text: the plan as a tree, and a Mermaid flow chart."""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from agentree.events import GenerationEnded
from agentree.graph.flow import show
from agentree.graph.nodes import (
    Branch,
    Definition,
    Edge,
    EndNode,
    ForkWay,
    MapWay,
    NodeSpec,
    StartNode,
    StepNode,
)
from agentree.graph.plan import Call, Extend, Fork, Generate, Join, Lease, Plan, Release, Select
from agentree.graph.types import Limits

if TYPE_CHECKING:
    from agentree.lm import Runtime

_KEEPS = {
    "fork": "go on from where it forked",
    "winner": "go on from the picked branch",
    "none": "go on with a new transcript",
}
Notes = Callable[[NodeSpec], list[str]]
_SHAPES = {"start": ("([", "])"), "end": ("([", "])"), "llm": ("[[", "]]"), "tools": ("{{", "}}")}


def tree(definition: Definition, limits: Limits | None, notes: Notes) -> str:
    """The graph as a tree, each node once with notes below it; a node met again is only named."""
    bounds = "" if limits is None else f"  ({_bounds(limits)})"
    title = f"{definition.name}: {show(definition.input)} -> {show(definition.output)}{bounds}"
    seen: set[str] = set()
    return "\n".join([title, *_subtree(definition, definition.start, "", notes, seen, "", "")])


def _bounds(limits: Limits) -> str:
    named = [("turns", limits.turns), ("tool calls", limits.tool_calls), ("tokens", limits.tokens)]
    parts = [f"{name} <= {value}" for name, value in named if value is not None]
    if limits.seconds is not None:
        parts.append(f"{limits.seconds:g} s")
    return ", ".join(parts) + (", then a forced answer" if limits.on_limit == "answer" else "")


def _subtree(
    definition: Definition, node: NodeSpec, label: str, notes: Notes, seen: set[str], first: str, rest: str
) -> Iterator[str]:
    again = node.name in seen and not isinstance(node, EndNode)
    kind = "" if isinstance(node, StartNode | EndNode) else f"  [{node.kind}]"
    yield f"{first}{label}{node.name}{' (again)' if again else kind}"
    if again:
        return
    seen.add(node.name)
    route = definition.routes.get(node.name)
    below = _below(route)
    bar = "│  " if below else "   "
    for note in notes(node):
        yield f"{rest}{bar}{note}"
    # a single way on stays in the column, so that long chains don't drift to the right
    for i, (text, to) in enumerate(below):
        if len(below) == 1:
            yield from _subtree(definition, to, text, notes, seen, rest, rest)
        else:
            last = i == len(below) - 1
            yield from _subtree(
                definition,
                to,
                text,
                notes,
                seen,
                rest + ("└─ " if last else "├─ "),
                rest + ("   " if last else "│  "),
            )


def _below(route: object) -> list[tuple[str, NodeSpec]]:
    if isinstance(route, Edge):
        bound = "" if route.max_visits is None else f"(at most {route.max_visits}x) "
        return [(bound, route.to)]
    if isinstance(route, MapWay):
        each = "each: " if route.parallel is None else f"each, {route.parallel} at a time: "
        return [(each, route.to)]
    if isinstance(route, ForkWay):
        return [("", to) for to in route.to]
    if isinstance(route, Branch):
        ways = [(f"{show(case.kind)}{' where ...' if case.where else ''}: ", case.to) for case in route.cases]
        return ways + ([] if route.otherwise is None else [("otherwise: ", route.otherwise)])
    return []


def plan_notes(plan: Plan, definition: Definition, lm: "Runtime | None") -> Notes:
    """The plan's operations in words; with a runtime, static prefixes in tokens."""

    def notes(node: NodeSpec) -> list[str]:
        lines: list[str] = []
        for op in plan.blocks.get(node.name, ()):
            match op:
                case Extend(parts=("prompt",)):
                    onto = ", ".join(_name(t) for t in op.onto)
                    lines.append(f"extend {onto} with the prompt")
                case Extend():
                    tokens = (
                        ""
                        if lm is None
                        else f": {static_tokens(definition, node, lm)} tokens, shared by all runs"
                    )
                    lines.append(f"begin with {' + '.join(op.parts)}{tokens}")
                case Fork():
                    shared = ", ".join(_name(t) for t in op.shared)
                    count = "one branch for each item" if op.each else f"{len(op.branches)} branches"
                    lines.append(f"fork {shared}: {count}, until {op.join}")
                case Join():
                    lines.append(_KEEPS[op.keep])
                case Generate() if op.samples > 1:
                    lines.append(
                        f"sample {op.samples} times {op.output}, at most {op.max_tokens} tokens each"
                    )
                case Generate():
                    lines.append(f"generate {op.output}, at most {op.max_tokens} tokens{_expected(op, lm)}")
                case Lease():
                    lines.append(f"lease {op.transcript}: read again after {op.next_use} visits")
                case Release():
                    lines.append(f"release {op.transcript}{' where it was not picked' if op.losers else ''}")
                case Call() if node.kind == "tools":
                    lines.append(f"call {', '.join(op.what)}")
                case Call() if isinstance(node, StepNode):
                    lines.extend((inspect.getdoc(node.fn) or "").split("\n")[:1] if node.fn.__doc__ else ())
                case Call() | Select():
                    pass
        return lines

    return notes


def run_notes(record: Sequence[GenerationEnded]) -> Notes:
    """What each visit of a node really took, in tokens, and why what was not in the cache was missing."""

    def notes(node: NodeSpec) -> list[str]:
        visit = re.compile(rf"{re.escape(node.name)}(\[\d+\])*(#\d+)?(/.*)?")
        return [f"{event.path}: {_actual(event)}" for event in record if visit.fullmatch(event.path)]

    return notes


def _actual(event: GenerationEnded) -> str:
    prompt = f"prompt {event.prompt_tokens} = {event.cached_tokens} cached + {event.computed_tokens} computed"
    output = f"output {event.sampled_tokens + event.forced_tokens}, {event.forced_tokens} of them forced"
    ended = "" if event.finish == "stop" else f" ({event.finish})"
    return f"{prompt}; {output}{ended}" + (f"; missed: {event.miss}" if event.miss else "")


def _name(transcript: str) -> str:
    return transcript or "a new transcript"


def _expected(op: Generate, lm: "Runtime | None") -> str:
    return "" if lm is None else f"; new: the prompt and at most {op.max_tokens}, the rest is shared"


def static_tokens(definition: Definition, node: NodeSpec, lm: "Runtime") -> int:
    """How many tokens the static prefix of an llm node's transcript has."""
    from agentree.graph.acts import begin

    return len(begin(lm, definition.heads[node.name]))


def mermaid(definition: Definition) -> str:
    """A flow chart in Mermaid's language."""
    ids = {name: f"n{i}" for i, name in enumerate(definition.nodes)}
    lines = ["flowchart TD"]
    for name, node in definition.nodes.items():
        left, right = _SHAPES.get(node.kind, ("[", "]"))
        lines.append(f"    {ids[name]}{left}{_quoted(name)}{right}")
    for name, route in definition.routes.items():
        for label, to in _below(route):
            text = label.strip().rstrip(":")
            arrow = f"-->|{_quoted(text)}|" if text else "-->"
            lines.append(f"    {ids[name]} {arrow} {ids[to.name]}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    for char, entity in (("&", "&amp;"), ('"', "&quot;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(char, entity)
    return f'"{text}"'
