"""Constraints: regular expressions, choices and JSON Schema to automata, token masks and forced runs. No
torch.

Names are loaded on first use: whoever forces nothing needs none of the automata.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentree.runtime.constraint.bound import Matcher as Matcher
    from agentree.runtime.constraint.bound import TokenConstraint as TokenConstraint
    from agentree.runtime.constraint.constraint import Constraint as Constraint
    from agentree.runtime.constraint.forming import CallNamed as CallNamed
    from agentree.runtime.constraint.forming import CallWatch as CallWatch
    from agentree.runtime.constraint.forming import CallWritten as CallWritten
    from agentree.runtime.constraint.output import Output as Output
    from agentree.runtime.constraint.output import compile_constraint as compile_constraint
    from agentree.runtime.constraint.output import output_of as output_of
    from agentree.runtime.constraint.spec import Choice as Choice
    from agentree.runtime.constraint.spec import JSONSchema as JSONSchema
    from agentree.runtime.constraint.spec import Regex as Regex
    from agentree.runtime.constraint.turns import FINAL as FINAL
    from agentree.runtime.constraint.turns import Answer as Answer
    from agentree.runtime.constraint.turns import answers_as_object as answers_as_object
    from agentree.runtime.constraint.turns import final_schema as final_schema
    from agentree.runtime.constraint.turns import parse_turn as parse_turn
    from agentree.runtime.constraint.turns import tool_calls as tool_calls
    from agentree.runtime.constraint.vocabulary import Vocabulary as Vocabulary

_HOMES = {
    "bound": (
        "Matcher",
        "TokenConstraint",
    ),
    "constraint": ("Constraint",),
    "forming": (
        "CallNamed",
        "CallWatch",
        "CallWritten",
    ),
    "output": (
        "Output",
        "compile_constraint",
        "output_of",
    ),
    "spec": (
        "Choice",
        "JSONSchema",
        "Regex",
    ),
    "turns": (
        "FINAL",
        "Answer",
        "answers_as_object",
        "final_schema",
        "parse_turn",
        "tool_calls",
    ),
    "vocabulary": ("Vocabulary",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
