"""Docstring -> what the tool does and what each parameter means.

Google, NumPy and Sphinx styles, also mixed.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_PARAMETER_SECTIONS = frozenset(
    {
        "args",
        "arguments",
        "parameters",
        "params",
        "keyword args",
        "keyword arguments",
        "keyword parameters",
        "other parameters",
    }
)
_OTHER_SECTIONS = frozenset(
    {
        "attributes",
        "example",
        "examples",
        "note",
        "notes",
        "raise",
        "raises",
        "receives",
        "references",
        "return",
        "returns",
        "see also",
        "throws",
        "todo",
        "warning",
        "warnings",
        "warns",
        "yield",
        "yields",
    }
)
_FIELD = re.compile(r"[:@](?P<kind>[A-Za-z]+)(?:\s+(?P<what>[^:]*))?:(?:\s+|$)(?P<text>.*)")
_PARAMETER_FIELDS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_FIELDS = _PARAMETER_FIELDS | {
    "type", "return", "returns", "rtype", "raise", "raises", "except", "exception", "yield", "yields",
    "ytype", "var", "ivar", "cvar", "vartype", "meta",
}  # fmt: skip
_NAME = re.compile(r"(?:\\?\*){0,2}(?P<name>[^\W\d]\w*)")
_BULLET = re.compile(r"(?:[-*+•]|\d+[.)])\s")


@dataclass(frozen=True)
class Docstring:
    """The parts of a docstring that a model is told."""

    description: str = ""
    """Prose outside of all sections. A paragraph is one line."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    """Text by parameter name, without stars; only parameters that have a text."""


@dataclass(frozen=True)
class _Line:
    indent: int
    text: str


def parse_docstring(doc: str | None) -> Docstring:
    """Split a docstring into its prose and its parameter texts. What isn't understood is prose."""
    lines = [
        _Line(len(raw) - len(raw.lstrip()), raw.strip()) for raw in inspect.cleandoc(doc or "").split("\n")
    ]
    prose: list[_Line] = []
    texts: dict[str, list[_Line]] = {}
    at = 0
    while at < len(lines):
        numpy = _numpy_section(lines, at)
        google = None if numpy else _google_section(lines[at])
        sphinx = _sphinx_field(lines[at])
        if numpy:
            stop = _numpy_end(lines, at + 2)
            if numpy in _PARAMETER_SECTIONS:
                _collect(texts, _numpy_entries(lines[at + 2 : stop]))
        elif google:
            stop = _google_end(lines, at)
            if google in _PARAMETER_SECTIONS:
                _collect(texts, _google_entries(lines[at + 1 : stop]))
        elif sphinx:
            stop = _field_end(lines, at)
            name = _field_name(sphinx)
            if name:
                body = [_Line(0, sphinx["text"]), *lines[at + 1 : stop]]
                _collect(texts, [((name,), body)])
        else:
            stop = at + 1
            prose.append(lines[at])
        at = stop
    joined = {name: _join(body) for name, body in texts.items()}
    return Docstring(_join(prose), {name: text for name, text in joined.items() if text})


def _collect(texts: dict[str, list[_Line]], entries: "Iterator[_Entry] | list[_Entry]") -> None:
    for names, body in entries:
        for name in names:
            texts.setdefault(name, body)


_Entry = tuple[tuple[str, ...], list[_Line]]


# Google: "Args:", then deeper entries `name (type, optional): text`, whose own lines are deeper still.


def _google_section(line: _Line) -> str | None:
    title = line.text[:-1].strip().lower() if line.text.endswith(":") else ""
    return title if title in _PARAMETER_SECTIONS | _OTHER_SECTIONS else None


def _google_end(lines: list[_Line], start: int) -> int:
    header = lines[start]
    flat = False  # entries as far left as their header: only blank lines or the next section end them
    for at in range(start + 1, len(lines)):
        line = lines[at]
        if not line.text:
            if flat:
                return at
            continue
        if _google_section(line) and line.indent <= header.indent:
            return at
        if _sphinx_field(line) or _numpy_section(lines, at):
            return at
        if line.indent <= header.indent:
            first = at == start + 1
            if not flat and not (first and _google_entry(line.text)):
                return at
            flat = True
    return len(lines)


def _google_entry(text: str) -> tuple[str, str] | None:
    """`name: text`, `*name (type): text` -> name and text."""
    match = _NAME.match(text)
    if not match:
        return None
    rest = text[match.end() :].lstrip()
    if rest.startswith("("):
        depth = 0
        for at, char in enumerate(rest):
            depth += (char in "([{") - (char in ")]}")
            if depth == 0:
                rest = rest[at + 1 :].lstrip()
                break
        else:
            return None
    if rest != ":" and not re.match(r":\s", rest):
        return None
    return match["name"], rest[1:].strip()


def _google_entries(lines: list[_Line]) -> Iterator[_Entry]:
    filled = [line for line in lines if line.text]
    base = filled[0].indent if filled else 0
    name, body = "", list[_Line]()
    for line in lines:
        entry = _google_entry(line.text) if line.indent <= base else None
        if entry:
            if name:
                yield (name,), body
            name, body = entry[0], [_Line(0, entry[1])]
        else:
            body.append(line)
    if name:
        yield (name,), body


# NumPy: a title underlined with dashes, then `x, y : int` at its level, the text deeper.


def _numpy_section(lines: list[_Line], at: int) -> str | None:
    title = lines[at].text.rstrip(":").lower()
    if at + 1 == len(lines) or title not in _PARAMETER_SECTIONS | _OTHER_SECTIONS:
        return None
    return title if re.fullmatch(r"-{3,}|={3,}", lines[at + 1].text) else None


def _numpy_end(lines: list[_Line], start: int) -> int:
    for at in range(start, len(lines)):
        underlined = at + 1 < len(lines) and re.fullmatch(r"-{3,}|={3,}", lines[at + 1].text)
        if (lines[at].text and underlined) or _sphinx_field(lines[at]):
            return at
    return len(lines)


def _numpy_entries(lines: list[_Line]) -> Iterator[_Entry]:
    filled = [line for line in lines if line.text]
    base = filled[0].indent if filled else 0
    names, body = tuple[str, ...](), list[_Line]()
    for line in lines:
        if line.text and line.indent <= base:
            if names:
                yield names, body
            heads = [_NAME.fullmatch(head.strip()) for head in line.text.split(":")[0].split(",")]
            names, body = tuple(head["name"] for head in heads if head), []
        else:
            body.append(line)
    if names:
        yield names, body


# Sphinx: `:param name: text` or `:param type name: text`, continued by deeper or unbroken lines.


def _sphinx_field(line: _Line) -> re.Match[str] | None:
    match = _FIELD.match(line.text)
    return match if match and match["kind"] in _FIELDS else None


def _field_name(match: re.Match[str]) -> str | None:
    words = (match["what"] or "").split()
    name = _NAME.fullmatch(words[-1]) if words and match["kind"] in _PARAMETER_FIELDS else None
    return name["name"] if name else None


def _field_end(lines: list[_Line], start: int) -> int:
    blank = False
    for at in range(start + 1, len(lines)):
        line = lines[at]
        if not line.text:
            blank = True
            continue
        section = line.indent <= lines[start].indent and (_google_section(line) or _numpy_section(lines, at))
        if section or _sphinx_field(line) or (blank and line.indent <= lines[start].indent):
            return at
    return len(lines)


def _join(lines: list[_Line]) -> str:
    """Undo line wrapping: a paragraph or a list item is one line, paragraphs follow one another."""
    out: list[str] = []
    fresh = True
    for line in lines:
        if not line.text:
            fresh = True
        elif fresh or _BULLET.match(line.text):
            out.append(line.text)
            fresh = False
        else:
            out[-1] += " " + line.text
    return "\n".join(out)
