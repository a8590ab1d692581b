"""Constraints: regular expressions, choices and JSON Schema to automata, token masks and forced runs. No
torch.
"""

from agentree.runtime.constraint.bound import Matcher, TokenConstraint
from agentree.runtime.constraint.constraint import Constraint
from agentree.runtime.constraint.forming import CallNamed, CallWatch, CallWritten
from agentree.runtime.constraint.output import Output, compile_constraint, output_of
from agentree.runtime.constraint.spec import Choice, JSONSchema, Regex
from agentree.runtime.constraint.turns import (
    FINAL,
    Answer,
    answers_as_object,
    final_schema,
    parse_turn,
    tool_calls,
)
from agentree.runtime.constraint.vocabulary import Vocabulary

__all__ = [
    "FINAL",
    "Answer",
    "CallNamed",
    "CallWatch",
    "CallWritten",
    "Choice",
    "Constraint",
    "JSONSchema",
    "Matcher",
    "Output",
    "Regex",
    "TokenConstraint",
    "Vocabulary",
    "answers_as_object",
    "compile_constraint",
    "final_schema",
    "output_of",
    "parse_turn",
    "tool_calls",
]
