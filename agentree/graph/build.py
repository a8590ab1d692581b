"""The builder: decorated functions become nodes, typed verbs wire them."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, cast, overload

from agentree.errors import GraphError, InvalidArgument
from agentree.graph.bounds import seconds, whole_number
from agentree.graph.ctx import Ctx
from agentree.graph.flow import flow_of, gives_no_awaitable, union, value_type
from agentree.graph.nodes import (
    Arms,
    Branch,
    CallNode,
    CaseArm,
    Edge,
    EndNode,
    ForkWay,
    JoinNode,
    LlmNode,
    MapWay,
    NodeSpec,
    Route,
    SampleNode,
    StartNode,
    StepNode,
    ToolsNode,
)
from agentree.graph.reduce import Selector, joined_type
from agentree.graph.types import Flow, I, Limits, Node, O, R, S, T, U
from agentree.graph.wiring import check_join, one_reducer, own_node
from agentree.lm.arguments import text
from agentree.lm.generate import Options
from agentree.messages import Message
from agentree.tools import ONE_TOOL, Tool, ToolCalls, ToolResult

if TYPE_CHECKING:
    from agentree.graph.program import Program
    from agentree.lm import Generation


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


class Graph(Generic[S, I, O]):
    """A workflow under construction. Nothing runs before `compile()`."""

    @overload
    def __init__(self: "Graph[None, T, U]", name: str, *, input: type[T], output: type[U]) -> None: ...
    @overload
    def __init__(
        self: "Graph[R, T, U]", name: str, *, state: type[R], input: type[T], output: type[U]
    ) -> None: ...
    def __init__(self, name: str, *, state: Any = None, input: Any, output: Any) -> None:
        self.name = name
        self._state = state
        self._input = input
        self._output = output
        self._start = StartNode("start", Flow(Never, input), self)
        self._end = EndNode("end", Flow(output, Never), self)
        self._nodes: list[NodeSpec] = [self._start, self._end]
        self._routes: list[tuple[NodeSpec, Route]] = []

    @property
    def start(self) -> Node[S, Never, I]:
        """Gives the run's input."""
        return self._start

    @property
    def end(self) -> Node[S, O, Never]:
        """Takes the run's output."""
        return self._end

    @overload
    def step(self, fn: Callable[[Ctx[S], T], Awaitable[U]], /) -> Node[S, T, U]: ...
    @overload
    def step(
        self, *, retries: int = 0, timeout: float | None = None, pure: bool = False
    ) -> Callable[[Callable[[Ctx[S], T], Awaitable[U]]], Node[S, T, U]]: ...
    def step(
        self,
        *fn: Callable[[Ctx[Any], Any], Awaitable[Any]],
        retries: int = 0,
        timeout: float | None = None,
        pure: bool = False,
    ) -> Any:
        """An async function as a node.

        Args:
            fn: Takes a `Ctx` and the value that flows in; what it returns flows on.
            retries: How often it is tried again after an exception.
            timeout: Seconds for each try; exceeding them is a `TimeoutError`.
            pure: It may be repeated without harm.
        """

        def make(fn: Callable[[Ctx[Any], Any], Awaitable[Any]]) -> NodeSpec:
            name = _name_of(fn)
            _check_parameters(fn, name)
            if gives_no_awaitable(fn):
                yields = inspect.isasyncgenfunction(fn)
                remedy = "return a value, don't yield" if yields else "write 'async def'"
                raise GraphError(f"step {name!r} gives nothing to await: {remedy}")
            whole_number(f"step {name!r} (retries", retries, 0)
            if timeout is not None:
                seconds(f"step {name!r} (timeout", timeout)
            flow = flow_of(fn)
            return self._add(StepNode(name, flow, self, fn, retries=retries, timeout=timeout, pure=pure))

        return make(*fn) if fn else make

    @overload
    def llm(
        self,
        out: type[T],
        /,
        *,
        tools: Sequence[Tool[..., Any]],
        parallel: bool = False,
        max_tokens: int = 256,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        system: str | None = None,
        think: int = 0,
    ) -> Callable[[Callable[[Ctx[S], R], Message]], Node[S, R, ToolCalls | T]]: ...
    @overload
    def llm(
        self,
        out: type[T],
        /,
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        system: str | None = None,
        think: int = 0,
    ) -> Callable[[Callable[[Ctx[S], R], Message]], Node[S, R, T]]: ...
    @overload
    def llm(
        self,
        a: type[T],
        b: type[U],
        /,
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        system: str | None = None,
        think: int = 0,
    ) -> Callable[[Callable[[Ctx[S], R], Message]], Node[S, R, T | U]]: ...
    @overload
    def llm(
        self,
        out: Any,
        /,
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        system: str | None = None,
        think: int = 0,
    ) -> Callable[[Callable[[Ctx[S], R], Message]], Node[S, R, Any]]: ...
    def llm(
        self,
        *outputs: Any,
        tools: Sequence[Tool[..., Any]] | None = None,
        parallel: bool = False,
        max_tokens: int = 256,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        system: str | None = None,
        think: int = 0,
    ) -> Any:
        """A pure prompt function as a node: it returns the message to append, the model answers.

        Args:
            outputs: What the answer shall be; all but `str` are forced.
            tools: With tools the answer is either `ToolCalls` or the final value.
            parallel: Several calls may be made in one turn.
            max_tokens: Longest answer.
            temperature: 0 is greedy.
            stop: Strings that end a free answer.
            system: Begins the transcript; only for the first llm node of a path.
            think: So many tokens may be written freely before a forced value.

        Raises InvalidArgument for options that `gen` would refuse.
        """
        if isinstance(tools, Tool):
            raise GraphError(f"llm(): {ONE_TOOL.format(tools.name)}")
        given = Options.of(max_tokens, temperature, stop=stop, think=think)
        if system is not None:
            text("system", system, "instructions that begin the transcript")
        return self._llm(
            outputs,
            tools=None if tools is None else tuple(tools),
            parallel=parallel,
            max_tokens=given.max_tokens,
            temperature=given.temperature,
            stop=given.stop,
            system=system,
            think=given.think,
        )

    def _llm(self, outputs: tuple[Any, ...], **options: Any) -> Callable[[Callable[..., Message]], NodeSpec]:
        if not outputs:
            raise GraphError("llm() needs the type of its answer: @g.llm(str) for free text")
        if inspect.isfunction(outputs[0]):
            raise GraphError(
                f"llm node {outputs[0].__name__!r} lacks the type of its answer: write @g.llm(str) above it, "
                "or another type"
            )

        def make(prompt: Callable[..., Message]) -> NodeSpec:
            name = _name_of(prompt)
            _check_parameters(prompt, name)
            if inspect.iscoroutinefunction(prompt):
                raise GraphError(
                    f"llm node {name!r}: write 'def', not 'async def': a prompt is a pure function"
                )
            if options.get("parallel") and not options.get("tools"):
                raise GraphError(f"llm node {name!r}: parallel=True is for tool calls: give it tools=[...]")
            _check_tools(options.get("tools") or (), f"llm node {name!r}")
            values = tuple(value_type(output) for output in outputs)
            given = (ToolCalls, *values) if options.get("tools") else values
            flow = Flow[Any, Any, Any](flow_of(prompt).input, union(given))
            return self._add(LlmNode(name, flow, self, prompt, outputs, **options))

        return make

    def tools(self, *tools: Tool[..., Any], parallel: int = 8) -> Node[S, ToolCalls, list[ToolResult]]:
        """Runs the calls of one turn, `parallel` at a time; results come in call order.

        A tool's exception becomes an error result for the model.
        """
        if not tools:
            raise GraphError("tools() needs at least one tool")
        _check_tools(tools, "tools()")
        whole_number("tools(parallel", parallel, 1)
        flow = Flow[Any, Any, Any](ToolCalls, list[ToolResult])
        return self._add(ToolsNode(self._free_name("tools"), flow, self, tools, parallel))

    def sample(
        self, n: int, out: type[T], /, *, max_tokens: int = 256, temperature: float = 1.0
    ) -> Callable[[Callable[[Ctx[S], R], Message]], "Node[S, R, list[Generation[T]]]"]:
        """A pure prompt function as a node that samples `n` answers on branches of the transcript.

        The successors go on from before the question; a step may `goto` the transcript of one answer.
        """
        given = Options.of(max_tokens, temperature)
        return self._sample(n, out, max_tokens=given.max_tokens, temperature=given.temperature)

    def _sample(self, n: int, out: Any, **options: Any) -> Callable[[Callable[..., Message]], Any]:
        whole_number("sample(n", n, 1)

        def make(prompt: Callable[..., Message]) -> NodeSpec:
            name = _prompt_name(prompt)
            flow = Flow[Any, Any, Any](flow_of(prompt).input, list)
            return self._add(SampleNode(name, flow, self, prompt, n, out, **options))

        return make

    def call(
        self, program: "Program[Any, T, U]", /, *, transcript: Literal["fresh", "fork"] = "fresh"
    ) -> Node[S, T, U]:
        """Another program as a node: its own state, its own limits within this run's.

        Args:
            program: What is run.
            transcript: "fresh" begins with the program's own static prefix; "fork" continues from this
                graph's transcript. Either way this graph goes on from its own.
        """
        from agentree.graph.program import Program

        if not isinstance(cast("object", program), Program):
            raise GraphError(f"call() takes a compiled program, not {program!r}: use g.compile()")
        inner = program._definition
        flow = Flow[Any, Any, Any](inner.input, inner.output)
        return self._add(CallNode(self._free_name(program.name), flow, self, program, transcript))

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

    def _add(self, node: NodeSpec) -> NodeSpec:
        self._nodes.append(node)
        return node

    def _free_name(self, base: str) -> str:
        taken = {node.name for node in self._nodes}
        names = (base if i == 1 else f"{base}_{i}" for i in range(1, len(taken) + 2))
        return next(name for name in names if name not in taken)


def _check_tools(tools: Sequence[object], where: str) -> None:
    for one in tools:
        if isinstance(one, list | tuple):
            raise GraphError(f"{where}: takes the tools themselves, not a list of them: write *tools")
        if not isinstance(one, Tool):
            what = repr(one.__name__) if inspect.isfunction(one) else repr(one)
            raise GraphError(f"{where}: {what} is not a tool: decorate the function with @tool")


def _name_of(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__name__", None)
    if not isinstance(name, str):
        inner = cast("object", getattr(fn, "func", fn))
        name = getattr(inner, "__name__", None) or type(inner).__name__
    return cast("str", name)


def _prompt_name(prompt: Callable[..., Any]) -> str:
    name = _name_of(prompt)
    _check_parameters(prompt, name)
    if inspect.iscoroutinefunction(prompt):
        raise GraphError(f"node {name!r}: write 'def', not 'async def': a prompt is a pure function")
    return name


def _check_parameters(fn: Callable[..., Any], name: str) -> None:
    if not callable(fn):
        raise GraphError(f"{fn!r} is not a function")
    try:
        inspect.signature(fn).bind(object(), object())
    except TypeError:
        raise GraphError(f"node {name!r}: its function must take (ctx, value)") from None
    except ValueError:
        return
