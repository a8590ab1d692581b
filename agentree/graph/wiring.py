"""Refuses what can't be wired, where it is written: each error says what to write instead."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from agentree.errors import GraphError, InvalidArgument
from agentree.graph.flow import show
from agentree.graph.nodes import Arms, NodeSpec
from agentree.graph.reduce import Collect, Selector, best, collect, first, top, vote

_NEEDS_TYPE = {"collect": collect, "vote": vote, "first": first}
_NEEDS_KEY = {"best": best, "top": top}


def own_node(graph: str, owner: object, nodes: Sequence[NodeSpec], given: object) -> NodeSpec:
    """The node itself. Raises GraphError for what is none, or is another graph's."""
    if isinstance(given, list | tuple):
        several = cast("Sequence[object]", given)
        names = ", ".join(one.name if isinstance(one, NodeSpec) else repr(one) for one in several)
        raise GraphError(
            f"a way leads from one node to one node, not to a list: for several side by side write "
            f"g.fork(<node>, {names})"
        )
    if isinstance(given, str):
        named = {"start": "g.start", "end": "g.end"} | {node.name: node.name for node in nodes[2:]}
        if given in named:
            raise GraphError(f"{given!r} is the name of a node: write the node itself, {named[given]}")
    if not isinstance(given, NodeSpec):
        what = repr(given.__name__) if inspect.isfunction(given) else repr(given)
        raise GraphError(f"{what} is not a node: decorate functions with @g.step or @g.llm(...)")
    if isinstance(given, Arms):
        raise GraphError(f"{given.name!r} are several branches: join them with g.join(...) first")
    if given.owner is not owner:
        raise GraphError(f"node {given.name!r} belongs to another graph than {graph!r}")
    return given


def one_reducer(arms: object, rest: Sequence[object]) -> Any:
    """What follows the arms of a join. Raises GraphError for arms that are not one list."""
    given = [arms, *rest]
    nodes = [one for one in given if isinstance(one, NodeSpec)]
    if len(nodes) > 1 or len(rest) > 1:
        names = ", ".join(node.name for node in nodes) or "<node>, ..."
        last = next((_reducer(one) for one in rest if not isinstance(one, NodeSpec)), "collect(Finding)")
        raise GraphError(
            f"join() takes the arms as one list, and one reducer: write g.join([{names}], {last})"
        )
    return rest[0] if rest else None


def _reducer(given: object) -> str:
    if isinstance(given, Collect):
        return f"collect({show(cast('Any', given).item)})"
    return f"{given.name}(...)" if isinstance(given, Selector) else "collect(Finding)"


def check_join(ends: Sequence[NodeSpec], reduce: object, keep: object, on_error: object) -> None:
    """Raises GraphError for a reducer that is none, InvalidArgument for an option that is none."""
    names = ", ".join(end.name for end in ends)
    where = f"join of {names!r}" if len(ends) == 1 else f"join of {names}"
    for options, needs in ((_NEEDS_TYPE, "the type of what the branches give"), (_NEEDS_KEY, "a key")):
        for name, function in options.items():
            if reduce is function:
                example = f"{name}(Finding)" if options is _NEEDS_TYPE else f"{name}(lambda result: ...)"
                example = "top(3, lambda result: ...)" if name == "top" else example
                raise GraphError(f"{where}: {name} takes {needs}: write {example}")
    if not callable(reduce):
        given = "" if reduce is None else f", not {reduce!r}"
        raise GraphError(
            f"{where} needs a reducer{given}: write g.join(..., collect(Finding)) with the type of what the "
            "branches give, or top, best, vote, first, or a function of the list of results"
        )
    for name, value, known in (
        ("keep", keep, ("fork", "winner", "none")),
        ("on_error", on_error, ("raise", "collect")),
    ):
        if value not in known:
            raise InvalidArgument(f"{where}: {name}={value!r}: write one of {', '.join(map(repr, known))}")
    if keep == "winner" and not isinstance(reduce, Selector):
        raise GraphError(
            f"{where}: keep='winner' needs a selector (best, vote, first), because only those pick one branch"
        )


def items_to_map(node: str, value: object, shown: str) -> list[Any]:
    """What a map has a branch for each of. Raises GraphError for what is no list of items."""
    fields = cast("Mapping[str, object] | None", getattr(type(value), "model_fields", None))
    what, remedy = f"node {node!r} gave {type(value).__name__} {shown}, which can't be mapped over", "a list"
    if fields is not None:  # a pydantic model gives pairs of names and values when it is iterated
        lists = [name for name in fields if isinstance(getattr(value, name), list)]
        remedy = f"its field {lists[0]!r}" if len(lists) == 1 else "one of its lists"
        raise GraphError(f"{what}: put a step behind it that returns {remedy}")
    refused: tuple[type, ...] = (str, bytes, Mapping)
    if isinstance(value, refused) or not isinstance(value, Iterable):
        raise GraphError(f"{what}: return {remedy}")
    return list(cast("Iterable[Any]", value))
