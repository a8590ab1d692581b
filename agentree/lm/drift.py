"""Where a chat template, rendered anew for each turn, would not continue the tokens of the turn before."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agentree.chat import ChatTemplate, TemplateFailed, ToolLike
from agentree.lm.prompt import Prompts
from agentree.messages import Message, assistant, system, user


class _Tool(NamedTuple):
    name: str
    description: str
    schema: dict[str, object]


WEATHER = _Tool(
    "weather",
    "Tell the weather.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
CALL = '{"name": "weather", "arguments": {"city": "Oslo"}}'
CONVERSATIONS: dict[str, tuple[tuple[Message, ...], tuple[ToolLike, ...]]] = {
    "plain": ((user("Hello."), assistant("Hi."), user("How are you?"), assistant("Fine.")), ()),
    "system": ((system("Be brief."), user("Hello."), assistant("Hi."), user("Bye."), assistant("Bye.")), ()),
    "tools": (
        (
            system("Be brief."),
            user("Weather in Oslo?"),
            assistant(CALL),
            Message("tool", "4 degrees"),
            assistant("It is cold."),
            user("Thanks."),
        ),
        (WEATHER,),
    ),
    "reasoning": (
        (
            user("2+2?"),
            assistant("<think>\nTwo and two.\n</think>\n\n4"),
            user("3+3?"),
            assistant("<think>\nThree and three.\n</think>\n\n6"),
        ),
        (),
    ),
}


@dataclass(frozen=True)
class Drift:
    """One boundary at which re-rendering breaks the prefix. Transcripts keep the first rendering."""

    conversation: str
    boundary: str
    """Roles on both sides, "assistant -> user"; "opening" where the generation prompt is not what follows."""
    at: int
    """Index of the first token that differs."""
    before: str
    """Text from there on in the shorter rendering, at most 40 characters."""
    after: str
    """The same in the longer one."""

    def __str__(self) -> str:
        """The sentence that a report shows."""
        return (
            f"{self.conversation}: {self.boundary}: token {self.at} changes from {self.before!r} "
            f"to {self.after!r} when the template renders the next turn"
        )


@dataclass(frozen=True)
class TemplateReport:
    """What loading a model found out about its chat template."""

    fallbacks: tuple[str, ...]
    """What the template can't do, and what is done in its place."""
    drifts: tuple[Drift, ...]
    """Boundaries where another client, which re-renders every turn, would lose the cached prefix."""


def check_template(prompts: Prompts) -> TemplateReport:
    """Compare turn n with turn n + 1 over a few conversations, with tools and with reasoning content."""
    drifts = [
        drift
        for name, (messages, tools) in CONVERSATIONS.items()
        for drift in _drifts(prompts, name, messages, tools)
    ]
    return TemplateReport(tuple(prompts.chat.fallbacks), tuple(drifts))


def _drifts(
    prompts: Prompts, name: str, messages: Sequence[Message], tools: Sequence[ToolLike]
) -> list[Drift]:
    def encode(text: str) -> list[int]:
        return list(prompts.raw(text, start=True).ids)

    found: list[Drift] = []
    for n in range(1, len(messages)):
        longer = _whole(prompts.chat, messages[: n + 1], tools)
        before, after = messages[n - 1].role, messages[n].role
        for boundary, shorter in (
            (f"{before} -> {after}", _whole(prompts.chat, messages[:n], tools)),
            (
                "opening",
                _whole(prompts.chat, messages[:n], tools, turn=True) if after == "assistant" else None,
            ),
        ):
            if shorter is not None and longer is not None:
                found += _compare(name, boundary, encode, prompts, shorter, longer)
    return found


def _whole(
    chat: ChatTemplate, messages: Sequence[Message], tools: Sequence[ToolLike], *, turn: bool = False
) -> str | None:
    try:
        return chat.whole(messages, tools, turn=turn)
    except TemplateFailed:
        return None


def _compare(
    name: str, boundary: str, encode: Callable[[str], list[int]], prompts: Prompts, shorter: str, longer: str
) -> list[Drift]:
    a, b = encode(shorter), encode(longer)
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    if at == len(a):
        return []
    return [Drift(name, boundary, at, prompts.shown(a[at:])[:40], prompts.shown(b[at:])[:40])]
