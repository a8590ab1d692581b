"""Whether a program is still the one that a run began with."""

import json
import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, cast

from agentree.graph.flow import show, value_type
from agentree.graph.nodes import (
    Branch,
    CallNode,
    Definition,
    Edge,
    JoinNode,
    LlmNode,
    MapWay,
    NodeSpec,
    Route,
    SampleNode,
    ToolsNode,
)
from agentree.graph.reduce import Collect, Selector
from agentree.tools import Tool

_ADDRESS = re.compile(" at 0x[0-9a-f]+")
"""What differs between processes in the text of a function or object."""


def fingerprint(definition: Definition, types: dict[str, Any]) -> str:
    """A digest of what a run depends on: nodes and their types, ways, tools and static prefixes.

    Not of the code of functions, prompts and reducers, nor of limits: these may be mended before a run is
    resumed. `types` describes the declared classes.
    """
    return digest([_program(definition), types])


def digest(description: Any) -> str:
    """Of JSON values, the same in every process."""
    text = _ADDRESS.sub("", json.dumps(description, sort_keys=True, default=repr))
    return blake2b(text.encode(), digest_size=12).hexdigest()


def programs(definition: Definition) -> Iterator[Definition]:
    """A program and all that it calls, at any depth."""
    yield definition
    for node in definition.nodes.values():
        if isinstance(node, CallNode):
            yield from programs(node.program._definition)


def tools_of(definition: Definition) -> list[Tool[..., Any]]:
    """The tools of a program and of all that it calls."""
    found: dict[int, Tool[..., Any]] = {}
    for program in programs(definition):
        for node in program.nodes.values():
            if isinstance(node, LlmNode | ToolsNode):
                found |= {id(tool): tool for tool in node.tools or ()}
    return list(found.values())


def declared(definition: Definition) -> Iterator[tuple[str, Any]]:
    """Every type that a program declares, with where it does."""
    for program in programs(definition):
        name = f"program {program.name!r}"
        if program.state is not None:
            yield f"the state of {name}", program.state
        for node in program.nodes.values():
            yield f"node {node.name!r}", node.types.output
            if isinstance(node, LlmNode):
                for form in node.outputs:
                    yield f"node {node.name!r}", value_type(form)
            elif isinstance(node, SampleNode):
                yield f"node {node.name!r}", value_type(node.output)
            elif isinstance(node, JoinNode) and isinstance(node.reduce, Collect | Selector):
                yield f"node {node.name!r}", cast("Any", node.reduce).item
        for route in program.routes.values():
            if isinstance(route, Branch):
                for case in route.cases:
                    yield f"the case for {case.to.name!r}", case.kind
        yield f"the input of {name}", program.input
        yield f"the output of {name}", program.output


def _program(definition: Definition) -> list[Any]:
    nodes = [_node(node, definition) for node in definition.nodes.values()]
    return [definition.name, show(definition.state), show(definition.input), show(definition.output), nodes]


def _node(node: NodeSpec, definition: Definition) -> list[Any]:
    about: list[Any] = [node.name, node.kind, show(node.types.input), show(node.types.output)]
    if isinstance(node, LlmNode | SampleNode):
        about += [node.system, [show(one) for one in _outputs(node)]]
    if isinstance(node, LlmNode):
        about += [[[message.role, message.text] for message in node.examples], node.parallel, node.think]
    if isinstance(node, LlmNode | ToolsNode):
        about += [[tool.name, tool.description, dict(tool.schema)] for tool in node.tools or ()]
    if isinstance(node, JoinNode):
        about += [node.keep, node.on_error]
    if isinstance(node, CallNode):
        about += [node.transcript, _program(node.program._definition)]
    route = definition.routes.get(node.name)
    return [*about, None if route is None else _route(route)]


def _outputs(node: LlmNode | SampleNode) -> tuple[Any, ...]:
    return node.outputs if isinstance(node, LlmNode) else (node.output,)


def _route(route: Route) -> list[Any]:
    if isinstance(route, Edge):
        return ["edge", route.to.name, *(["fresh"] if route.fresh else [])]
    if isinstance(route, MapWay):
        return ["map", route.to.name]
    if isinstance(route, Branch):
        cases = [[show(case.kind), case.to.name, case.where is not None] for case in route.cases]
        return ["branch", cases, route.otherwise and route.otherwise.name]
    return ["fork", [to.name for to in route.to]]
