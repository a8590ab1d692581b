"""Recorded agent work as programs: the same turns, forks and searches, written as a user would write them."""

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentree.graph import Ctx, Graph, Limits, Program
from agentree.lm import Transcript
from agentree.messages import Message, assistant, system, user
from agentree.runtime.constraint import Choice

LONGEST = 8192
"""Longest turn of a recorded model, in tokens."""
VOTES = 3
PROPOSE = (
    "Propose the next moves, one on each line: an operation on two of the numbers left, and what is left."
)
JUDGE = "Can the numbers left reach 24? Answer sure, likely, impossible or unclear."
GAME = (
    "Use each of four numbers once, with + - * /, to obtain 24. For 4 9 10 13, 13 - 9 = 4 (left: 4 4 10) is "
    "a good first move, because 10 - 4 = 6 and 4 * 6 = 24."
)


@dataclass(frozen=True)
class Case:
    """One recorded run: the program that does the same work, its input, and what the model said."""

    program: Program[Any, Any, Any]
    value: Any
    state: Any
    said: Sequence[str]
    """In the order in which it is asked for."""


# ------------------------------------------------------------------------------------- conversations


@dataclass
class World:
    """What answers the agent: the messages that followed its turns."""

    replies: deque[Message]


def conversation(head: str) -> Program[World, Message, str]:
    """An agent that writes, and is answered by a tool or a person, until nobody answers."""
    g = Graph("conversation", state=World, input=Message, output=str)

    @g.llm(str, max_tokens=LONGEST, system=head)
    def turn(ctx: Ctx[World], message: Message) -> Message:
        return message

    @g.step
    async def world(ctx: Ctx[World], said: str) -> Message | str:
        return ctx.state.replies.popleft() if ctx.state.replies else said

    g.edge(g.start, turn)
    g.edge(turn, world)
    g.branch(world).case(Message, turn).otherwise(g.end)
    return g.compile(limits=Limits(turns=200))


def airline(root: Path) -> Iterator[Case]:
    """tau-bench: a policy, a customer who writes, tools that are called."""
    programs: dict[str, Program[World, Message, str]] = {}
    for task in json.loads((root / "taubench/gpt-4o-airline.json").read_text()):
        policy, first, *turns = task["traj"]
        head = str(policy["content"])
        said = [_spoken(turn) for turn in turns if turn["role"] == "assistant"]
        replies = [Message(t["role"], str(t["content"])) for t in turns if t["role"] != "assistant"]
        program = programs.setdefault(head, conversation(head))
        state = World(deque(replies[: len(said) - 1]))
        yield Case(program, user(str(first["content"])), state, said)


def _spoken(turn: dict[str, Any]) -> str:
    calls: list[dict[str, Any]] = turn.get("tool_calls") or []
    return str(turn["content"] or "") + "".join(json.dumps(call["function"]) for call in calls)


def hotpot(root: Path) -> Iterator[Case]:
    """ReAct on HotpotQA: six examples, then thought, action and observation in turns."""
    head = str(json.loads((root / "react/prompts_naive.json").read_text())["webthink_simple6"])
    program = conversation(head)
    for line in (root / "react/react_hotpot_reflexion_trial1.jsonl").read_text().splitlines():
        for question, steps in json.loads(line).items():
            said = [f"Thought: {step['thought']}\nAction: {step['action']}" for step in steps]
            replies = [Message("tool", str(step["observation"])) for step in steps[:-1]]
            yield Case(program, user(question), World(deque(replies)), said)


# ------------------------------------------------------------------------------------------ searches


@dataclass(frozen=True)
class Move:
    """What the model wrote in a state, what came of it, and what was tried from there."""

    text: str
    observation: str
    after: "Sequence[Move]"


def toolbench(root: Path) -> Iterator[Case]:
    """ToolBench: depth-first searches, which come back to earlier states."""
    for path in sorted((root / "toolbench_dfs").glob("*.json")):
        record = json.loads(path.read_text())
        task = record["answer_generation"]
        begin = (system(json.dumps(task["function"])), user(str(task["query"])))
        moves = tuple(_moves(record["tree"]["tree"], ""))
        yield Case(_depth_first(), begin, moves, list(_texts(moves)))


def _moves(node: dict[str, Any], written: str) -> Iterator[Move]:
    for child in node["children"]:
        text = f"{written}{child['node_type']}: {child['description']}\n"
        if child["node_type"] == "Action Input":
            yield Move(text, str(child["observation"]), tuple(_moves(child, "")))
        else:
            yield from _moves(child, text)


def _texts(moves: Sequence[Move]) -> Iterator[str]:
    for move in moves:
        yield move.text
        yield from _texts(move.after)


def _depth_first() -> Program[Any, Any, Any]:
    g: Any = Graph("depth_first", state=tuple, input=tuple, output=int)

    @g.step
    async def search(ctx: Ctx[Sequence[Move]], begin: Sequence[Message]) -> int:
        return await explore(ctx.lm.transcript(*begin), ctx.state)

    g.edge(g.start, search)
    g.edge(search, g.end)
    return g.compile()


async def explore(state: Transcript, moves: Sequence[Move]) -> int:
    """Try the moves of one state one after the other; how many states were visited."""
    seen = len(moves)
    async with state.fork(len(moves)) as branches:
        for branch, move in zip(branches, moves, strict=True):
            made = await branch.gen(str, max_tokens=LONGEST)
            seen += await explore(made.transcript + Message("tool", move.observation), move.after)
    return seen


def game24(root: Path) -> Iterator[Case]:
    """Game of 24: breadth-first searches; each move is judged three times, and the best five go on."""
    program = _breadth_first()
    for record in json.loads((root / "tot/game24_gpt4_bfs.json").read_text()):
        said: list[str] = []
        for step in record["steps"]:
            grown = [_grown(old, step["new_ys"]) for old in dict.fromkeys(step["ys"])]
            said += ["".join(moves) or "none" for moves in grown]
            said += [vote for _, votes in _judged(step, grown) for vote in votes]
        yield Case(program, record["steps"][0]["x"], record["steps"], said)


def _grown(old: str, news: Sequence[str]) -> list[str]:
    return [new[len(old) :] for new in news if new.startswith(old)]


def _judged(step: dict[str, Any], grown: Sequence[Sequence[str]]) -> Iterator[tuple[str, list[str]]]:
    """Each new state with the votes that its recorded value is the sum of: 20, 1 or 0.001 for each."""
    values: dict[str, float] = {}
    for new, value in zip(step["new_ys"], step["values"], strict=True):
        values[new] = max(value, values.get(new, 0))  # of equal states only the first was judged
    for old, moves in zip(dict.fromkeys(step["ys"]), grown, strict=True):
        for move in moves:
            value = values[old + move]
            sure, likely, impossible = int(value) // 20, int(value) % 20, round(value % 1 * 1000)
            votes = ["sure"] * sure + ["likely"] * likely + ["impossible"] * impossible
            yield old + move, [*votes, *["unclear"] * VOTES][:VOTES]


def _breadth_first() -> Program[Any, Any, Any]:
    g: Any = Graph("breadth_first", state=list, input=str, output=list)

    @g.step
    async def search(ctx: Ctx[list[dict[str, Any]]], numbers: str) -> list[str]:
        beam = {"": ctx.lm.transcript(system(GAME), user(f"Numbers: {numbers}"))}
        for step in ctx.state:
            async with ctx.lm.fork([state + user(PROPOSE) for state in beam.values()]) as asked:
                await asked.gen(str, max_tokens=LONGEST)
            states = [
                (old + move, state + assistant(move))
                for old, state in beam.items()
                for move in _grown(old, step["new_ys"])
            ]
            async with ctx.lm.fork([state + user(JUDGE) for _, state in states], each=VOTES) as judges:
                await judges.gen(Choice(("sure", "likely", "impossible", "unclear")), max_tokens=16)
            beam = {text: state for text, state in states if text in step["select_new_ys"]}
        return list(beam)

    g.edge(g.start, search)
    g.edge(search, g.end)
    return g.compile()


DATASETS: dict[str, Callable[[Path], Iterator[Case]]] = {
    "tau-bench airline": airline,
    "ReAct HotpotQA": hotpot,
    "ToolBench searches": toolbench,
    "game of 24": game24,
}
