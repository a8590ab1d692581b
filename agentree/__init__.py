"""agentree: agents as workflow graphs over an inference runtime of their own.

Everything public is importable from here. Names are loaded on first use, so that `import agentree` stays
cheap: torch comes in only when a runtime opens.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentree.errors import AgentreeError as AgentreeError
    from agentree.errors import AlreadyAnswered as AlreadyAnswered
    from agentree.errors import ConstraintError as ConstraintError
    from agentree.errors import ContextOverflow as ContextOverflow
    from agentree.errors import Deadlock as Deadlock
    from agentree.errors import GraphError as GraphError
    from agentree.errors import Interrupted as Interrupted
    from agentree.errors import InvalidArgument as InvalidArgument
    from agentree.errors import InvalidValue as InvalidValue
    from agentree.errors import JournalError as JournalError
    from agentree.errors import LimitReached as LimitReached
    from agentree.errors import ModelError as ModelError
    from agentree.errors import Question as Question
    from agentree.errors import RuntimeClosed as RuntimeClosed
    from agentree.errors import StrayCancellation as StrayCancellation
    from agentree.errors import ToolDefinitionError as ToolDefinitionError
    from agentree.errors import UncertainCall as UncertainCall
    from agentree.errors import Unsupported as Unsupported
    from agentree.events import Event as Event
    from agentree.graph import Approval as Approval
    from agentree.graph import Case as Case
    from agentree.graph import Ctx as Ctx
    from agentree.graph import Graph as Graph
    from agentree.graph import Limits as Limits
    from agentree.graph import Node as Node
    from agentree.graph import Plan as Plan
    from agentree.graph import Program as Program
    from agentree.graph import Run as Run
    from agentree.graph import Selector as Selector
    from agentree.graph import best as best
    from agentree.graph import best_of_n as best_of_n
    from agentree.graph import collect as collect
    from agentree.graph import first as first
    from agentree.graph import map_reduce as map_reduce
    from agentree.graph import react as react
    from agentree.graph import top as top
    from agentree.graph import tree_of_thought as tree_of_thought
    from agentree.graph import vote as vote
    from agentree.lm import Forks as Forks
    from agentree.lm import Generation as Generation
    from agentree.lm import Runtime as Runtime
    from agentree.lm import Stats as Stats
    from agentree.lm import Stream as Stream
    from agentree.lm import Transcript as Transcript
    from agentree.lm import Usage as Usage
    from agentree.messages import Message as Message
    from agentree.messages import assistant as assistant
    from agentree.messages import raw as raw
    from agentree.messages import system as system
    from agentree.messages import user as user
    from agentree.runtime.constraint import Choice as Choice
    from agentree.runtime.constraint import Constraint as Constraint
    from agentree.runtime.constraint import JSONSchema as JSONSchema
    from agentree.runtime.constraint import Regex as Regex
    from agentree.runtime.constraint import compile_constraint as compile_constraint
    from agentree.tools import Tool as Tool
    from agentree.tools import ToolCall as ToolCall
    from agentree.tools import ToolCalls as ToolCalls
    from agentree.tools import ToolFailed as ToolFailed
    from agentree.tools import ToolResult as ToolResult
    from agentree.tools import ToolRetry as ToolRetry
    from agentree.tools import tool as tool
    from agentree.tools import tool_call as tool_call
    from agentree.tools import tool_result as tool_result

_HOMES = {
    "agentree.errors": (
        "AgentreeError",
        "AlreadyAnswered",
        "ConstraintError",
        "ContextOverflow",
        "Deadlock",
        "GraphError",
        "Interrupted",
        "InvalidArgument",
        "InvalidValue",
        "JournalError",
        "LimitReached",
        "ModelError",
        "Question",
        "RuntimeClosed",
        "StrayCancellation",
        "ToolDefinitionError",
        "UncertainCall",
        "Unsupported",
    ),
    "agentree.events": ("Event",),
    "agentree.graph": (
        "Approval",
        "Case",
        "Ctx",
        "Graph",
        "Limits",
        "Node",
        "Plan",
        "Program",
        "Run",
        "Selector",
        "best",
        "best_of_n",
        "collect",
        "first",
        "map_reduce",
        "react",
        "top",
        "tree_of_thought",
        "vote",
    ),
    "agentree.lm": ("Forks", "Generation", "Runtime", "Stats", "Stream", "Transcript", "Usage"),
    "agentree.messages": ("Message", "assistant", "raw", "system", "user"),
    "agentree.runtime.constraint": ("Choice", "Constraint", "JSONSchema", "Regex", "compile_constraint"),
    "agentree.tools": (
        "Tool",
        "ToolCall",
        "ToolCalls",
        "ToolFailed",
        "ToolResult",
        "ToolRetry",
        "tool",
        "tool_call",
        "tool_result",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'agentree' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
