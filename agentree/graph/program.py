"""A compiled graph, and the ways to run it."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, cast
from uuid import uuid4

import anyio

from agentree.errors import AgentreeError, GraphError
from agentree.graph.ctx import Cell
from agentree.graph.draw import mermaid, plan_notes, tree
from agentree.graph.execute import Execution
from agentree.graph.given import check_input, check_run
from agentree.graph.nodes import Definition
from agentree.graph.outline import run_notes
from agentree.graph.plan import Plan
from agentree.graph.record import Recorder
from agentree.graph.run import Run
from agentree.graph.task import Shared
from agentree.graph.types import I, Limits, O, S

if TYPE_CHECKING:
    from agentree.lm import Runtime, Transcript

_UNSET: Any = object()


class Program(Generic[S, I, O]):
    """A compiled graph. Holds no state of any run: one program may run many times at once."""

    def __init__(self, definition: Definition, limits: Limits | None, plan: Plan) -> None:
        self.name = definition.name
        self.limits = limits
        self.plan = plan
        self._definition = definition

    def __repr__(self) -> str:
        return f"<Program {self.name!r}>"

    async def run(
        self,
        input: I,
        /,
        *,
        lm: "Runtime",
        state: S = _UNSET,
        seed: int = 0,
        transcript: "Transcript | None" = None,
    ) -> O:
        """Run to the end and return the output.

        Args:
            input: What the node after the start gets.
            lm: An open runtime.
            state: The run's state object; without it, the graph's state type is called without arguments.
            seed: With it, the task path and the position, each sampled token is drawn.
            transcript: Continue from here: the program's own static prefix is left out.

        Raises:
            InvalidArgument: The input, `lm`, `transcript` or `seed` can't be right; nothing ran.
            RuntimeClosed: The runtime is not open.
            LimitReached: A limit was hit that has `on_limit="raise"`.
            Exception: What a step raised, as it was raised.
        """
        async with self._open(input, lm, state, seed, transcript, watched=False) as run:
            await run._over.wait()
        return run.output

    def stream(
        self,
        input: I,
        /,
        *,
        lm: "Runtime",
        state: S = _UNSET,
        seed: int = 0,
        transcript: "Transcript | None" = None,
    ) -> AbstractAsyncContextManager[Run[O]]:
        """Run while events are read: `async with program.stream(...) as run: async for event in run: ...`.

        Leaving the block early cancels the run. If the run failed, leaving the block raises its error.
        """
        return self._open(input, lm, state, seed, transcript, watched=True)

    def run_sync(self, input: I, /, *, lm: "Runtime | None" = None, state: S = _UNSET, seed: int = 0) -> O:
        """For scripts. `lm=None` opens the default model and closes it again.

        Raises:
            AgentreeError: An event loop is running here, as in a notebook: await `program.run(...)` instead.
        """
        if _loop_is_running():
            raise AgentreeError(
                f"run_sync() of program {self.name!r} can't be used where an event loop is running, "
                "as in a notebook or an async function: use 'await program.run(...)' there"
            )
        check_input(self.name, self._definition.input, input)

        async def main() -> O:
            if lm is not None:
                return await self.run(input, lm=lm, state=state, seed=seed)
            from agentree.lm import Runtime

            async with Runtime() as opened:
                return await self.run(input, lm=opened, state=state, seed=seed)

        return anyio.run(main)

    def explain(self, *, lm: "Runtime | None" = None) -> str:
        """The plan as a tree; with a runtime, with expected shared and new tokens."""
        return tree(self._definition, self.limits, plan_notes(self.plan, self._definition, lm))

    def mermaid(self) -> str:
        """The graph as a Mermaid flow chart."""
        return mermaid(self._definition)

    @asynccontextmanager
    async def _open(
        self,
        value: I,
        lm: "Runtime",
        state: Any,
        seed: int,
        transcript: "Transcript | None",
        *,
        watched: bool,
    ) -> AsyncGenerator[Run[O]]:
        check_run(self.name, lm, transcript, seed)
        check_input(self.name, self._definition.input, value)
        run_id = uuid4().hex[:12]
        shared = Shared(run_id, lm, lm.bus, seed, Recorder(run_id))
        execution = Execution(shared, self._definition, self.limits, Cell(self._new_state(state)))
        failure: BaseException | None = None
        async with AsyncExitStack() as stack:
            events = await stack.enter_async_context(lm.events(run=run_id)) if watched else None
            run = Run[O](execution, events, lambda run: self._explain_run(run))
            stack.enter_context(shared.record.listening(lm.bus))
            stack.enter_context(lm._holding(run.id))
            async with anyio.create_task_group() as group:
                group.start_soon(run._drive, value, transcript)
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

    def _new_state(self, given: Any = _UNSET) -> Any:
        kind = self._definition.state
        if given is not _UNSET:
            if isinstance(kind, type) and not isinstance(given, kind):
                raise GraphError(
                    f"program {self.name!r} has state {kind.__name__}, not {type(given).__name__}"
                )
            return given
        if kind is None:
            return None
        try:
            return kind()
        except TypeError as e:
            raise GraphError(
                f"program {self.name!r} can't make its state {kind.__name__}() ({e}): pass state="
            ) from e

    def _explain_run(self, run: Run[Any]) -> str:
        return tree(self._definition, self.limits, run_notes(run._shared.record.generations))


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        trio = sys.modules.get("trio")
        return trio is not None and bool(cast("Any", trio).lowlevel.in_trio_run())
    return True
