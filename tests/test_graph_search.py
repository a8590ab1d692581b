"""tree_of_thought with each of its options, on scripted thoughts: what is asked, kept, and computed."""

import re
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Literal

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agentree.errors import GraphError, InvalidArgument
from agentree.events import GenerationEnded
from agentree.graph import Program, tree_of_thought
from agentree.graph.search import PROPOSE
from agentree.graph.thought import JUDGE, VOTE
from agentree.messages import assistant, user
from agentree.testing import ScriptedRequest, ScriptedRuntime
from agentree.testing.engine import ScriptedEngine
from benchmarks.agents import Account

pytestmark = pytest.mark.anyio


class Move(BaseModel):
    n: int


class Verdict(Enum):
    SURE = "sure"
    MAYBE = "maybe"
    NO = "no"


def size(move: Move) -> float:
    return float(move.n)


def asked(request: ScriptedRequest) -> str:
    """What the user said last."""
    return request.prompt.rpartition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]


def thoughts(request: ScriptedRequest) -> list[int]:
    """The moves that the assistant has made in a prompt."""
    return [int(n) for n in re.findall(r'assistant\n\{"n": (\d+)\}', request.prompt)]


class Book:
    """A script that writes down what is asked of it."""

    def __init__(self, answer: Callable[[ScriptedRequest], object]) -> None:
        self.requests: list[ScriptedRequest] = []
        self._answer = answer

    def __call__(self, request: ScriptedRequest) -> object:
        self.requests.append(request)
        return self._answer(request)

    def about(self, text: str) -> list[ScriptedRequest]:
        return [request for request in self.requests if text in asked(request)]


async def found(program: Program[None, str, Any], script: Any, task: str = "task") -> tuple[Any, str]:
    """What a search finds, and the transcript that it ends with."""
    async with ScriptedRuntime(script) as lm:
        async with program.stream(task, lm=lm) as run:
            _ = [event async for event in run]
        assert lm.stats().leased == 0
        lm.check()
        return run.output, run.transcript.text


Search = Literal["bfs", "dfs"]
SEARCHES: Any = pytest.mark.parametrize("search", ["bfs", "dfs"])


# ----------------------------------------------------------------------------------- sample or propose


@SEARCHES
async def test_one_turn_names_all_thoughts_and_each_becomes_a_branch(search: Search) -> None:
    def answer(request: ScriptedRequest) -> object:
        made = thoughts(request)
        return [Move(n=10 * len(made) + i).model_dump() for i in (1, 3, 2)]

    book = Book(answer)
    program = tree_of_thought(
        thought=Move, value=size, breadth=3, width=1, depth=2, propose=True, search=search
    )
    output, text = await found(program, book)
    assert output == [Move(n=3), Move(n=13)]
    assert [PROPOSE.format(n=3) in asked(request) for request in book.requests] == [True, True]
    assert thoughts(book.requests[1]) == [3]  # the survivor goes on from its own transcript
    assert PROPOSE[:10] not in text
    assert text.count('"n"') == 2  # what was proposed beside is not shown to those who go on
    assert text.index("task") < text.index('{"n": 3}') < text.index('{"n": 13}')


@SEARCHES
async def test_each_branch_samples_a_thought(search: Search) -> None:
    values = iter([1, 3, 2, 11, 13, 12])
    book = Book(lambda request: Move(n=next(values)))
    program = tree_of_thought(thought=Move, value=size, breadth=3, width=1, depth=2, search=search)
    output, _ = await found(program, book)
    assert output == [Move(n=3), Move(n=13)]
    assert [thoughts(request) for request in book.requests] == [[]] * 3 + [[3]] * 3


# ------------------------------------------------------------------------------------- value or vote


@SEARCHES
@pytest.mark.parametrize("votes", [1, 3])
async def test_the_model_votes_for_the_best_of_a_level(search: Search, votes: int) -> None:
    values = iter([1, 2, 3, 4, 5, 6])
    ballots = iter(["2", "3", "3"] * 2 if votes == 3 else ["3", "3"])

    def answer(request: ScriptedRequest) -> object:
        return next(ballots) if VOTE in asked(request) else Move(n=next(values))

    book = Book(answer)
    program = tree_of_thought(
        thought=Move, value="vote", votes=votes, breadth=3, width=1, depth=2, search=search
    )
    output, text = await found(program, book)
    assert output == [Move(n=3), Move(n=6)]
    polls = book.about(VOTE)
    assert len(polls) == 2 * votes
    assert asked(polls[0]) == f'task\n\n1. {{"n": 1}}\n2. {{"n": 2}}\n3. {{"n": 3}}\n\n{VOTE}'
    assert '1. {"n": 3} -> {"n": 4}' in asked(polls[-1])
    assert VOTE not in text


async def test_one_way_alone_needs_no_vote() -> None:
    book = Book(lambda request: Move(n=7))
    program = tree_of_thought(thought=Move, value="vote", breadth=3, depth=1)
    assert (await found(program, book))[0] == [Move(n=7)]
    assert book.about(VOTE) == []


@SEARCHES
async def test_verdicts_are_averaged(search: Search) -> None:
    said = {1: ["sure", "no", "no"], 2: ["maybe", "maybe", "maybe"], 3: ["no", "no", "no"]}
    values = iter([1, 2, 3])

    def answer(request: ScriptedRequest) -> object:
        return said[thoughts(request)[-1]].pop(0) if JUDGE in asked(request) else Move(n=next(values))

    book = Book(answer)
    program = tree_of_thought(
        thought=Move, value=Verdict, votes=3, breadth=3, width=1, depth=1, search=search
    )
    output, text = await found(program, book)
    assert output == [Move(n=2)]  # three times 1 beat 2 + 0 + 0
    assert len(book.about(JUDGE)) == 9
    assert JUDGE not in text


async def test_the_users_question_is_asked() -> None:
    values = iter([1, 2])
    book = Book(lambda r: r.prompt.count('"n": 2') if "How far" in asked(r) else Move(n=next(values)))
    program = tree_of_thought(thought=Move, value=int, judge="How far are we?", breadth=2, width=1, depth=1)
    assert (await found(program, book))[0] == [Move(n=2)]
    assert len(book.about("How far are we?")) == 2


@SEARCHES
@pytest.mark.parametrize("propose", [False, True])
async def test_a_function_values_without_asking(search: Search, propose: bool) -> None:
    values = iter([4, 6, 5, 4, 6, 5])

    def answer(request: ScriptedRequest) -> object:
        return [{"n": next(values)} for _ in range(3)] if propose else Move(n=next(values))

    book = Book(answer)
    program = tree_of_thought(
        thought=Move, value=size, breadth=3, width=1, depth=2, propose=propose, search=search
    )
    assert (await found(program, book))[0] == [Move(n=6), Move(n=6)]
    assert len(book.requests) == (2 if propose else 6)


# ---------------------------------------------------------------------------------- options and solved


def code(letter: str) -> float:
    return float(ord(letter))


def letters(task: str, ways: list[str]) -> list[str]:
    """What may follow: each letter of the task once."""
    return [letter for letter in task if letter not in ways]


@SEARCHES
@pytest.mark.parametrize("propose", [False, True])
async def test_nothing_but_the_options_can_be_generated(search: Search, propose: bool) -> None:
    def answer(request: ScriptedRequest) -> object:
        said = re.findall(r"assistant\n(\w)<", request.prompt)
        rest = [letter for letter in "abc" if letter not in said]
        return rest[:2] if propose else rest[-1]

    program = tree_of_thought(
        thought=str,
        value=code,
        options=letters,
        breadth=2,
        width=1,
        depth=5,
        propose=propose,
        search=search,
    )
    output, _ = await found(program, Book(answer), "abc")
    # All three are used up before the depth is: the way ends there. A proposal names two of what is left.
    assert output == (["b", "c", "a"] if propose else ["c", "b", "a"])
    with pytest.raises(Exception, match=r"start|script|follow"):
        await found(program, ["z"] if not propose else [["z", "z"]], "abc")


@SEARCHES
async def test_without_any_option_there_is_no_thought(search: Search) -> None:
    book = Book(lambda request: "never")
    program = tree_of_thought(
        thought=str, value=len, options=lambda task, ways: [], breadth=2, depth=2, search=search
    )
    assert (await found(program, book))[0] == []
    assert book.requests == []


@SEARCHES
async def test_a_solution_ends_the_search_unjudged(search: Search) -> None:
    values = iter([1, 2, 3, 4, 9, 5, 6, 7])

    def answer(request: ScriptedRequest) -> object:
        return "sure" if JUDGE in asked(request) else Move(n=next(values))

    def solved(task: str, ways: list[Move]) -> bool:
        return task == "task" and ways[-1].n == 9

    book = Book(answer)
    program = tree_of_thought(
        thought=Move, value=Verdict, breadth=3, width=1, depth=4, solved=solved, search=search
    )
    assert (await found(program, book))[0] == [Move(n=1), Move(n=9)]
    assert len(book.about(JUDGE)) == 3  # of the first level alone


async def test_depth_first_turns_back_and_gives_the_best_attempt() -> None:
    """Without a solution: the longest way met, and of those the one whose last thought is worth most."""
    values = iter([5, 4, 1, 3, 2, 2])
    book = Book(lambda request: Move(n=next(values)))
    program = tree_of_thought(
        thought=Move,
        value=size,
        breadth=2,
        width=2,
        depth=2,
        search="dfs",
        solved=lambda task, ways: False,
    )
    assert (await found(program, book))[0] == [Move(n=5), Move(n=3)]
    assert [thoughts(request) for request in book.requests] == [[]] * 2 + [[5]] * 2 + [[4]] * 2


async def test_depth_first_takes_the_second_way_where_the_first_is_no_solution() -> None:
    values = iter([5, 4, 1, 3, 7, 9])
    book = Book(lambda request: Move(n=next(values)))
    program = tree_of_thought(
        thought=Move,
        value=size,
        breadth=2,
        width=2,
        depth=2,
        search="dfs",
        solved=lambda task, ways: ways[-1].n == 9,
    )
    assert (await found(program, book))[0] == [Move(n=4), Move(n=9)]


@pytest.mark.parametrize("name", ["breadth", "width", "depth", "votes"])
@pytest.mark.parametrize("value", [0, -1, 1.5, None, "2"], ids=str)
def test_numbers_that_make_no_search(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(f"tree_of_thought({name}={value!r})")):
        tree_of_thought(thought=Move, value=size, **{name: value})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"search": "dijkstra"}, "write 'bfs' or 'dfs'"),
        ({"options": letters}, "write thought=str"),
        ({"value": Move}, "whose first option is the best"),
        ({"value": "votes"}, "'vote'"),
        ({"value": 5}, "'vote'"),
        ({"solved": True}, "solved=True"),
        ({"thought": str, "options": ["a", "b"]}, "options=['a', 'b']"),
    ],
    ids=["search", "texts", "model", "name", "number", "solved", "list"],
)
def test_options_that_make_no_search(options: dict[str, Any], said: str) -> None:
    with pytest.raises(GraphError, match=re.escape(said)):
        given: dict[str, Any] = {"thought": Move, "value": size, **options}
        tree_of_thought(**given)


# -------------------------------------------------------------------- nothing is computed a second time


def values() -> Iterator[int]:
    n = 0
    while True:
        n = (n * 5 + 3) % 17
        yield n


@settings(max_examples=25, deadline=None)
@given(
    breadth=st.integers(1, 3),
    width=st.integers(1, 3),
    depth=st.integers(1, 3),
    votes=st.integers(1, 2),
    propose=st.booleans(),
    how=st.sampled_from(["value", "verdict", "vote"]),
    search=st.sampled_from(["bfs", "dfs"]),
    picks=st.lists(st.integers(0, 2), min_size=8, max_size=8),
)
def test_survivors_go_on_from_their_own_transcripts(
    breadth: int,
    width: int,
    depth: int,
    votes: int,
    propose: bool,
    how: str,
    search: Search,
    picks: list[int],
) -> None:
    """What is computed is what no prompt or output had before, and one token where all was there."""
    stream, turn = values(), iter(picks * 200)

    def answer(request: ScriptedRequest) -> object:
        if VOTE in asked(request):
            numbers = re.findall(r"^(\d+)\. ", asked(request), re.MULTILINE)
            return numbers[next(turn) % len(numbers)]
        if JUDGE in asked(request):
            return list(Verdict)[next(turn)].value
        return [{"n": next(stream)} for _ in range(breadth)] if propose else Move(n=next(stream))

    value: Any = {"value": size, "verdict": Verdict, "vote": "vote"}[how]
    program = tree_of_thought(
        thought=Move,
        value=value,
        breadth=breadth,
        width=width,
        depth=depth,
        votes=votes,
        propose=propose,
        search=search,
        instructions="Search.",
        examples=[user("easy"), assistant('{"n": 1}')],
    )
    account = Account()

    async def main() -> None:
        async with ScriptedRuntime(answer) as lm:
            engine = lm._home.last.engine()
            assert isinstance(engine, ScriptedEngine)
            account.observe(engine)
            async with program.stream("task", lm=lm) as run:
                made = [event async for event in run if isinstance(event, GenerationEnded)]
            assert len(run.output) <= depth
            text = run.transcript.text.partition("task")[2]
            assert [int(n) for n in re.findall(r'\{"n": (\d+)\}', text)] == [move.n for move in run.output]
            assert len(made) == account.calls
            lm.check()

    anyio.run(main)
    assert account.computed == account.unique + account.full_hits


async def later(move: Move) -> float:
    return 1.0


def late(move: Move) -> Any:
    return later(move)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (late, "gave coroutine"),
        (None, "gave NoneType None"),
        ("3", "gave str '3'"),
        (float("nan"), "gave float nan"),
    ],
)
async def test_what_a_value_gives_is_a_number(given: Any, said: str) -> None:
    def value(move: Move) -> Any:
        return given(move) if callable(given) else given

    program = tree_of_thought(thought=Move, value=value, breadth=1, width=1, depth=1)
    message = rf"tree_of_thought\(value=.*{said}.*returns what it is worth, a number"
    with pytest.raises(GraphError, match=message):
        await found(program, {"": Move(n=1)})


@pytest.mark.parametrize("given", ["abc", b"abc", None, 3])
async def test_what_options_give_is_a_list(given: Any) -> None:
    program = tree_of_thought(thought=str, value=len, options=lambda task, ways: given, breadth=1, depth=1)
    with pytest.raises(GraphError, match=r"tree_of_thought\(options=.*return a list of texts"):
        await found(program, {"": "a"})


@pytest.mark.parametrize("option", ["value", "options", "solved"])
def test_functions_of_a_search_are_not_async(option: str) -> None:
    given: dict[str, Any] = {"thought": str, "value": len, option: later}
    with pytest.raises(GraphError, match=f"{option}=later.*write 'def', not 'async def'"):
        tree_of_thought(**given)
