"""The builder: typed verbs wire the nodes that decorated functions have become."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, cast, overload

from agentree.errors import GraphError, InvalidArgument
from agentree.graph.bounds import whole_number
from agentree.graph.flow import union
from agentree.graph.making import Maker
from agentree.graph.nodes import (
    Arms,
    Branch,
    CaseArm,
    Edge,
    EndNode,
    ForkWay,
    JoinNode,
    MapWay,
    NodeSpec,
    Route,
    StartNode,
)
from agentree.graph.reduce import Selector, joined_type
from agentree.graph.types import Flow, I, Limits, Node, O, R, S, T, U
from agentree.graph.wiring import check_join, one_reducer, own_node

if TYPE_CHECKING:
    from agentree.graph.program import Program


class Case(Generic[S]):
    """A branch under construction: the first case that takes a value wins."""

    def __init__(self, graph: "Graph[Any, Any, Any]", branch: Branch) -> None:
        self._graph = graph
        self._branch = branch

    def case(
        self, kind: type[T], to: Node[S, T, Any], /, *, where: Callable[[T], bool] | None = None
    ) -> "Case[S]":
        """Values of `kind` (for which `where` holds) go to the node `to`."""
        self._branch.cases.append(CaseArm(kind, self._graph._own(to), where))
        return self

    def otherwise(self, to: Node[S, Any, Any], /) -> None:
        """Whatever no case takes goes to the node `to`."""
        if self._branch.otherwise is not None:
            raise GraphError(f"a branch has one otherwise: {self._branch.otherwise.name!r} is it already")
        self._branch.otherwise = self._graph._own(to)


class Graph(Maker[S], Generic[S, I, O]):
    """A workflow under construction. Nothing runs before `compile()`."""

    @overload
    def __init__(self: "Graph[None, T, U]", name: str, *, input: type[T], output: type[U]) -> None: ...
    @overload
    def __init__(
        self: "Graph[R, T, U]", name: str, *, state: type[R], input: type[T], output: type[U]
    ) -> None: ...
    def __init__(self, name: str, *, state: Any = None, input: Any, output: Any) -> None:
        super().__init__(name)
        self._state = state
        self._input = input
        self._output = output
        self._start = StartNode("start", Flow(Never, input), self)
        self._end = EndNode("end", Flow(output, Never), self)
        self._nodes += [self._start, self._end]
        self._routes: list[tuple[NodeSpec, Route]] = []

    @property
    def start(self) -> Node[S, Never, I]:
        """Gives the run's input."""
        return self._start

    @property
    def end(self) -> Node[S, O, Never]:
        """Takes the run's output."""
        return self._end

    def map(
        self, a: Node[S, Any, Iterable[T]], b: Node[S, T, U], /, *, parallel: int | None = None
    ) -> Node[S, T, U]:
        """Fork: one branch of `b` for each item that `a` gives, `parallel` at a time. Join what it returns.

        The node `b` is the fork's identity: a loop that maps into it again re-enters the same fork.
        """
        if parallel is not None:
            whole_number(f"map {a.name!r} -> {b.name!r} (parallel", parallel, 1)
        self._routes.append((self._own(a), MapWay(self._own(b), parallel)))
        return b

    def fork(self, a: Node[S, Any, T], *to: Node[S, T, U]) -> Node[S, T, U]:
        """Fork: each of `to` gets what `a` gives, on a branch of its own. Join what it returns."""
        if not to:
            raise GraphError(f"fork({a.name}): name the nodes that it leads to")
        arms = tuple(self._own(node) for node in to)
        self._routes.append((self._own(a), ForkWay(arms)))
        flow = Flow[Any, Any, Any](Any, union(arm.types.output for arm in arms))
        return to[0] if len(to) == 1 else Arms(", ".join(arm.name for arm in arms), flow, self, arms)

    @overload
    def join(
        self,
        arms: Node[S, Any, T] | Sequence[Node[S, Any, T]],
        reduce: Selector[T],
        /,
        *,
        keep: Literal["fork", "winner", "none"] = "fork",
        on_error: Literal["raise", "collect"] = "raise",
    ) -> Node[S, T, T]: ...
    @overload
    def join(
        self,
        arms: Node[S, Any, T] | Sequence[Node[S, Any, T]],
        reduce: Callable[[Sequence[T]], R],
        /,
        *,
        keep: Literal["fork", "none"] = "fork",
        on_error: Literal["raise", "collect"] = "raise",
    ) -> Node[S, T, R]: ...
    def join(
        self,
        arms: Any,
        /,
        *reduce: Any,
        keep: Literal["fork", "winner", "none"] = "fork",
        on_error: Literal["raise", "collect"] = "raise",
    ) -> Any:
        """The branches of a fork meet here, once for each time that the fork is entered.

        Args:
            arms: The last nodes of the branches. Edges and cases may lead to the join as well.
            reduce: Gets the results in fork order; `collect`, `top`, `best`, `vote`, `first`, or a function.
            keep: "fork" goes on from where it forked; "winner" (with a selector) from the picked branch's
                transcript; "none" starts afresh.
            on_error: "raise" cancels the other branches and raises; "collect" leaves failed branches out of
                the results, unless all fail.
        """
        reducer = one_reducer(arms, reduce)
        nodes = cast("Sequence[Any]", arms) if isinstance(arms, Sequence) else [arms]
        ends = [
            end for node in nodes for end in (node.arms if isinstance(node, Arms) else (self._own(node),))
        ]
        if not ends:
            raise GraphError("join() needs at least one arm")
        check_join(ends, reducer, keep, on_error)
        item = union(end.types.output for end in ends)
        flow = Flow[Any, Any, Any](Any, joined_type(reducer, item))
        node = JoinNode(self._free_name(f"join_{ends[0].name}"), flow, self, reducer, keep, on_error)
        self._add(node)
        self._routes.extend((end, Edge(node)) for end in ends)
        return node

    def edge(
        self,
        a: Node[S, Any, T],
        b: Node[S, T, Any],
        /,
        *,
        max_visits: int | None = None,
        transcript: Literal["continue", "fresh"] = "continue",
    ) -> None:
        """After `a` comes `b`.

        Args:
            a: The node before.
            b: The node after.
            max_visits: Bounds how often one task may pass here.
            transcript: "fresh" ends it here: only the value goes on, and the next llm node begins another one
                with its static prefix, as after a summary.
        """
        if max_visits is not None:
            whole_number(f"edge {a.name!r} -> {b.name!r} (max_visits", max_visits, 1)
        if transcript not in ("continue", "fresh"):
            raise InvalidArgument(
                f"edge {a.name!r} -> {b.name!r} (transcript={transcript!r}): write 'continue' or 'fresh'"
            )
        self._routes.append((self._own(a), Edge(self._own(b), max_visits, transcript == "fresh")))

    def branch(self, a: Node[S, Any, object], /) -> Case[S]:
        """After `a` it depends on its output: add `.case(Type, to, where=)` and `.otherwise(to)`."""
        branch = Branch()
        self._routes.append((self._own(a), branch))
        return Case(self, branch)

    def compile(self, *, limits: Limits | None = None) -> "Program[S, I, O]":
        """Validate and lower to a plan. Later changes to the graph don't reach the program.

        Raises:
            InvalidArgument: `limits` is no `Limits`.
            GraphError: Names the node and what to do; a cycle that neither `max_visits` nor `limits` bounds
                is refused.
        """
        from agentree.graph.check import define
        from agentree.graph.plan import lower
        from agentree.graph.program import Program

        if limits is not None and not isinstance(cast("object", limits), Limits):
            raise InvalidArgument(f"graph {self.name!r}: limits={limits!r}: write Limits(turns=8)")
        definition = define(
            self.name, self._state, self._input, self._output, self._nodes, self._routes, limits=limits
        )
        return Program[S, I, O](definition, limits, lower(definition))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            """Say where a program's methods are."""
            what = f"graph {self.__dict__.get('name', '')!r} has no {name!r}"
            if name in ("run", "run_sync", "stream", "resume", "resume_sync", "explain", "mermaid", "plan"):
                what += f": compile it first, as in g.compile().{name}"
            raise AttributeError(what)

    def _own(self, node: Node[Any, Any, Any]) -> NodeSpec:
        return own_node(self.name, self, self._nodes, node)
