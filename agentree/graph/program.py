"""A compiled graph, and the ways to run it."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, cast

from agentree.graph.draw import mermaid, plan_notes, tree
from agentree.graph.flow import show
from agentree.graph.given import UNSET, check_input, check_run, new_state
from agentree.graph.going import accepted, going
from agentree.graph.journal.answers import answers_of
from agentree.graph.journal.finished import look, look_now
from agentree.graph.journal.opened import Begun, Place, new_run_id, reopen
from agentree.graph.nodes import Definition
from agentree.graph.plan import Plan
from agentree.graph.run import Run
from agentree.graph.scripts import refuse_loop, to_end
from agentree.graph.types import I, Limits, O, S
from agentree.lm.block import Block

if TYPE_CHECKING:
    from agentree.lm import Runtime, Transcript


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
        state: S = UNSET,
        seed: int = 0,
        transcript: "Transcript | None" = None,
        journal: str | Path | None = None,
        run_id: str | None = None,
    ) -> O:
        """Run to the end and return the output.

        Args:
            input: What the node after the start gets.
            lm: An open runtime.
            state: The run's state object; without it, the graph's state type is called without arguments.
            seed: With it, the task path and the position, each sampled token is drawn.
            transcript: Continue from here: the program's own static prefix is left out.
            journal: A file that keeps what the run does, so that `resume` can go on with it, in another
                process too. Made where it is missing; it may hold many runs.
            run_id: Names the run. None: a new random id.

        Raises:
            InvalidArgument: The input, `lm`, `transcript` or `seed` can't be right; nothing ran.
            RuntimeClosed: The runtime is not open.
            LimitReached: A limit was hit that has `on_limit="raise"`.
            Interrupted: The run waits for a person. Only with a journal.
            JournalError: The journal can't be written, or what the run holds can't be stored in it.
            Exception: What a step raised, as it was raised.
        """
        return await self._run(
            input, lm, state, seed, transcript, None if journal is None else Place(journal), run_id
        )

    async def _run(
        self,
        input: I,
        lm: "Runtime",
        state: Any = UNSET,
        seed: int = 0,
        transcript: "Transcript | None" = None,
        place: Place | None = None,
        run_id: str | None = None,
    ) -> O:
        begun = Begun(new_run_id(run_id), input, new_state(self._definition, state), seed, transcript)
        async with accepted(self._definition, place, lm, begun) as begun, self._going(begun, lm) as run:
            await run._over.wait()
        return run.output

    def stream(
        self,
        input: I,
        /,
        *,
        lm: "Runtime",
        state: S = UNSET,
        seed: int = 0,
        transcript: "Transcript | None" = None,
        journal: str | Path | None = None,
        run_id: str | None = None,
    ) -> AbstractAsyncContextManager[Run[O]]:
        """Run while events are read: `async with program.stream(...) as run: async for event in run: ...`.

        Leaving the block early cancels the run. If the run failed, leaving the block raises its error.
        """
        begun = Begun(new_run_id(run_id), input, new_state(self._definition, state), seed, transcript)
        going = self._stream(begun, lm, None if journal is None else Place(journal))
        return Block(going, call="program.stream(...)", name="run", inside=Run)

    @asynccontextmanager
    async def _stream(self, begun: Begun, lm: "Runtime", place: Place | None) -> AsyncGenerator[Run[O]]:
        async with (
            accepted(self._definition, place, lm, begun) as begun,
            self._going(begun, lm, watched=True) as run,
        ):
            yield run

    async def resume(
        self,
        run_id: str,
        /,
        *,
        lm: "Runtime",
        journal: str | Path,
        answers: Mapping[str, object] | None = None,
        uncertain: Literal["raise", "rerun", "tell"] = "raise",
        changed: Literal["refuse", "accept"] = "refuse",
    ) -> O:
        """Go on with a run where it stopped, and return its output.

        Of a run that is done it is returned at once, also with a runtime that is not open, unless it holds
        transcripts. Finished nodes and tool calls are not repeated, and generations keep their tokens. A step
        that was interrupted runs again from its start, with the state that it started with.

        Args:
            run_id: The run.
            lm: An open runtime of the run's own model.
            journal: The file that the run was journaled in.
            answers: Answers to open questions, by their paths (see `Interrupted.questions`). Objects in them
                have no keys that the reply type does not know, unless it allows others.
            uncertain: What becomes of a tool call that was under way, is not `pure`, and whose end is
                unknown: "raise" raises UncertainCall, "rerun" makes it again, "tell" tells the model.
            changed: "accept" goes on although the program's nodes, types or tools are not what they were.

        Raises:
            Interrupted: Questions are still open.
            UncertainCall: With `uncertain="raise"`.
            AlreadyAnswered: A question has been answered before.
            InvalidArgument: An answer does not fit its question, or `answers` is no mapping.
            JournalError: The journal can't be read or written, or the run can't go on with this program, with
                this runtime, or while another process goes on with it.
            Exception: As `run`.
        """
        answers = answers_of(answers)
        known = await look(self._definition, journal, run_id, answers, changed)
        if known.output is not None:
            return cast("O", known.output.value)
        check_run(self.name, lm, None, 0)
        reopened = reopen(
            self._definition, journal, run_id, lm, answers=answers, uncertain=uncertain, changed=changed
        )
        async with reopened as begun, self._going(begun, lm) as run:
            await run._over.wait()
        return run.output

    def resume_stream(
        self,
        run_id: str,
        /,
        *,
        lm: "Runtime",
        journal: str | Path,
        answers: Mapping[str, object] | None = None,
        uncertain: Literal["raise", "rerun", "tell"] = "raise",
        changed: Literal["refuse", "accept"] = "refuse",
    ) -> AbstractAsyncContextManager[Run[O]]:
        """`resume` while events are read, as `stream` is `run` while events are read.

        What was done before comes as `NodeRestored`; a run that is done has its beginning and its end only.
        """
        given = answers_of(answers)
        reopened = reopen(
            self._definition, journal, run_id, lm, answers=given, uncertain=uncertain, changed=changed
        )
        going = self._resumed(reopened, lm)
        return Block(going, call="program.resume_stream(...)", name="run", inside=Run)

    @asynccontextmanager
    async def _resumed(
        self, reopened: AbstractAsyncContextManager[Begun], lm: "Runtime"
    ) -> AsyncGenerator[Run[O]]:
        check_run(self.name, lm, None, 0)
        async with reopened as begun, self._going(begun, lm, watched=True) as run:
            yield run

    def run_sync(
        self,
        input: I,
        /,
        *,
        lm: "Runtime | None" = None,
        state: S = UNSET,
        seed: int = 0,
        transcript: "Transcript | None" = None,
        journal: str | Path | None = None,
        run_id: str | None = None,
    ) -> O:
        """`run`, for scripts. `lm=None` opens the default model and closes it again.

        Raises:
            AgentreeError: An event loop is running here, as in a notebook: await `program.run(...)` instead.
            Exception: As `run`.
        """
        refuse_loop(self.name, "run")
        check_input(self.name, self._definition.input, input)

        async def run(lm: "Runtime") -> O:
            return await self.run(
                input, lm=lm, state=state, seed=seed, transcript=transcript, journal=journal, run_id=run_id
            )

        return to_end(run, lm)

    def resume_sync(
        self,
        run_id: str,
        /,
        *,
        lm: "Runtime | None" = None,
        journal: str | Path,
        answers: Mapping[str, object] | None = None,
        uncertain: Literal["raise", "rerun", "tell"] = "raise",
        changed: Literal["refuse", "accept"] = "refuse",
    ) -> O:
        """`resume`, for scripts. `lm=None` opens the model that the run began with, and closes it again.

        Raises:
            AgentreeError: An event loop is running here: await `program.resume(...)` instead.
            Exception: As `resume`.
        """
        refuse_loop(self.name, "resume")
        answers = answers_of(answers)
        known = look_now(self._definition, journal, run_id, answers, changed)
        if known.output is not None:
            return cast("O", known.output.value)

        async def resume(lm: "Runtime") -> O:
            return await self.resume(
                run_id, lm=lm, journal=journal, answers=answers, uncertain=uncertain, changed=changed
            )

        return to_end(resume, lm, model=known.model)

    def _going(
        self, begun: Begun, lm: "Runtime", *, watched: bool = False
    ) -> AbstractAsyncContextManager[Run[O]]:
        return going(self._definition, self.limits, begun, lm, watched=watched)

    def explain(self, *, lm: "Runtime | None" = None) -> str:
        """The plan as a tree; with a runtime, with expected shared and new tokens."""
        return tree(self._definition, self.limits, plan_notes(self.plan, self._definition, lm))

    def mermaid(self) -> str:
        """The graph as a Mermaid flow chart."""
        return mermaid(self._definition)

    def svg(self) -> str:
        """The plan as a drawing: an SVG document that needs no other program or file."""
        from agentree.graph.svg import svg

        title = f"{self.name}: {show(self._definition.input)} -> {show(self._definition.output)}"
        return svg(self._definition, title, plan_notes(self.plan, self._definition, None))
