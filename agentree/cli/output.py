"""Text in and out: the input of a program, and its result as text."""

import sys
from typing import Any, TextIO, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from agentree.cli.report import WrongUse, reason, say


def read_input(argument: str) -> str:
    """The text of `--input`: as given, or all of stdin for "-" (without its last line break).

    Raises WrongUse where it is no UTF-8 text.
    """
    if argument != "-":
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise WrongUse(f"the input is not UTF-8 text: character {error.start} is half of one") from error
        return argument
    stream = cast("TextIO | None", sys.stdin)
    if stream is None:
        raise WrongUse("the input is to come from standard input, which is closed: give --input a text")
    data = stream.buffer.read()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise WrongUse(f"the input is not UTF-8 text: see byte {error.start}") from error
    return text.removesuffix("\n").removesuffix("\r")


def as_input(kind: Any, text: str) -> object:
    """The text as a program's input: as it is for `str`, as JSON of the type for everything else.

    Raises WrongUse where the text is no such value.
    """
    if kind is str or kind is Any:
        return text
    try:
        return TypeAdapter[object](kind).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        what = f"{where}: {first['msg']}" if where else first["msg"]
        name = kind.__name__ if isinstance(kind, type) else str(kind)
        raise WrongUse(
            f"the program takes {name}, so the input must be such a value as JSON: {what}"
        ) from error


def render(value: object) -> str:
    """A result for stdout: text as it is, pydantic models, dataclasses and plain values as JSON.

    What can't be JSON, such as a list that holds itself, is shown as Python writes it, and stderr says so.
    """
    if isinstance(value, str):
        return value
    try:
        return to_json(value, indent=2, inf_nan_mode="constants", fallback=str).decode()
    except Exception as error:  # also what a __str__ or a serializer of the user's raises
        say(f"the result is no JSON value, so it is printed as Python writes it: {reason(error)}")
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__} that can't be written: {reason(error)}>"
