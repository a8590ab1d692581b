"""Graphs of LLM, tool and branch nodes, compiled into prefix plans and run."""

from agentree.graph.build import Case, Graph
from agentree.graph.ctx import Ctx
from agentree.graph.plan import Plan
from agentree.graph.program import Program
from agentree.graph.react import react
from agentree.graph.run import Run
from agentree.graph.types import Limits, Node

__all__ = ["Case", "Ctx", "Graph", "Limits", "Node", "Plan", "Program", "Run", "react"]
