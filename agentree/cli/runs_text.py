"""What `agentree runs` says of a run: its visits, what it asks, and how it goes on."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from agentree.errors import Question, UncertainCall
from agentree.events import STOPPED
from agentree.graph.journal.reading import Shown
from agentree.graph.journal.telling import told
from agentree.tools import canonical_json
from agentree.trace.text import escape, one_line

if TYPE_CHECKING:
    from agentree.graph.journal.facts import Fact

_FIRST = {"limit": "raise the limit in the program, then ", "failed": "mend the cause, then "}
"""By the status of a run, what is to be done before it goes on."""
_CUT_OFF = {"running": "running", "interrupted": "cut off", "cancelled": "cancelled", "failed": "cancelled"}
"""By the status of a run, that of its visits that have begun and not ended; "stopped" in the others."""
_RESUMABLE = ("interrupted", "waiting", "answered", "stopped", "limit", "failed")
_UNCERTAIN = UncertainCall.__name__


def flag(given: str | None) -> str:
    """The option that names the same journal in a further command."""
    return f" --journal {given}" if given else ""


def ways_on(shown: Shown, journal: str | None) -> list[str]:
    """How a run goes on; nothing where it can't, or only once somebody has answered."""
    if shown.status not in _RESUMABLE:
        return []
    first, resume = _FIRST.get(shown.status, ""), f"agentree runs resume {shown.header.run}"
    if not shown.uncertain:
        return [] if shown.questions else [f"{first}go on:  {resume}{flag(journal)}"]
    lines: list[str] = []
    for call in shown.uncertain:
        made = f"{one_line(call.body['tool'])}({one_line(canonical_json(call.body['arguments']))})"
        lines.append(f"{call.path}: {made} was under way, and nobody knows whether it had its effect")
    if str(shown.facts[-1].body.get("error", "")).startswith(_UNCERTAIN):
        first = ""  # finding out is all that there is to mend
    return [
        *lines,
        f"find out, then {first}go on by one of:",
        f"    {resume} --uncertain tell{flag(journal)}   (the model is told that nobody knows)",
        f"    {resume} --uncertain rerun{flag(journal)}  (it is called again)",
    ]


def asked(run: str, questions: Sequence[Question], journal: str) -> list[str]:
    """What a run asks, and how it is answered."""
    lines: list[str] = []
    for question in questions:
        lines.append(f"{question.path} asks: {one_line(question.text)}")
        if question.tool:
            arguments = canonical_json(dict(question.arguments))
            lines.append(f"    {one_line(question.tool)}({escape(arguments)})")
        sample = "true" if question.tool else "JSON"
        lines.append(f"    answer:  agentree runs answer {run} '{question.path}' {sample}{journal}")
        lines.append(f"    JSON is {_form(question)}")
    return lines


def _form(question: Question) -> str:
    if question.tool:
        return 'true, false, or {"approved": false, "reason": "for the model"}'
    schema = {key: value for key, value in question.schema.items() if key not in ("title", "description")}
    return f"a value of {escape(canonical_json(schema))}"


def visits(shown: Shown) -> list[str]:
    """One line for each visit, in the order in which they began."""
    ends: dict[str, tuple[str, str]] = {}
    order: dict[str, str] = {}
    for fact in shown.facts:
        match fact.kind:
            case "node started":
                order.setdefault(fact.path, str(fact.body["node_kind"]))
            case "node ended":
                order.setdefault(fact.path, "join")
                ends[fact.path] = ("done", one_line(plain(fact.body["output"])))
            case "node failed":
                ends[fact.path] = _without_output(one_line(fact.body["error"]))
            case _:
                pass
    waits = {_visit(question.path) for question in shown.questions}
    answered = {_visit(path) for path in shown.answered}
    lines: list[str] = []
    width = max(map(len, order), default=0)
    cut_off = _CUT_OFF.get(shown.status, "stopped")
    for path, kind in order.items():
        open_ = "waits" if path in waits else "answered" if path in answered else cut_off
        status, text = ends.get(path, (open_, ""))
        lines.append(f"  {path:<{width}}  {kind:<6}  {status:<8}  {text}".rstrip())
        lines += [f"  {'':<{width}}  {line}" for line in _calls(shown.facts, path)]
    return lines


def _without_output(error: str) -> tuple[str, str]:
    """The status of a visit that ended without an output, and why."""
    if error.startswith(STOPPED):
        return "stopped", error.removeprefix("stopped ")
    if error.startswith(_UNCERTAIN):
        return "failed", f"{_UNCERTAIN}: the end of a call is unknown"  # which one is told below
    return "failed", error


def _visit(question: str) -> str:
    """The visit that asks a question."""
    return question.partition(":")[0]


def _calls(facts: "Sequence[Fact]", path: str) -> list[str]:
    calls: dict[str, str] = {}
    for fact in facts:
        if fact.path == path and fact.kind == "call started":
            arguments = canonical_json(fact.body["arguments"])
            calls[fact.body["call"]] = f"{fact.body['tool']}({escape(arguments)}) -> its end is unknown"
        elif fact.path == path and fact.kind == "call withdrawn":
            calls.pop(fact.body["call"], None)
        elif fact.path == path and fact.kind == "call ended":
            begun = calls.get(fact.body["call"], str(fact.body["tool"])).partition(" -> ")[0]
            calls[fact.body["call"]] = f"{begun} -> {one_line(fact.body['content'])}"
    return list(calls.values())


def plain(written: Any) -> str:
    """A value of the journal as text for people."""
    value = told(written)
    return value if isinstance(value, str) else canonical_json(value)


def when(seconds: float) -> str:
    """A point of time, to the second, in this machine's zone."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def as_json(value: object) -> str:
    """One line of JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    # Half a character is written as JSON escapes it.
    return text.encode(errors="backslashreplace").decode()
