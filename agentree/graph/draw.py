"""Programs as text: the plan as a tree, and a Mermaid flow chart."""

import inspect
from typing import TYPE_CHECKING

from agentree.graph.nodes import CallNode, Definition, NodeSpec, StepNode
from agentree.graph.outline import Notes, annotated, outline, ways
from agentree.graph.plan import Call, Extend, Fork, Generate, Join, Lease, Plan, Release, Select
from agentree.graph.types import Limits

if TYPE_CHECKING:
    from agentree.lm import Runtime

_KEEPS = {
    "fork": "go on from where it forked",
    "winner": "go on from the picked branch",
    "none": "go on with a new transcript",
}
_SHAPES = {"start": ("([", "])"), "end": ("([", "])"), "llm": ("[[", "]]"), "tools": ("{{", "}}")}


def tree(definition: Definition, limits: Limits | None, notes: Notes) -> str:
    """The graph as a tree, each node once with notes below it; a node met again is only named."""
    return annotated(outline(definition, limits), notes)


def plan_notes(plan: Plan, definition: Definition, lm: "Runtime | None") -> Notes:
    """The plan's operations in words; with a runtime, static prefixes in tokens."""

    def notes(name: str) -> list[str]:
        node = definition.nodes.get(name)
        if node is None:
            return _inner_notes(definition, lm, name)
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
                    visits = "1 visit" if op.next_use == 1 else f"{op.next_use} visits"
                    lines.append(f"lease {op.transcript}: read again after {visits}")
                case Release():
                    lines.append(f"release {op.transcript}{' where it was not picked' if op.losers else ''}")
                case Call() if node.kind == "tools":
                    lines.append(f"call {', '.join(op.what)}")
                case Call() if isinstance(node, CallNode):
                    own, fork = "with a transcript of its own", "go on from here, and come back"
                    lines.append(fork if node.transcript == "fork" else own)
                case Call() if isinstance(node, StepNode):
                    lines.extend((inspect.getdoc(node.fn) or "").split("\n")[:1] if node.fn.__doc__ else ())
                case Call() | Select():
                    pass
        return lines

    return notes


def _inner_notes(definition: Definition, lm: "Runtime | None", path: str) -> list[str]:
    """The notes of a node inside of a called program."""
    for node in definition.nodes.values():
        if isinstance(node, CallNode) and path.startswith(f"{node.name}/"):
            inner = plan_notes(node.program.plan, node.program._definition, lm)
            return inner(path.removeprefix(f"{node.name}/"))
    return []


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
        for label, to in ways(route):
            text = label.strip().rstrip(":")
            arrow = f"-->|{_quoted(text)}|" if text else "-->"
            lines.append(f"    {ids[name]} {arrow} {ids[to.name]}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    for char, entity in (("&", "&amp;"), ('"', "&quot;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(char, entity)
    return f'"{text}"'
