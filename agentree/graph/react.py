"""The ReAct template: a model that calls tools until it can answer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from typing_extensions import TypeVar

from agentree.errors import GraphError
from agentree.graph.build import Graph
from agentree.graph.clip import clip_tokens
from agentree.graph.ctx import Ctx
from agentree.graph.final import final_outline
from agentree.graph.types import Limits
from agentree.graph.worked import worked_turns
from agentree.messages import Message, raw, user
from agentree.tools import Tool, ToolCalls, ToolResult, tool_result, tools_by_name

if TYPE_CHECKING:
    from agentree.graph.program import Program

T = TypeVar("T")

INSTRUCTIONS = (
    "Answer the question with the help of the tools. "
    "Call a tool, read its result, then give the final answer."
)
LIMITS = Limits(turns=8, repeats=2, on_limit="answer")
MAX_RESULT = 1000
"""Longest text of a turn's tool results, in tokens."""
MAX_TOKENS = 512
"""Longest turn of the model, in tokens."""


@overload
def react(
    *,
    tools: Sequence[Tool[..., Any]],
    output: type[T],
    instructions: str = INSTRUCTIONS,
    examples: Sequence[Message] = (),
    parallel: bool = False,
    limits: Limits = LIMITS,
    name: str = "react",
) -> "Program[None, str, T]": ...
@overload
def react(
    *,
    tools: Sequence[Tool[..., Any]],
    output: Any,
    instructions: str = INSTRUCTIONS,
    examples: Sequence[Message] = (),
    parallel: bool = False,
    limits: Limits = LIMITS,
    name: str = "react",
) -> "Program[None, str, Any]": ...
def react(
    *,
    tools: Sequence[Tool[..., Any]],
    output: type[T],
    instructions: str = INSTRUCTIONS,
    examples: Sequence[Message] = (),
    parallel: bool = False,
    limits: Limits = LIMITS,
    name: str = "react",
) -> "Program[None, str, T]":
    """An agent that calls tools until it answers with a value of `output`.

    Args:
        tools: What it may call.
        output: Type of the answer; it is forced, like the calls. Of a form that is no class, such as
            `Literal["yes", "no"]`, what the program gives is written for a type checker as for `best_of_n`.
        instructions: What it is told first.
        examples: Worked turns for the static prefix (`user`, `tool_call`, `tool_result`, `assistant`).
            Without any, short ones are made of the tools' schemas.
        parallel: Several calls may be made in one turn; they run side by side, and each turn is a list.
        limits: By default 8 turns, no call twice, and at the limit one last turn that must answer.
        name: Of the program; where another program calls it, traces and plans show it.
    """
    if not tools:
        raise GraphError(
            "react() needs at least one tool; without tools use Transcript.gen or a graph of llm nodes"
        )
    known = list(tools_by_name(tools).values())
    graph = Graph(name, input=str, output=output)
    told = f"{instructions}\nThe final answer is given as a call too: {final_outline(output)}"

    @graph.step
    async def ask(ctx: Ctx, question: str) -> Message:
        return user(question)

    think = graph._llm(
        (output,),
        tools=tuple(known),
        parallel=parallel,
        max_tokens=MAX_TOKENS,
        system=told,
        examples=tuple(examples) or worked_turns(known, output, parallel=parallel),
    )(_think)
    act = graph.tools(*known)

    @graph.step
    async def observe(ctx: Ctx, results: list[ToolResult]) -> Message:
        def count(text: str) -> int:
            return len(ctx.lm.transcript(raw(text)))

        limit = MAX_RESULT // max(len(results), 1)
        return tool_result([replace(r, content=clip_tokens(count, r.content, limit)) for r in results])

    graph.edge(graph.start, ask)
    graph.edge(ask, think)
    graph.branch(think).case(ToolCalls, act).otherwise(graph.end)
    graph.edge(act, observe)
    graph.edge(observe, think)
    return graph.compile(limits=limits)


def _think(ctx: Ctx, message: Message) -> Message:
    return message


_think.__name__ = "think"
