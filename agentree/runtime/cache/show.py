"""The tree and its claims, for people who watch a running engine."""

from collections import defaultdict
from collections.abc import Iterable

from agentree.runtime.cache.holds import Holds
from agentree.runtime.cache.node import Node, spelled
from agentree.runtime.cache.results import Held
from agentree.runtime.cache.tree import Tree


def owners(holds: Holds) -> dict[str, Held]:
    """What each owner of leases and references has claimed. A token claimed twice counts once."""
    leased: defaultdict[str, list[Node]] = defaultdict(list)
    referenced: defaultdict[str, list[Node]] = defaultdict(list)
    for lease in holds.leases:
        leased[lease.owner].append(lease.node)
    for reference in holds.references:
        referenced[reference.owner].append(reference.node)
    found: dict[str, Held] = {}
    for owner in sorted({*leased, *referenced}):
        a, b = _paths(leased[owner]), _paths(referenced[owner])
        both = {**a, **b}.values()
        found[owner] = Held(
            leased=sum(map(len, a.values())),
            referenced=sum(map(len, b.values())),
            evictable=sum(len(node) for node in both if not node.locks),
        )
    return found


def _paths(ends: Iterable[Node]) -> dict[int, Node]:
    found: dict[int, Node] = {}
    for end in ends:
        node: Node | None = end
        while node is not None and node.number not in found:
            found[node.number] = node
            node = node.parent
    return found


def outline(tree: Tree, limit: int) -> list[str]:
    """One line a node, indented by depth, most recently used branches first."""
    lines: list[str] = []
    stack = [(root, 0) for root in reversed(tree.roots.values())]
    while stack and len(lines) < limit:
        node, depth = stack.pop()
        if node.parent is None:
            lines.append(f"namespace {spelled(node.space)}")
        else:
            marks = [f"{n} {name}" for n, name in ((node.locks, "locks"), (node.leases, "leases")) if n]
            marks += ["dead"] * node.dead
            idle = f"idle {tree.clock - node.last_use}"
            lines.append("  " * depth + ", ".join([f"{node.start}+{len(node)} tokens", idle, *marks]))
        children = sorted(node.children.values(), key=lambda child: child.last_use)
        stack += [(child, depth + 1) for child in children]
    if stack:
        lines.append(f"... and {tree.nodes + len(tree.roots) - len(lines)} more")
    return lines
