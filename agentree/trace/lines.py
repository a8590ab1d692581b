"""The trace as plain lines, for logs and pipes: one fact a line, in ASCII punctuation, without colours."""

from collections.abc import Sequence
from typing import TextIO

from agentree import events as ev
from agentree.trace.state import Picture
from agentree.trace.summary import facts
from agentree.trace.text import amount, count, duration, ending, escape, one_line, plural

_STEP = 0.25
"""Share of a fetch or a conversion between two lines about it."""


class LineView:
    """Writes a line for each thing that began or ended, then a table and a summary."""

    def __init__(self, stream: TextIO, *, output: bool = True) -> None:
        self.picture = Picture()
        self._stream = stream
        self._output = output
        self._stage: tuple[str, str] = ("", "")
        self._next = 0.0

    def feed(self, batch: Sequence[ev.Event]) -> None:
        """Write the lines of these events."""
        for event in batch:
            self.picture.feed((event,))
            line = self._line(event)
            if line:
                since = event.time - self.picture.began
                self._stream.write(f"{since:8.2f}s  {line}\n")
        self._stream.flush()

    def tick(self) -> None:
        """Lines are written as events come."""

    def close(self) -> None:
        """Write the table by paths and the summary."""
        if not self.picture.runs:
            return
        rows = [
            (run, branch)
            for run in self.picture.runs.values()
            for branch in run.root.walk()
            if branch.generations
        ]
        if rows:
            self._write(["", _cells("path", "gens", "cached", "computed", "forced", "sampled", "passes")])
        for run, branch in rows:
            tokens = branch.tokens
            name = one_line(self.picture.label(run, branch.path), 38)
            numbers = (branch.generations, tokens.cached, tokens.computed, tokens.forced, tokens.sampled)
            self._write([_cells(name, *map(count, numbers), count(branch.passes))])
        self._write([""])
        for name, figure, remark in facts(self.picture, output=self._output):
            self._write([f"{name:<15} {figure}" + (f"  ({remark})" if remark else "")])
        self._stream.flush()

    def _write(self, lines: list[str]) -> None:
        self._stream.writelines(line + "\n" for line in lines)

    def _line(self, event: ev.Event) -> str:
        who = escape(self.picture.named(event.run, event.path))
        where = f"{who}: "
        match event:
            case ev.ModelLoading():
                return self._loading(event)
            case ev.ModelReady():
                made = f"{escape(event.kernels)} kernels, " if event.kernels else ""
                made += f"pool of {count(event.pool)} tokens"
                how = f"{escape(event.device)}, {escape(event.weights)}, {made}"
                after = f"{duration(event.seconds)} after its loading began"
                return f"model {escape(event.model)} ready, {after}: {how}"
            case ev.RunStarted():
                return f"run {who}: {one_line(event.input)}"
            case ev.RunEnded():
                said = one_line(event.error or event.output)
                return f"run {who} {ending(event.status, said)}"
            case ev.NodeEnded(error=error) if error:
                failed = error != "cancelled" and not error.startswith((ev.STOPPED, ev.WAITS))
                return f"{where}{'failed: ' if failed else ''}{one_line(error)}"
            case ev.NodeRestored():
                return f"{where}from the journal"
            case ev.QuestionAsked():
                return f"{where}asks: {one_line(event.text)}"
            case ev.GenerationEnded():
                return where + _generation(event)
            case ev.ToolCallNamed():
                return f"{where}writes a call of {escape(event.tool)}"
            case ev.ToolCallWritten():
                return f"{where}wrote a call of {escape(event.tool)} {one_line(event.arguments)}"
            case ev.Forked():
                return f"{where}fork into {event.n}, {count(event.shared_tokens)} tokens shared"
            case ev.ToolStarted():
                return f"{where}{escape(event.tool)} {one_line(event.arguments)}"
            case ev.ToolEnded():
                said = f"{'error: ' if event.error else ''}{one_line(event.content)}"
                return f"{where}{escape(event.tool)} -> {said} ({duration(event.seconds)})"
            case _:
                return self._pressure(event, who)

    def _pressure(self, event: ev.Event, who: str) -> str:
        match event:
            case ev.Evicted(tokens=tokens):
                return f"{count(tokens)} tokens evicted for {who}"
            case ev.LeaseRevoked(owner=owner, tokens=tokens):
                return f"lease of {escape(self.picture.owner(owner))} revoked: {count(tokens)} tokens"
            case ev.Preempted(tokens=tokens):
                return f"{who} preempted: {count(tokens)} tokens given back"
            case ev.Dropped(count=lost):
                return f"{count(lost)} events lost: the trace could not keep up"
            case _:
                return ""

    def _loading(self, event: ev.ModelLoading) -> str:
        if (event.model, event.stage) != self._stage:
            self._stage, self._next = (event.model, event.stage), 0.0
        share = event.done / event.total if event.total else 0.0
        if share < self._next:
            return ""
        self._next = share + _STEP
        figure = f": {amount(event.done, event.total, event.unit)}" if event.total else ""
        return f"{event.stage} {escape(event.model)}{figure}"


def _generation(event: ev.GenerationEnded) -> str:
    passes = plural(event.forward_passes, "pass", "passes")
    line = (
        f"prompt {count(event.prompt_tokens)} ({count(event.cached_tokens)} cached), "
        f"output {count(event.sampled_tokens)} sampled + {count(event.forced_tokens)} forced, "
        f"{passes}, {duration(event.seconds)}"
    )
    if event.finish != "stop":
        line += f", {event.finish}"
    if event.miss:
        line += f"; missed: {one_line(event.miss)}"
    return f"{line}: {one_line(event.text)}" if event.text else line


def _cells(name: str, *rest: str) -> str:
    return f"{name:<38}" + "".join(f"{cell:>9}" for cell in rest)
