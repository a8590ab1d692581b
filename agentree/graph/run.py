"""One run of a program: its events, its outcome, and how to stop it."""

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, cast

import anyio

from agentree.errors import AgentreeError, Interrupted, JournalError
from agentree.events import Event, GenerationEnded, QuestionAsked, RunEnded, RunStarted
from agentree.graph.ended import reason, status
from agentree.graph.outline import outline
from agentree.graph.parked import Parked
from agentree.graph.shown import shown
from agentree.graph.task import Shared
from agentree.graph.types import O_co
from agentree.runtime.request import TokenCounts

if TYPE_CHECKING:
    from agentree.graph.execute import Execution
    from agentree.graph.journal.facts import Status
    from agentree.graph.journal.log import RunLog
    from agentree.graph.journal.opened import Begun
    from agentree.lm import Transcript, Usage


class Run(Generic[O_co]):
    """One run of a program: iterate for its events, `output` once it is over."""

    def __init__(
        self,
        execution: "Execution",
        events: AsyncIterator[Event] | None,
        explain: "Callable[[Run[Any]], str]",
    ) -> None:
        self.id = execution.shared.id
        self._execution = execution
        self._shared: Shared = execution.shared
        self._events = _Events(events)
        self._explain = explain
        self._over = anyio.Event()
        self._scope = anyio.CancelScope()
        self._cancelled = False
        self._output: object = None
        self._error: BaseException | None = None

    @property
    def output(self) -> O_co:
        """What the program gave. Raises what the run ended with, or AgentreeError if it has no output."""
        if self._error is not None:
            raise self._error
        if self._cancelled:
            raise AgentreeError(f"run {self.id!r} was cancelled: it has no output")
        if not self._over.is_set():
            raise AgentreeError(
                f"run {self.id!r} is still going on: iterate over its events first, then ask for its output"
            )
        return cast("O_co", self._output)

    @property
    def usage(self) -> "Usage":
        """Tokens of all generations of the run so far, also of those that steps made by themselves.

        Of a resumed run it is the whole: what earlier processes finished, as the journal has it, and what
        this one did. `prompt_tokens`, `output_tokens` and `forced_tokens` are those of the same run without a
        stop. `computed_tokens` and `forward_passes` are work that was done, `cached_tokens` what was found in
        the cache of the process that asked. A generation that was cut off counts in its own process only.
        """
        from agentree.lm import Usage

        journal = self._shared.journal
        before = () if journal is None else journal.log.past.counts()
        return Usage.of(*before, *map(_counts, self._shared.record.generations))

    @property
    def transcript(self) -> "Transcript":
        """The latest transcript of the run's main path, also while it goes on and after it failed."""
        if self._shared.transcript is None:
            raise AgentreeError(f"run {self.id!r} has no transcript: no llm node was visited yet")
        return self._shared.transcript

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    def cancel(self) -> None:
        """Stop the run: everything under way is cancelled and awaited, its events end with `RunEnded`."""
        if not self._over.is_set():
            self._cancelled = True
            self._scope.cancel()

    def explain(self) -> str:
        """The plan as a tree with what really happened: tokens, and each miss with its reason.

        Of a resumed run, what happened in this process.
        """
        return self._explain(self)

    async def _drive(self, begun: "Begun") -> None:
        """Run to the end, whatever that is. Raises nothing but cancellation and other BaseExceptions."""
        emit = self._shared.emit
        execution = self._execution
        plan = outline(execution.definition, execution.limits)
        emit(RunStarted(program=execution.definition.name, input=shown(begun.input), plan=plan), "")
        ended = RunEnded(status="cancelled")
        try:
            with self._scope:
                self._output = await self._execute(begun)
                ended = RunEnded(output=shown(self._output))
                self._cancelled = False
        except Exception as e:
            self._error = e
            ended = RunEnded(status=status(e), error=reason(e))
            if isinstance(e, JournalError):
                e.transcript, e.partial = self._shared.transcript, self._shared.output
        finally:
            await self._write_end(ended)
            self._cancelled = ended.status == "cancelled"
            self._over.set()
            emit(ended, "")

    async def _execute(self, begun: "Begun") -> object:
        """The output; durable, where the run has a journal."""
        journal = self._shared.journal
        if begun.output is not None:
            return begun.output.value
        try:
            output = await self._execution.run(begun.input, begun.transcript, self._execution.trail())
        except Parked as parked:
            for question in parked.questions:
                self._shared.emit(QuestionAsked(text=question.text), question.path)
            paths = ", ".join(question.path for question in parked.questions)
            raise Interrupted(
                f"run {self.id!r} waits for a person's answer to {paths}: "
                "give it with resume(..., answers={path: value}) or 'agentree runs answer'",
                run=self.id,
                questions=parked.questions,
            ) from None
        if journal is not None:
            await journal.log.end("done", output=journal.write(output, "the program"))
        return output

    async def _write_end(self, ended: RunEnded) -> None:
        """Journal how the run stopped, and what it knew until then."""
        journal = self._shared.journal
        if journal is None or ended.status == "done":
            return
        asked = self._error.questions if isinstance(self._error, Interrupted) else ()
        with suppress(
            JournalError
        ):  # the run has failed by it already, or fails by something that matters more
            await journal.log.end(
                _kept_as(ended, journal.log),
                error=ended.error,
                questions=[question.path for question in asked],
            )


def _counts(event: GenerationEnded) -> TokenCounts:
    return TokenCounts(
        prompt=event.prompt_tokens,
        cached=event.cached_tokens,
        computed=event.computed_tokens,
        sampled=event.sampled_tokens,
        forced=event.forced_tokens,
        forward_passes=event.forward_passes,
    )


def _kept_as(ended: RunEnded, log: "RunLog") -> "Status":
    """A run that was cut off can be resumed, unless somebody has ended it for good."""
    if ended.status == "cancelled":
        return "cancelled" if log.cancelled else "stopped"
    return ended.status


class _Events:
    """The events of one run, up to its end. No generator: nothing stays open when a reader breaks off."""

    def __init__(self, events: AsyncIterator[Event] | None) -> None:
        self._events = events

    def __aiter__(self) -> "_Events":
        return self

    async def __anext__(self) -> Event:
        if self._events is None:
            raise StopAsyncIteration
        event = await anext(self._events)
        if isinstance(event, RunEnded):
            self._events = None
        return event
