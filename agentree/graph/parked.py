"""The signal that a task waits for a person: it goes no further in this process."""

from collections.abc import Iterable, Iterator, Sequence
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


def without_parked(error: BaseExceptionGroup[BaseException]) -> BaseException:
    """What a step's own task group comes to: what failed in it, else that it waits for a person."""
    parked, failed = error.split(Parked)
    if parked is None or failed is not None:
        return error if parked is None else cast("BaseException", failed)
    return Parked.all(_leaves(parked))


def _leaves(error: BaseException) -> Iterator[Parked]:
    if isinstance(error, Parked):
        yield error
    elif isinstance(error, BaseExceptionGroup):
        for one in cast("Sequence[BaseException]", error.exceptions):
            yield from _leaves(one)
