"""Which forks are open at each node, and which join closes each fork: the result of `matching`."""

from collections.abc import Mapping
from dataclasses import dataclass

from agentree.graph.nodes import JoinNode, MapWay, NodeSpec, Route


@dataclass(frozen=True)
class Regions:
    """The forks of a graph. A fork is called after its map's target, or after the node that forks."""

    final: Mapping[str, JoinNode]
    """By fork, the join that closes it."""
    stacks: Mapping[str, tuple[str, ...]]
    """By node, the forks that are open at its visit, outermost first. A closing join stands outside."""
    inner: Mapping[str, tuple[JoinNode, ...]]
    """By fork, the joins that bring some of its branches together before it closes."""
    reaches: Mapping[str, frozenset[str]]
    """By inner join, the nodes of its fork from which a branch may still come to it."""

    def fork_of(self, node: NodeSpec, route: Route) -> str:
        """The fork that a way on from `node` opens."""
        return fork_name(node.name, route)


def fork_name(source: str, route: Route) -> str:
    """A fork's identity: "map answer" or "fork plan"."""
    return f"map {route.to.name}" if isinstance(route, MapWay) else f"fork {source}"


def spelled(fork: str) -> str:
    """A fork in words, by its identity: "the map into 'answer'"."""
    kind, _, name = fork.partition(" ")
    return f"the {kind} {'into' if kind == 'map' else 'after'} {name!r}"
