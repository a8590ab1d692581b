"""Control-token text inside messages stays text: stand-ins while a template runs, spans afterwards."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast


class ToolLike(Protocol):
    """What a template needs to know of a tool."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def schema(self) -> Mapping[str, object]: ...


class Span(NamedTuple):
    """A stretch of rendered text. Control tokens are recognized only where `control` is true."""

    text: str
    control: bool


Spans = tuple[Span, ...]


def described(tool: ToolLike) -> dict[str, Any]:
    """A tool as the object that templates and prompts show."""
    return {"name": tool.name, "description": tool.description, "parameters": dict(tool.schema)}


def native(tools: Iterable[ToolLike]) -> list[dict[str, Any]]:
    """Tools in the form that chat templates take."""
    return [{"type": "function", "function": described(t)} for t in tools]


class Guard:
    """Puts stand-ins for control-token text while a template runs, and takes them out again."""

    def __init__(
        self, controls: re.Pattern[str] | None, texts: Sequence[str], tools: Sequence[ToolLike] = ()
    ) -> None:
        self._controls = controls
        self._hidden: list[str] = []
        seen = "\n".join([*texts, *(json.dumps(described(t), ensure_ascii=False) for t in tools)])
        count = 0
        while f"Q{count}standin" in seen:
            count += 1
        self._mark = f"Q{count}standin"

    def hide(self, text: str) -> str:
        """The text with each control-token string replaced by letters and digits that no text here holds."""
        return self._controls.sub(self._replace, text) if self._controls else text

    def hide_all(self, value: Any) -> Any:
        """The same for every string of a JSON value."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, Mapping):
            return {self.hide(k): self.hide_all(v) for k, v in cast("Mapping[str, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [self.hide_all(v) for v in cast("Sequence[Any]", value)]
        return value

    def spans(self, rendered: str) -> Spans:
        """The rendered text with the original text back in place."""
        if not rendered:
            return ()
        if not self._hidden or self._controls is None:
            return (Span(rendered, True),)
        spans: list[Span] = []
        done = 0
        for found in self._controls.finditer(rendered):
            spans.append(Span(self._restore(rendered[done : found.start()]), False))
            spans.append(Span(found.group(), True))
            done = found.end()
        spans.append(Span(self._restore(rendered[done:]), False))
        return tuple(s for s in spans if s.text)

    def _replace(self, found: re.Match[str]) -> str:
        self._hidden.append(found.group())
        return f"{self._mark}{len(self._hidden) - 1}x"

    def _restore(self, text: str) -> str:
        return re.sub(rf"{self._mark}(\d+)x", lambda m: self._hidden[int(m.group(1))], text)
