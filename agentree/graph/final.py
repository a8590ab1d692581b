"""The answer of a tool turn: the pseudo call `final_answer`, and its form for a turn that can only answer."""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field, PydanticUserError, TypeAdapter, create_model

from agentree.messages import Message
from agentree.tools import canonical_json

FINAL = "final_answer"
MAX_TEXT = 400
"""Longest free text as an answer, in characters."""


def is_object(output: Any) -> bool:
    """Whether a type's JSON is one object, which then stands for the arguments of the final answer itself."""
    if output is str:
        return False
    try:
        schema = TypeAdapter[Any](output).json_schema()
    except (PydanticUserError, TypeError):
        return False
    if "$ref" in schema:
        schema = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema.get("type") == "object"


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


def final_arguments(output: Any, value: object) -> object:
    """A value of the output type as the arguments of a final answer."""
    return value if is_object(output) else {"answer": value}
