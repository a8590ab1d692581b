"""Every error that agentree raises on purpose. Each names the thing at fault and the way out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


class TranscriptLike(Protocol):
    """What an error can say of a transcript without knowing the runtime."""

    @property
    def token_ids(self) -> Sequence[int]: ...
    @property
    def text(self) -> str: ...


class AgentreeError(Exception):
    """Base of all of them."""


class InvalidArgument(AgentreeError, ValueError):
    """An argument is out of range or does not go with another one: names both and what to write."""


class ToolDefinitionError(AgentreeError, TypeError):
    """A function can't become a tool: names the parameter and what to write instead."""


class GraphError(AgentreeError):
    """The graph can't be compiled: says which node or edge, and what to do."""


class ConstraintError(AgentreeError):
    """A schema or regex is refused: names the keyword and its path, or the offset in the pattern."""


class ModelError(AgentreeError):
    """A model can't be found, fetched or read: names the file or the model, and what to do."""


class Unsupported(AgentreeError):
    """This runtime can't do that: names the capability."""


class RuntimeClosed(AgentreeError):
    """The runtime is not open: not entered yet, closed, or its engine failed (`__cause__` says how)."""


class InvalidValue(AgentreeError):
    """The forced text parsed, but the type's own validator refused it."""

    def __init__(self, message: str, *, text: str, transcript: TranscriptLike) -> None:
        super().__init__(message)
        self.text = text
        self.transcript = transcript


class ContextOverflow(AgentreeError):
    """The transcript does not fit the model or the pool. Sizes are in tokens."""

    transcript: TranscriptLike | None = None
    """Where a node of a run met it: the transcript before the node's message."""
    partial: object = None
    """The latest output of a node then."""
    run: str = ""
    """Id of that run."""

    def __init__(
        self, message: str, *, needed: int, limit: int, prompt: int = 0, max_tokens: int = 0
    ) -> None:
        super().__init__(message)
        self.needed = needed
        self.limit = limit
        self.prompt = prompt
        """Tokens of the prompt."""
        self.max_tokens = max_tokens
        """New tokens that were asked for."""


class LimitReached(AgentreeError):
    """A limit was hit with `on_limit="raise"`: carries transcript, partial result and the run's id."""

    def __init__(
        self,
        message: str,
        *,
        limit: str,
        transcript: TranscriptLike | None,
        partial: object = None,
        run: str = "",
    ) -> None:
        super().__init__(message)
        self.limit = limit
        self.transcript = transcript
        self.partial = partial
        self.run = run


class StrayCancellation(AgentreeError):
    """A step ended in a cancellation that nobody asked for (its `__cause__`): names the step."""


class Deadlock(AgentreeError):
    """Nothing can run and a join is still open: names the join and the missing branch."""


@dataclass(frozen=True)
class Question:
    """What a run waits for a person to say."""

    path: str
    """Names it inside its run: the task path of the visit that asks; more than one there are numbered."""
    text: str
    schema: Mapping[str, object] = field(default_factory=dict[str, object])
    """JSON Schema of the reply."""
    tool: str = ""
    """Set where a tool call waits for approval: which tool, and with which arguments."""
    arguments: Mapping[str, object] = field(default_factory=dict[str, object])


class Interrupted(AgentreeError):
    """The run waits for a person: carries the run's id and the open questions with their paths."""

    def __init__(self, message: str, *, run: str, questions: Sequence[Question]) -> None:
        super().__init__(message)
        self.run = run
        self.questions = tuple(questions)


class UncertainCall(AgentreeError):
    """On resume: a tool that isn't pure was started and its end is unknown."""

    def __init__(
        self, message: str, *, run: str, path: str, tool: str, arguments: Mapping[str, object]
    ) -> None:
        super().__init__(message)
        self.run = run
        self.path = path
        """Task path of the visit that made the call."""
        self.tool = tool
        self.arguments = arguments


class JournalError(AgentreeError):
    """A journal can't be read or written, or a run in it can't go on: says why, and what to do."""

    transcript: TranscriptLike | None = None
    """Where a run was stopped by it: the transcript so far."""
    partial: object = None
    """Where a run was stopped by it: the latest output of a node."""


class AlreadyAnswered(JournalError):
    """The question was answered before: an answer is given once."""
