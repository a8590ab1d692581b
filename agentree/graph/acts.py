"""What a visit of a node does that runs a function of the user or asks the model."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import anyio

from agentree.errors import AgentreeError, GraphError, StrayCancellation
from agentree.events import Event
from agentree.graph.budget import Trail
from agentree.graph.ctx import Ctx
from agentree.graph.final import final_turn
from agentree.graph.given import check_goto
from agentree.graph.nodes import Definition, Head, LlmNode, SampleNode, StepNode
from agentree.graph.parked import without_parked
from agentree.graph.task import Shared, Task
from agentree.lm.holding import owner_of
from agentree.messages import Message, system
from agentree.runtime.request import Scope
from agentree.tools import ToolCalls, raise_if_asked

if TYPE_CHECKING:
    from agentree.lm import Generation, Runtime, Transcript


def begin(lm: "Runtime", head: Head) -> "Transcript":
    """A transcript with nothing but its static prefix."""
    first = () if head.system is None else (system(head.system),)
    return lm.transcript(*first, *head.examples, tools=head.tools)


@dataclass(eq=False)
class Visit:
    """One visit of a node by a task."""

    shared: Shared
    definition: Definition
    task: Task
    path: str
    tokens: int = 0
    """Spent by its generations."""
    calls: Counter[str] = field(default_factory=Counter[str])
    """Tool calls that it began, by tool."""
    inner: Trail | None = None
    """The path through the program that it calls."""
    _shown: "tuple[Transcript | None, Transcript | None]" = (None, None)

    @property
    def scope(self) -> Scope:
        """Who asks, for the engine."""
        return Scope(self.shared.id, self.path)

    @cached_property
    def lm(self) -> "Runtime":
        """The runtime, asking in the name of this visit; its seeds follow from run seed and path."""
        return self.shared.lm._at(self.scope, seed=self.shared.seed)

    def named(self, transcript: "Transcript") -> "Transcript":
        """The same transcript, asking in the name of this visit."""
        return transcript._at(self.scope, seed=self.shared.seed)

    def ctx(self, attempt: int = 1) -> Ctx[Any]:
        """What the node's function is given."""
        return Ctx(
            lm=self.lm,
            cell=self.task.cell,
            transcript=self.transcript,
            goto=self.goto,
            emit=self.emit,
            attempt=attempt,
            call_key=f"{self.shared.id}/{self.path}",
            ask=self.ask,
        )

    def transcript(self) -> "Transcript":
        """The task's transcript, else what it will begin with if that is sure, else an empty one.

        The same object as long as the task's own is the same: its draws of seeds are counted.
        """
        of, shown = self._shown
        if shown is None or of is not self.task.transcript:
            shown = self.named(self._begun() if self.task.transcript is None else self.task.transcript)
            self._shown = (self.task.transcript, shown)
        return shown

    def _begun(self) -> "Transcript":
        heads = list(self.definition.heads.values())
        return begin(self.lm, heads[0] if len(heads) == 1 else Head(None, (), ()))

    def goto(self, transcript: "Transcript") -> None:
        """Continue from another transcript."""
        check_goto(transcript)
        self.task.transcript = transcript
        self.task.unanswered = None

    def emit(self, event: Event) -> None:
        """Deliver an event of this visit."""
        self.shared.emit(event, self.path)

    async def ask(self, question: str, form: Any) -> Any:
        """A person's answer. Raises Parked where there is none yet, and AgentreeError without a journal."""
        if self.shared.journal is None:
            raise AgentreeError(
                f"{self.path} asks {question!r}, and a run that waits for a person needs a journal: "
                "run the program with journal='runs.journal'"
            )
        return await self.shared.journal.questions.ask(self.path, question, form)

    async def step(self, node: StepNode, value: object) -> object:
        """Run the user's function, and count the tokens of what it generates by itself."""
        record = self.shared.record
        before = len(record)
        try:
            return await self._tried(node, value)
        finally:
            spent = record.spent(self.path, since=before)
            if self.shared.journal is not None:
                spent += self.shared.journal.generations.spent(self.path)
            self.tokens += spent
            self.task.trail.spend(spent)

    async def _tried(self, node: StepNode, value: object) -> object:
        """Again after an exception as often as the node allows; what people said already is known then."""
        attempt = 1
        while True:
            try:
                return await self._try(node, value, attempt)
            except BaseExceptionGroup as e:
                failed = without_parked(e)
                if not isinstance(failed, Exception) or attempt > node.retries:
                    if failed is e:
                        raise
                    raise failed from e.__cause__
            except Exception:
                if attempt > node.retries:
                    raise
            attempt += 1
            if self.shared.journal is not None:
                self.shared.journal.questions.again(self.path)

    async def _try(self, node: StepNode, value: object, attempt: int) -> object:
        made: Any = node.fn(self.ctx(attempt), value)
        if not hasattr(made, "__await__"):
            raise GraphError(
                f"step {node.name!r} returned {type(made).__name__}, nothing to await: write 'async def'"
            )
        with anyio.move_on_after(node.timeout) as scope:
            try:
                return await made
            except anyio.get_cancelled_exc_class() as e:
                await raise_if_asked()
                raise StrayCancellation(
                    f"step {node.name!r} ended in {type(e).__name__}, and nobody cancelled it ({self.path}): "
                    "it awaited something that was cancelled elsewhere; catch that where it is awaited"
                ) from e
        assert scope.cancelled_caught and node.timeout is not None
        raise TimeoutError(f"step {node.name!r} took longer than {node.timeout:g} s ({self.path})")

    async def llm(self, node: LlmNode, value: object) -> object:
        """Append the node's message and let the model answer."""
        task = self.task
        task.llm = node
        prompt = self._prompted(node, value)
        task.trail.turn()
        with task.trail.reserved(len(prompt._opened())):
            made = await self.generate(node, prompt)
        if self.definition.distance[node.name] == float("inf") and made.transcript._holder is None:
            # The plan knows that nobody reads it again: no need to wait for the end of the run.
            session, owner = made.transcript._session, owner_of(self.scope)
            session.release(owner, last_use=True, start=task.trunk)
        task.value = made.value
        return made.value

    def _prompted(self, node: LlmNode | SampleNode, value: object, times: int = 1) -> "Transcript":
        """The transcript with the node's message. Raises LimitHit where so many answers are not allowed."""
        message = cast("object", node.prompt(self.ctx(), value))
        if not isinstance(message, Message):
            raise GraphError(
                f"llm node {node.name!r} returned {type(message).__name__}: "
                "its function must return a Message, such as user('...')"
            )
        task = self.task
        base = task.transcript
        if base is None:
            base = begin(self.lm, self.definition.heads[node.name])
            task.trunk = len(base)
        prompt = base + message
        if hit := task.trail.forbids_turn(len(prompt._opened()) * times):
            raise task.hit(hit, transcript=base, pending=(message,))
        return prompt

    async def sample(self, node: SampleNode, value: object) -> "list[Generation[Any]]":
        """Let the model answer several times; the task's own transcript stays as it is."""
        prompt = self.named(self._prompted(node, value, node.n))
        trail = self.task.trail
        trail.turn()
        with trail.reserved(len(prompt._opened()) * node.n):
            async with prompt.fork(node.n) as kids:
                made = await kids.gen(node.output, max_tokens=node.max_tokens, temperature=node.temperature)
            for generation in made:
                self._count(generation)
        self.task.value = made
        return made

    def _count(self, made: "Generation[Any]") -> None:
        spent = made.usage.prompt_tokens + made.usage.output_tokens
        self.tokens += spent
        self.task.trail.spend(spent)

    async def generate(self, node: LlmNode, prompt: "Transcript", *, last: bool = False) -> "Generation[Any]":
        """One turn of the model; `last`: it can only give the program's output."""
        task, here = self.task, self.named(prompt)
        take: Callable[[Any], Any] = _same
        if node.tools and not last:
            made: Generation[Any] = await here.call(
                node.tools,
                output=node.outputs[0],
                max_tokens=node.max_tokens,
                temperature=node.temperature,
                parallel=node.parallel,
                think=node.think,
            )
        else:
            outputs = (self.definition.output,) if last else node.outputs
            if last and node.tools:
                form, take = final_turn(self.definition.output)
                outputs = (form,)
            made = await here.gen(
                *outputs,
                max_tokens=node.max_tokens,
                temperature=node.temperature,
                stop=() if last else node.stop,
                think=0 if last else node.think,
            )
            made = replace(made, value=take(made.value))
        task.transcript = made.transcript
        task.unanswered = made.value if isinstance(made.value, ToolCalls) else None
        self._count(made)
        return made


def _same(value: Any) -> Any:
    return value
