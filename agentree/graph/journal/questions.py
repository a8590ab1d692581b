"""What a run asks people: each question once, bound to the place and the very words of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from agentree.errors import InvalidArgument, Question
from agentree.graph.flow import show
from agentree.graph.journal.log import RunLog
from agentree.graph.journal.past import Body
from agentree.graph.parked import Parked
from agentree.tools import ToolCall


@dataclass(frozen=True)
class Approval:
    """What a person says to a tool call: `true`, `false`, or this with a reason for the model."""

    approved: bool
    reason: str = ""


class Questions:
    """The questions of one run and their answers."""

    def __init__(self, log: RunLog, answers: Mapping[str, Any]) -> None:
        """`answers` are JSON values by question."""
        self._log = log
        self._answers = dict(answers)
        self._taken: set[str] = set()
        """Questions that a visit of this process has asked already."""

    def again(self, path: str) -> None:
        """The visit at `path` runs again from its start: what it asks again, it has asked before."""
        self._taken -= {cast("str", body["id"]) for body in self._log.past.questions.get(path, ())}

    async def ask(self, path: str, text: str, form: Any) -> Any:
        """The answer, as a value of the reply type. Raises Parked where there is none yet."""
        return await self._ask(path, Question("", text, _schema(form)), form)

    async def approve(self, path: str, call: ToolCall) -> Approval:
        """What a person says to a call. Raises Parked where nobody has said anything yet."""
        form = bool | Approval
        text = f"May {call.name!r} be called?"
        question = Question("", text, _schema(form), call.name, dict(call.args))
        said = await self._ask(f"{path}:{call.id}", question, form)
        return Approval(said) if isinstance(said, bool) else cast("Approval", said)

    async def _ask(self, place: str, question: Question, form: Any) -> Any:
        id_ = self._known(place, question)
        if id_ is not None and id_ in self._answers:
            try:
                return TypeAdapter[Any](form).validate_python(self._answers[id_])
            except ValidationError as e:
                problem = e.errors(include_url=False)[0]["msg"]
                self._log.note("refused", place, id=id_, error=problem)
                self._log.past.refused.add(id_)
                id_ = None
        if id_ is None:
            asked = self._log.past.questions[place]
            id_ = f"{place}:{len(asked) + 1}" if asked else place
            self._taken.add(id_)
            asked.append({"id": id_, **_body(question)})
            self._log.note("question", place, **asked[-1])
        # Also before another process answers: it looks for the question in the journal.
        await self._log.sync()
        raise Parked([_question({"id": id_, **_body(question)})])

    def _known(self, place: str, question: Question) -> str | None:
        """The question as it was asked before, if it was: the same words, reply, call and place."""
        for body in self._log.past.questions.get(place, ()):
            id_ = cast("str", body["id"])
            if id_ in self._taken or id_ in self._log.past.refused:
                continue
            if all(body[key] == value for key, value in _body(question).items()):
                self._taken.add(id_)
                return id_
        return None


def _body(question: Question) -> dict[str, Any]:
    return {
        "text": question.text,
        "schema": question.schema,
        "tool": question.tool,
        "arguments": question.arguments,
    }


def _question(body: Body) -> Question:
    return Question(body["id"], body["text"], body["schema"], body["tool"], body["arguments"])


def question_of(body: Body) -> Question:
    """A question as a journal has it."""
    return _question(body)


def _schema(form: Any) -> dict[str, object]:
    try:
        return TypeAdapter[Any](form).json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError) as e:
        raise InvalidArgument(
            f"a person can't reply with {show(form)}: ask for plain values, a dataclass or a pydantic model"
        ) from e
