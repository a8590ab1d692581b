"""Instances of classes that have changed since a run wrote them, where it is resumed all the same."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError

from agentree.graph.flow import show
from agentree.graph.journal.attributes import field_names, hints
from agentree.graph.journal.unstorable import Unstorable


def settle(cls: type[Any], made: Any, found: Mapping[str, Any], before: list[str]) -> None:
    """Give an instance what it had, as far as its class still has that.

    Fields that are gone are dropped, new ones get their default.

    Args:
        cls: Its class.
        made: The instance, without attributes.
        found: Its attributes as they were written.
        before: The fields that its class had then.

    Raises:
        Unstorable: A new field has no default, or a field does not take any more what is in it.
    """
    names, now = field_names(cls), hints(cls)
    for name, value in found.items():
        if name not in before or name in names:
            object.__setattr__(made, name, value)
    for name in names:
        if name in found:
            _check(cls, name, now.get(name, Any), found[name])
        elif name not in before:
            object.__setattr__(made, name, _default(cls, name))


def _default(cls: type[Any], name: str) -> Any:
    if issubclass(cls, BaseModel):
        info = cls.model_fields[name]
        if not info.is_required():
            return info.get_default(call_default_factory=True)
    elif is_dataclass(cls):
        found = next(f for f in fields(cls) if f.name == name)
        if found.default is not MISSING:
            return found.default
        if found.default_factory is not MISSING:
            return found.default_factory()
    raise Unstorable(
        f"a value of type {cls.__name__} that was written before it had {name!r}", "give this field a default"
    )


def _check(cls: type[Any], name: str, form: Any, value: Any) -> None:
    try:
        TypeAdapter[Any](form).validate_python(value, strict=True)
    except ValidationError as e:
        raise Unstorable(
            f"a value of type {cls.__name__} whose {name!r} is {show(form)} now",
            f"what was written does not fit: {e.errors(include_url=False)[0]['msg']}",
        ) from e
    except PydanticUserError:
        return  # only its class could tell, and it has no words for it
