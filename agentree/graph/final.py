"""The answer of a tool turn: the pseudo call `final_answer`, and its form for a turn that can only answer."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, cast

from pydantic import Field, create_model

from agentree.messages import Message
from agentree.runtime.constraint import FINAL, answers_as_object, final_schema, output_of
from agentree.tools import canonical_json

MAX_TEXT = 400
"""Longest free text as an answer, in characters."""


def is_object(output: Any) -> bool:
    """Whether the output itself stands for the arguments of the final answer."""
    return answers_as_object(output_of(output))


def final_turn(output: Any) -> tuple[type[Any], Callable[[Any], Any]]:
    """The type of a turn that can only be the final answer, and what takes the value out of it."""
    try:
        return _final_turn(output)
    except TypeError:  # a type form that can't be hashed
        return _final_turn.__wrapped__(output)


@lru_cache(maxsize=64)
def _final_turn(output: Any) -> tuple[type[Any], Callable[[Any], Any]]:
    name: Any = (Literal["final_answer"], ...)
    if is_object(output):
        whole = create_model("FinalAnswer", name=name, arguments=(output, ...))
        return whole, lambda turn: turn.arguments
    inner: Any = Annotated[str, Field(max_length=MAX_TEXT)] if output is str else output
    arguments = create_model("Arguments", answer=(inner, ...))
    whole = create_model("FinalAnswer", name=name, arguments=(arguments, ...))
    return whole, lambda turn: turn.arguments.answer


def final_message(arguments: object) -> Message:
    """A worked final answer as an assistant message."""
    return Message("assistant", canonical_json({"name": FINAL, "arguments": arguments}))


def final_arguments(output: Any) -> Mapping[str, Any]:
    """JSON Schema of a final answer's arguments."""
    return final_schema(output_of(output))


def final_outline(output: Any) -> str:
    """A final answer with "..." for each value, to be shown in a prompt."""
    schema = final_arguments(output)
    while "$ref" in schema:
        schema = cast("Mapping[str, Any]", schema["$defs"])[str(schema["$ref"]).rpartition("/")[2]]
    names = cast("Mapping[str, Mapping[str, Any]]", schema.get("properties", {}))
    shown = ", ".join(
        f"{canonical_json(name)}: {chr(34) * (inner.get('type') == 'string')}..."
        f"{chr(34) * (inner.get('type') == 'string')}"
        for name, inner in names.items()
    )
    return f'{{"name": "{FINAL}", "arguments": {{{shown or "..."}}}}}'
