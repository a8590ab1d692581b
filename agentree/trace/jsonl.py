"""Traces as files: one event a line, as JSON, complete up to the last batch that was written."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from agentree import events
from agentree.errors import AgentreeError

_KINDS: dict[str, type[events.Event]] = {kind.__name__: kind for kind in events.Event.__subclasses__()}


@dataclass(frozen=True, kw_only=True)
class OtherEvent(events.Event):
    """An event read back whose class is not one of agentree's own: its fields as plain JSON values."""

    kind: str
    data: Mapping[str, object]


class JSONLWriter:
    """Writes events to a file, flushed once per batch. Raises OSError as the file system does."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = self.path.open("w", encoding="ascii", newline="\n")

    def feed(self, batch: Sequence[events.Event]) -> None:
        """Append events."""
        self._file.writelines(json.dumps(events.to_dict(event), default=str) + "\n" for event in batch)
        self._file.flush()

    def tick(self) -> None:
        """Nothing is drawn here."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def from_dict(data: dict[str, Any]) -> events.Event:
    """The event that `events.to_dict` made this of; an `OtherEvent` for a kind that a user defined.

    Raises ValueError for fields that are missing, unknown or of another type.
    """
    values = dict(data)
    name = values.pop("event", None)
    if not isinstance(name, str):
        raise ValueError("there is no event kind")
    kind = _KINDS.get(name)
    if kind is None:
        kind = OtherEvent
        common = {field.name for field in fields(events.Event)}
        rest = {key: values.pop(key) for key in set(values) - common}
        values |= {"kind": name, "data": rest}
    for field in fields(kind):
        if field.name in values and not _fits(values[field.name], field.type):
            raise ValueError(f"{name}.{field.name} can't be {values[field.name]!r}")
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{name}: {str(error).partition('() ')[2]}") from error


def _fits(value: object, type_: object) -> bool:
    if type_ is bool:
        return isinstance(value, bool)
    if type_ is int or type_ is float:
        return isinstance(value, int if type_ is int else (int, float)) and not isinstance(value, bool)
    return isinstance(value, dict if type_ == Mapping[str, object] else str)


@dataclass(frozen=True)
class Fault:
    """A line of a trace file that is no event."""

    line: int
    reason: str
    cut: bool = False
    """It is the last line, and only its beginning is there."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


def scan_trace(path: str | Path) -> Iterator[events.Event | Fault]:
    """All lines of a trace file in order: its events, and what is wrong with the lines that are none.

    Raises OSError where the file can't be read.
    """
    with Path(path).open(encoding="utf-8", errors="surrogateescape") as file:
        for number, line in enumerate(file, start=1):
            try:
                data = json.loads(line)
                if not isinstance(data, dict):
                    raise ValueError("a line must be a JSON object")
                yield from_dict(cast("dict[str, Any]", data))
            except (ValueError, RecursionError) as error:
                if line.endswith("\n"):
                    yield Fault(number, str(error))
                else:
                    yield Fault(number, "it is cut off: its writer was killed, or is still writing", cut=True)


def read_trace(path: str | Path) -> Iterator[events.Event]:
    """The events of a trace file, in order. A half-written last line (a killed process) is no event.

    Raises AgentreeError naming file and line where the file is not a trace, OSError where it can't be read.
    """
    for found in scan_trace(path):
        if isinstance(found, events.Event):
            yield found
        elif not found.cut:
            raise AgentreeError(f"{str(path)!r} is not a trace: {found}")
