"""Decorated functions become nodes: steps, prompts, tools, and programs that are called."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, cast, overload

from agentree.errors import GraphError
from agentree.graph.bounds import seconds, whole_number
from agentree.graph.ctx import Ctx
from agentree.graph.flow import flow_of, gives_no_awaitable, union, value_type
from agentree.graph.nodes import CallNode, LlmNode, NodeSpec, SampleNode, StepNode, ToolsNode
from agentree.graph.types import Flow, Node, R, S, T, U
from agentree.lm.arguments import text
from agentree.lm.generate import Options
from agentree.messages import Message
from agentree.tools import ONE_TOOL, Tool, ToolCalls, ToolResult

if TYPE_CHECKING:
    from agentree.graph.program import Program
    from agentree.lm import Generation


class Maker(Generic[S]):
    """The nodes of a graph under construction: the part of `Graph` that makes them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: list[NodeSpec] = []

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
