"""A run of a program while it goes on: accepted, begun, and awaited to its end."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from agentree.errors import AgentreeError
from agentree.graph.ctx import Cell
from agentree.graph.execute import Execution
from agentree.graph.given import check_input, check_run
from agentree.graph.journal.fingerprint import tools_of
from agentree.graph.journal.opened import Begun, Place, create
from agentree.graph.nodes import Definition
from agentree.graph.outline import annotated, outline, run_notes
from agentree.graph.record import Recorder
from agentree.graph.run import Run
from agentree.graph.task import Shared
from agentree.graph.types import Limits

if TYPE_CHECKING:
    from agentree.lm import Runtime


@asynccontextmanager
async def accepted(
    definition: Definition, place: Place | None, lm: "Runtime", begun: Begun
) -> AsyncGenerator[Begun]:
    """A new run, accepted by its journal if it has one.

    Raises:
        InvalidArgument: The input, the runtime, the transcript or the seed can't be right.
        AgentreeError: Its tools need a person, and there is no journal.
        JournalError: It can't be kept.
    """
    check_run(definition.name, lm, begun.transcript, begun.seed)
    check_input(definition.name, definition.input, begun.input)
    if place is not None:
        async with create(definition, place, lm, begun) as journaled:
            yield journaled
        return
    if asking := next((tool.name for tool in tools_of(definition) if tool.approve), None):
        raise AgentreeError(
            f"program {definition.name!r} has the tool {asking!r}, whose calls a person approves, and a run "
            "that waits for a person needs a journal: run it with journal='runs.journal'"
        )
    yield begun


@asynccontextmanager
async def going(
    definition: Definition, limits: Limits | None, begun: Begun, lm: "Runtime", *, watched: bool
) -> AsyncGenerator[Run[Any]]:
    """The run, under way while the block lasts; leaving it cancels the run and awaits its end.

    A run that is `watched` has its events, and its error is raised where the block ends.
    """
    shared = Shared(begun.id, lm, lm.bus, begun.seed, Recorder(begun.id), begun.journal)
    execution = Execution(shared, definition, limits, Cell(begun.state))
    failure: BaseException | None = None
    async with AsyncExitStack() as stack:
        events = stack.enter_context(lm._events_of(begun.id)) if watched else None
        run = Run[Any](execution, events, lambda run: _explain(run, definition, limits))
        if begun.journal is not None:
            begun.journal.log.stopped = run.cancel
        stack.enter_context(shared.record.listening(lm.bus))
        stack.push_async_callback(_settle, run, lm)
        stack.enter_context(lm._holding(run.id))
        async with anyio.create_task_group() as group:
            group.start_soon(run._drive, begun)
            if begun.journal is not None:
                group.start_soon(begun.journal.log.listen, run._over)
            try:
                yield run
            except Exception as e:
                failure = e  # raised below: a task group would wrap it
            finally:
                run.cancel()
    if failure is not None:
        raise failure
    if watched and run._error is not None:
        raise run._error


async def _settle(run: Run[Any], lm: "Runtime") -> None:
    """Where a run was cut off, nothing is held for it any more once whoever awaits it goes on."""
    if run._cancelled or run._error is not None:
        await lm._settled()


def _explain(run: Run[Any], definition: Definition, limits: Limits | None) -> str:
    lines = outline(definition, limits)
    return annotated(lines, run_notes(lines, run._shared.record.generations))
