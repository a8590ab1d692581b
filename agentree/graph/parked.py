"""The signal that a task waits for a person: it goes no further in this process."""

from collections.abc import Iterable, Sequence
from typing import cast

from agentree.errors import Question


class Parked(BaseException):
    """Ends a task without failing it. No Exception: `except Exception` in a step must not swallow it."""

    def __init__(self, questions: Sequence[Question]) -> None:
        super().__init__(", ".join(question.path for question in questions))
        self.questions = tuple(questions)

    @classmethod
    def all(cls, several: "Iterable[Parked]") -> "Parked":
        """Several as one, each question once."""
        found = {question.path: question for one in several for question in one.questions}
        return cls(list(found.values()))


def parked_in(error: BaseException) -> Parked | None:
    """The signal inside of a group that a step's own task group made; None where there is more in it."""
    if isinstance(error, Parked):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    inner = [parked_in(one) for one in cast("Sequence[BaseException]", error.exceptions)]
    found = [one for one in inner if one is not None]
    return Parked.all(found) if found and len(found) == len(inner) else None
