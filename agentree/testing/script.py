"""Scripts: what a scripted runtime answers, and to whom."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, cast

from pydantic import BaseModel

from agentree.errors import AgentreeError
from agentree.messages import Message
from agentree.tools import ToolCall, ToolCalls, canonical_json, tool_call

_VISIT = re.compile(r"#\d+$")
_BRANCHES = re.compile(r"(\[\d+\])+$")


class ScriptError(AgentreeError):
    """A script has no answer for a request, or one that can't be given: names the request's path."""


@dataclass(frozen=True)
class ScriptedRequest:
    """What a script may look at."""

    run: str
    path: str
    """Task path of the visit that asks, such as "answer[3]#2"; "" outside of programs."""
    prompt: str
    """The whole prompt as text, control tokens included."""
    max_tokens: int


@dataclass(frozen=True)
class Reply:
    """An answer that takes its time."""

    value: Any
    seconds: float = 0.0
    """On the event loop's clock, which may be a virtual one."""


Script = Sequence[Any] | Mapping[str, Any] | Callable[[ScriptedRequest], Any]
"""Answers in the order of the requests, or by task path or node, or a function."""


@dataclass(frozen=True)
class _Final:
    value: object


def final_answer(value: object) -> object:
    """The answer of a tool turn: a value of the output type as a call of the pseudo tool `final_answer`."""
    return _Final(value)


class Teller:
    """Takes answers from a script, each once."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._taken: dict[str, int] = {}

    def answer(self, request: ScriptedRequest) -> Reply:
        """The next answer for a request. Raises ScriptError if the script has none."""
        script = self._script
        if callable(script):
            return _reply(script(request))
        if isinstance(script, Mapping):
            return self._by_key(script, request)
        return _reply(self._next("", script, request))

    def _by_key(self, script: Mapping[str, Any], request: ScriptedRequest) -> Reply:
        for key in keys_of(request.path):
            if key in script:
                value = script[key]
                if isinstance(value, list | tuple):
                    value = self._next(key, cast("Sequence[Any]", value), request)
                elif callable(value):
                    value = value(request)
                return _reply(value)
        raise ScriptError(
            f"the script has no answer for {request.path!r}: it knows {', '.join(map(repr, script))}"
        )

    def _next(self, key: str, answers: Sequence[Any], request: ScriptedRequest) -> Any:
        at = self._taken.get(key, 0)
        if at >= len(answers):
            whose = f"for {key!r} " if key else ""
            raise ScriptError(
                f"the script {whose}has {len(answers)} answers, and {request.path!r} asks for one more"
            )
        self._taken[key] = at + 1
        answer = answers[at]
        return answer(request) if callable(answer) and not isinstance(answer, type) else answer


def keys_of(path: str) -> list[str]:
    """Under which keys a mapping may answer a path: the path, without its visit, the node's name, and ""."""
    plain = _VISIT.sub("", path)
    node = _BRANCHES.sub("", plain.rpartition("/")[2])
    return list(dict.fromkeys([path, plain, node, ""]))


def _reply(value: Any) -> Reply:
    return value if isinstance(value, Reply) else Reply(value)


def text_of(value: object) -> str:
    """A scripted value as the text that a model would have written."""
    match value:
        case str():
            return value
        case Message():
            return value.text
        case ToolCall() | ToolCalls():
            return tool_call(value).text
        case _Final():
            return canonical_json({"name": "final_answer", "arguments": _arguments(value.value)})
        case BaseModel():
            return canonical_json(value.model_dump(mode="json", by_alias=True))
        case _:
            return canonical_json(value)


def _arguments(value: Any) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    return value if isinstance(value, dict) or is_dataclass(value) else {"answer": value}  # pyright: ignore[reportUnknownVariableType]
