"""What a person, a tool or a model says: roles and text, nothing of any model's tokens."""

from dataclasses import dataclass
from typing import Literal, cast, final, get_args

from agentree.errors import InvalidArgument

Role = Literal["system", "user", "assistant", "tool", "raw"]
ROLES: tuple[Role, ...] = get_args(Role)


@final
@dataclass(frozen=True)
class Message:
    """One turn of a conversation, or (`raw`) text that stands outside the chat template."""

    role: Role
    text: str

    def __post_init__(self) -> None:
        """Refuse what no template can render. Raises InvalidArgument."""
        if self.role not in ROLES:
            raise InvalidArgument(f"role={self.role!r} is none: it is one of {', '.join(map(repr, ROLES))}")
        if not isinstance(cast("object", self.text), str):
            raise InvalidArgument(f"text={self.text!r} is no string: a message holds text, so write str(...)")


def system(text: str) -> Message:
    """Instructions; they come first in a transcript."""
    return Message("system", text)


def user(text: str) -> Message:
    """What the person asks."""
    return Message("user", text)


def assistant(text: str) -> Message:
    """A turn that the model is taken to have said: a recorded or worked answer."""
    return Message("assistant", text)


def raw(text: str) -> Message:
    """Text appended as it is, outside the chat template."""
    return Message("raw", text)
