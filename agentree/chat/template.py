"""Chat templates as deltas: what each message adds to a conversation, as text; a transcript only grows.

A model's template renders a whole conversation. What a message adds is taken as the difference between
`template([anchor, message])` and `template([anchor])` for a fixed short anchor, so the text of a turn never
depends on how long the conversation is and earlier text is never rendered again.

Text that spells a control token inside a message stays text: while the template runs, a stand-in takes its
place, and the result says which spans may hold control tokens.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentree.chat.guard import Guard, Span, Spans, ToolLike, described, native
from agentree.chat.jinja import Renderer, TemplateFailed
from agentree.messages import Message


@dataclass(frozen=True)
class Anchor:
    """The conversation that messages of one role are rendered after."""

    messages: tuple[dict[str, Any], ...]
    base: str
    """What the rendering of anchor and message starts with, whatever the message."""
    exact: bool
    """Whether `base` is the whole rendering of the anchor: nothing is rendered otherwise later."""


CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PLAIN = (
    "{{ bos_token }}{% for message in messages %}{{ message.role + ': ' + message.content + '\n\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)
PROBE = "Zebra probe"
USER: dict[str, Any] = {"role": "user", "content": "a"}
ASSISTANT: dict[str, Any] = {"role": "assistant", "content": "b"}
CALLING: dict[str, Any] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "f", "arguments": {}}}],
}
PROBE_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "zebra_probe",
        "description": "Probe.",
        "parameters": {"type": "object", "properties": {}},
    },
}
ANCHORS: dict[str, tuple[tuple[dict[str, Any], ...], ...]] = {
    "user": ((USER, ASSISTANT), (USER,), ()),
    "assistant": ((USER,), ()),
    "tool": ((USER, ASSISTANT), (USER, CALLING), (USER,)),
    "system": ((USER, ASSISTANT), (USER,)),
}
STAND_INS = {"tool": "Tool result:\n", "system": "Instructions:\n"}
CALLS = (
    'To call a tool, answer with one JSON object: {"name": "<tool>", "arguments": {<its arguments>}} '
    "and nothing else."
)


def tool_block(tools: Iterable[ToolLike]) -> str:
    """Descriptions of tools for templates without a place for them: one line each, and how to call."""
    lines = [json.dumps(described(t), ensure_ascii=False) for t in tools]
    return "\n".join(["You can call these tools:", *lines, CALLS])


class ChatTemplate:
    """One model's template, probed once.

    `controls` are the strings of the tokenizer's control tokens. `fallbacks` says in words what the template
    can't do and what is done in its place. Raises TemplateFailed if the source can't be compiled or renders
    no user message.
    """

    def __init__(
        self, source: str | None, *, bos: str = "", eos: str = "", controls: Sequence[str] = ()
    ) -> None:
        if source is None:
            source = CHATML if {"<|im_start|>", "<|im_end|>"} <= set(controls) else PLAIN
        self._renderer = Renderer(source, bos=bos, eos=eos)
        self._bos = bos
        ordered = sorted({*controls, bos, eos} - {""}, key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        self.fallbacks: list[str] = list(self._renderer.notes)
        self._anchors: dict[str, Anchor] = {}
        for role in ("user", "assistant"):
            anchor = self._find_anchor(role)
            if anchor is None:
                raise TemplateFailed(f"the chat template renders no {role} message")
            self._anchors[role] = anchor
        for role, prefix in STAND_INS.items():
            anchor = self._find_anchor(role)
            if anchor is None:
                self.fallbacks.append(f"{role} messages are rendered as user messages after {prefix!r}")
            else:
                self._anchors[role] = anchor
        probe = {"role": "system", "content": PROBE}
        self.has_system = self._shows(PROBE, [probe, USER])
        if not self.has_system:
            self.fallbacks.append("a leading system message is merged into the first turn")
        self.has_tools = self._shows(PROBE_TOOL["function"]["name"], [USER], [PROBE_TOOL])
        if not self.has_tools:
            self.fallbacks.append("tools are described in the system message")
        self.turn_opening = self._generation_prompt()
        shown = self._delta({"role": "assistant", "content": PROBE})
        self.turn_close = shown[shown.rindex(PROBE) + len(PROBE) :]

    @property
    def exact(self) -> bool:
        """Whether deltas of every role are plain continuations of what came before."""
        return all(a.exact for a in self._anchors.values())

    def stands_alone(self, tools: Sequence[ToolLike]) -> bool:
        """Whether a leading system message renders the same with and without the message after it."""
        if not self.has_system:
            return False
        head = {"role": "system", "content": PROBE}
        listed = native(tools) if tools and self.has_tools else None
        try:
            alone = self._renderer.render([head], tools=listed)
            followed = self._renderer.render([head, USER], tools=listed)
        except TemplateFailed:
            return False
        return PROBE in alone and followed == alone + self._delta(USER)

    def opening(self, messages: Sequence[Message], tools: Sequence[ToolLike] = ()) -> Spans:
        """Start of a conversation: the template's own head, the tools, and `messages`.

        `messages` is empty, a system message, another message, or a system message and another one.
        """
        guard = Guard(self._controls, [m.text for m in messages], tools)
        shown, listed = self._prepared([{"role": m.role, "content": m.text} for m in messages], tools)
        shown = [{"role": m["role"], "content": guard.hide(m["content"])} for m in shown]
        return guard.spans(self._open(shown, guard.hide_all(listed)))

    def delta(self, message: Message) -> Spans:
        """What one message adds to a conversation that goes on."""
        guard = Guard(self._controls, [message.text])
        return guard.spans(self._delta({"role": message.role, "content": guard.hide(message.text)}))

    def whole(
        self, messages: Sequence[Message], tools: Sequence[ToolLike] = (), *, turn: bool = False
    ) -> str:
        """The conversation rendered at once, as text; `turn` adds the assistant's opening.

        Raises TemplateFailed where the template refuses it.
        """
        shown, listed = self._prepared([{"role": m.role, "content": m.text} for m in messages], tools)
        return self._renderer.render(shown, tools=listed, turn=turn)

    def plain(self, text: str) -> Spans:
        """Text that stands outside the template and may spell control tokens on purpose."""
        return (Span(text, True),) if text else ()

    def _prepared(
        self, shown: list[dict[str, Any]], tools: Sequence[ToolLike]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
        """Messages and tools in the form that this template takes, tools in an order of their own."""
        tools = sorted(tools, key=lambda t: t.name)
        listed = native(tools) if tools and self.has_tools else None
        if tools and listed is None:
            shown = _with_system(shown, tool_block(tools))
        if not self.has_system:
            shown = _merged(shown)
        return [self._stand_in(m) if i else m for i, m in enumerate(shown)], listed

    def _open(self, shown: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        try:
            text = self._renderer.render(shown, tools=tools)
            if all(m["content"].strip() in text for m in shown):
                return text
        except TemplateFailed:
            pass
        # The template insists on another first message: what it says ahead of that one is left out.
        return self._bos + "".join(self._delta(m) for m in shown)

    def _delta(self, message: Mapping[str, Any]) -> str:
        shown = self._stand_in(message)
        anchor = self._anchors[shown["role"]]
        full = self._renderer.render([*anchor.messages, shown])
        return full[len(_common(anchor.base, full)) :]

    def _stand_in(self, message: Mapping[str, Any]) -> dict[str, Any]:
        role = message["role"]
        if role in self._anchors:
            return dict(message)
        return {"role": "user", "content": STAND_INS[role] + message["content"]}

    def _find_anchor(self, role: str) -> Anchor | None:
        probes = [{"role": role, "content": text} for text in (PROBE, "7 other words")]
        loose: Anchor | None = None
        for messages in ANCHORS[role]:
            try:
                alone = self._renderer.render(list(messages)) if messages else self._bos
                full = [self._renderer.render([*messages, probe]) for probe in probes]
            except TemplateFailed:
                continue
            base = _common(alone, *full)
            if not all(
                probe["content"] in text[len(base) :] for probe, text in zip(probes, full, strict=True)
            ):
                continue
            found = Anchor(messages, base, exact=base == alone)
            if found.exact:
                return found
            loose = loose or found
        return loose

    def _generation_prompt(self) -> str:
        without = self._renderer.render([USER])
        try:
            shown = self._renderer.render([USER], turn=True)
        except TemplateFailed:
            return ""
        return shown[len(_common(without, shown)) :]

    def _shows(
        self, text: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None
    ) -> bool:
        try:
            return text in self._renderer.render(messages, tools=tools)
        except TemplateFailed:
            return False


def _common(first: str, *others: str) -> str:
    length = len(first)
    for other in others:
        length = next(
            (i for i, (a, b) in enumerate(zip(first[:length], other, strict=False)) if a != b),
            min(length, len(other)),
        )
    return first[:length]


def _with_system(shown: list[dict[str, Any]], block: str) -> list[dict[str, Any]]:
    if shown and shown[0]["role"] == "system":
        return [{"role": "system", "content": f"{shown[0]['content']}\n\n{block}"}, *shown[1:]]
    return [{"role": "system", "content": block}, *shown]


def _merged(shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not shown or shown[0]["role"] != "system":
        return shown
    if len(shown) > 1 and shown[1]["role"] == "user":
        text = f"{shown[0]['content']}\n\n{shown[1]['content']}"
        return [{"role": "user", "content": text}, *shown[2:]]
    return [{"role": "user", "content": shown[0]["content"]}, *shown[1:]]
