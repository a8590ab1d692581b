"""Transcripts as plain data: what one adds to another, by token ids, so that nothing is tokenized again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from agentree.errors import InvalidArgument
from agentree.lm.turns import EMPTY, Head
from agentree.messages import Message
from agentree.tools import Tool

if TYPE_CHECKING:
    from agentree.lm.transcript import Transcript


def stored(transcript: "Transcript", base: "Transcript | None") -> dict[str, Any]:
    """What a transcript adds to `base`, as JSON values: the length of their common prefix, then new ids."""
    ids, text = ((), "") if base is None else (base._ids, base._text)
    kept, kept_text = common(transcript._ids, ids), common(transcript._text, text)
    found: dict[str, Any] = {"keep": kept, "ids": list(transcript._ids[kept:])}
    found |= {"keep_text": kept_text, "text": transcript._text[kept_text:]}
    found |= {"in_turn": transcript._in_turn, "raw": transcript._raw, "calls": transcript._calls}
    if transcript._salt:
        found["salt"] = transcript._salt
    if transcript._head is not None:
        found["head"] = {
            "tools": [tool.name for tool in transcript._head.tools],
            "systems": [message.text for message in transcript._head.systems],
        }
    return found


def rebuilt(
    data: Mapping[str, Any], base: "Transcript | None", empty: "Transcript", tools: Iterable[Tool[..., Any]]
) -> "Transcript":
    """The transcript that `stored` gave this for. It belongs to the scope and branch that `base` belongs to.

    `empty` is one of the runtime without a token; `tools` are those that an unbegun transcript may be for.
    """
    base = empty if base is None else base
    return replace(
        base,
        _ids=base._ids[: data["keep"]] + tuple(data["ids"]),
        _text=base._text[: data["keep_text"]] + data["text"],
        _in_turn=data["in_turn"],
        _raw=data["raw"],
        _calls=data["calls"],
        _salt=data.get("salt", ""),
        _head=_head(data.get("head"), tools),
    )


def _head(data: Mapping[str, Any] | None, tools: Iterable[Tool[..., Any]]) -> Head | None:
    if data is None:
        return None
    names = cast("list[str]", data["tools"])
    known = {tool.name: tool for tool in tools}
    if lacking := [name for name in names if name not in known]:
        raise InvalidArgument(
            f"a transcript was opened with the tool {lacking[0]!r}, which no node of the program has"
        )
    head = Head(
        tuple(known[name] for name in names),
        tuple(Message("system", text) for text in cast("list[str]", data["systems"])),
    )
    return EMPTY if head == EMPTY else head


def common(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Length of the common prefix, by slices: no loop over tokens."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
