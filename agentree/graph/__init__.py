"""Graphs of LLM, tool and branch nodes, compiled into prefix plans and run."""

from agentree.graph.build import Case, Graph
from agentree.graph.ctx import Ctx
from agentree.graph.journal.questions import Approval
from agentree.graph.plan import Plan
from agentree.graph.program import Program
from agentree.graph.react import react
from agentree.graph.reduce import Selector, best, collect, first, top, vote
from agentree.graph.run import Run
from agentree.graph.templates import best_of_n, map_reduce
from agentree.graph.thought import tree_of_thought
from agentree.graph.types import Limits, Node

__all__ = [
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
]
