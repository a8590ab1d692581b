"""Classes of which only their own schema knows what they hold: they write themselves, and are compared."""

from typing import Any

from pydantic import (
    PydanticSchemaGenerationError,
    PydanticUserError,
    Secret,
    SecretBytes,
    SecretStr,
    TypeAdapter,
)

from agentree.graph.journal.attributes import foreign_base, has_fields, own_attributes
from agentree.graph.journal.unstorable import Unstorable, first_lines


def adapter_of(cls: type[Any]) -> TypeAdapter[Any]:
    """What writes and reads values of a class. Raises Unstorable where nothing does, or should."""
    what = f"values of {cls.__name__}"
    if issubclass(cls, SecretStr | SecretBytes | Secret):
        raise Unstorable(what, "a file is no place for secrets: let functions get it from where it is kept")
    if (foreign := foreign_base(cls)) is not None and has_fields(cls):
        raise Unstorable(
            what, f"it inherits from {foreign.__name__}, which keeps more than can be seen: use another class"
        )
    try:
        return TypeAdapter[Any](cls)
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError, NameError) as e:
        raise unwritten(cls) from e


def unwritten(cls: type[Any]) -> Unstorable:
    """What is said of a class that a journal has no way to write."""
    return Unstorable(
        f"values of {cls.__name__}",
        "use a dataclass or a pydantic model of plain values, or run without a journal",
    )


def adapted(adapter: TypeAdapter[Any], cls: type[Any], value: Any) -> str:
    """A value as its class writes it as JSON. Raises Unstorable where the class reads that as another one."""
    what = f"a value of type {cls.__name__}"
    try:
        text = adapter.dump_json(value, round_trip=True, by_alias=False, warnings=False).decode()
        back = adapter.validate_json(text, by_name=True, by_alias=False)
    except Exception as e:
        raise Unstorable(what, f"it can't be written as JSON ({first_lines(e)})") from e
    same = type(back) is cls and back == value and repr(back) == repr(value)
    if not same or own_attributes(back) != own_attributes(value):
        raise Unstorable(what, "it would come back from JSON as another one: store what it is made of")
    return text
