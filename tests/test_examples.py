"""The example programs: what their plans promise is what their runs do, and what the model makes of them."""

import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agentree.cli.load import load_file
from agentree.events import Event, GenerationEnded, NodeStarted
from agentree.graph import Program, Run
from agentree.graph.nodes import targets
from agentree.graph.plan import Extend, Generate
from agentree.lm import Runtime
from agentree.messages import system, user
from agentree.runtime.engine import Engine
from agentree.testing import ScriptedRequest, ScriptedRuntime, assert_cached, final_answer
from agentree.tools import ToolCall
from benchmarks.agents import Account

EXAMPLES = Path(__file__).parent.parent / "examples" / "agents"
GAME = load_file(EXAMPLES / "tree_of_thought.py")


@dataclass(frozen=True)
class Example:
    """A program of an example, what to give it, what the model says, and what comes of it."""

    name: str
    value: object
    script: Any
    output: Any
    unvisited: frozenset[str] = frozenset()
    """Nodes that this run does not come to."""

    @property
    def program(self) -> Program[Any, Any, Any]:
        return load_file(EXAMPLES / f"{self.name}.py").agent


def capital(city: str) -> dict[str, str]:
    return {"sentence": f"The capital of Norway is {city}."}


def search(request: ScriptedRequest) -> str:
    """Thoughts: the first legal move that was not said yet here. Verdicts: sure."""
    if "Can the numbers" in request.prompt.rpartition("user")[2]:
        return "sure"
    said = re.findall(r"assistant\n(.*left: .*\))", request.prompt)[2:]  # two are worked examples
    return GAME.legal_moves("1 2 3 4", said)[0]


SCRIPTED = [
    # Its tool waits for a person, which needs a journal: this run asks for no refund.
    Example(
        "approval",
        "Good morning!",
        {"think": [final_answer("Good morning.")]},
        "Good morning.",
        unvisited=frozenset({"tools", "observe"}),
    ),
    Example(
        "best_of_n",
        "What is the capital of Norway?",
        {"attempt": [capital(city) for city in ("Bergen", "Oslo", "Oslo", *("Rome", "Paris") * 3)]},
        capital("Rome"),
    ),
    Example(
        "map_reduce",
        ["Great pasta.", "Cold soup."],
        {
            "read[0]": {"about": "food", "rating": 5},
            "read[1]": {"about": "food", "rating": 1},
            "combine": {"best": "food", "worst": "food", "summary": "Opinions on the food differ."},
        },
        {"best": "food", "worst": "food", "summary": "Opinions on the food differ."},
    ),
    Example(
        "react",
        "What is (45+55)*3?",
        {"think": [ToolCall("", "calculator", {"expression": "(45+55)*3"}), final_answer("300")]},
        "300",
    ),
    Example(
        "research",
        "tides",
        {
            "introduce": "Tides are the rise and fall of the sea.",
            "answer": [{"claim": f"This is claim {i} of three.", "sure": i > 0} for i in range(3)],
            "write": {"summary": "There are three claims on the tides.", "complete": True},
        },
        {"summary": "There are three claims on the tides.", "complete": True},
    ),
    Example(
        "tree_of_thought",
        "1 2 3 4",
        search,
        ["2 + 1 = 3 (left: 3 3 4)", "3 + 3 = 6 (left: 4 6)", "6 + 4 = 10 (left: 10)"],
    ),
]
NAMES = [example.name for example in SCRIPTED]


def test_every_example_with_a_program_is_here() -> None:
    found = [path.stem for path in EXAMPLES.glob("*.py") if hasattr(load_file(path), "agent")]
    assert sorted(found) == NAMES


def plain(value: Any) -> Any:
    return value.model_dump() if hasattr(value, "model_dump") else value


async def run(
    program: Program[Any, Any, Any], value: object, lm: Runtime, *, journal: Path | None = None
) -> tuple[Run[Any], list[Event]]:
    async with program.stream(value, lm=lm, journal=journal) as going:
        events = [event async for event in going]
    return going, events


def skeleton(tree: str) -> list[str]:
    """The lines of a plan that name nodes."""
    named = re.compile(r"(start|end)$|\[(llm|step|sample|tools|join|call)\]$|\(again\)$")
    return [line for line in tree.splitlines() if named.search(line)]


def node_of(path: str) -> str:
    return re.sub(r"(\[\d+\])*(#\d+)?$", "", path)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("example", SCRIPTED, ids=NAMES)
async def test_the_run_is_what_the_plan_says(example: Example, tmp_path: Path) -> None:
    program = example.program
    definition = program._definition
    async with ScriptedRuntime(example.script) as lm:
        promised = program.explain(lm=lm)
        going, events = await run(program, example.value, lm, journal=tmp_path / "runs")
        assert plain(going.output) == example.output
        assert skeleton(promised) == skeleton(going.explain()) != []

        # Every visit follows from another one by a way of the plan.
        visits = [node_of(event.path) for event in events if isinstance(event, NodeStarted)]
        reachable = {"start"}
        for node in visits:
            assert node in {to.name for name in reachable for to in targets(definition.routes[name])}
            reachable.add(node)
        assert set(definition.nodes) - set(visits) == {"start", "end"} | example.unvisited

        # Whoever generates in the run is whom the plan lets generate, and as often.
        made = [event for event in events if isinstance(event, GenerationEnded)]
        asking = {op.node: op for op in program.plan.ops if isinstance(op, Generate)}
        if asking:
            assert {node_of(event.path) for event in made} == set(asking)
        for name, op in asking.items():
            if op.samples > 1:
                assert [node_of(event.path) for event in made].count(name) == op.samples

        # What an llm node extends is shared, and only what comes after that is new.
        for op in program.plan.ops:
            if isinstance(op, Extend) and op.parts == ("prompt",):
                check_shared(op, made)
        lm.check()


def check_shared(op: Extend, made: Sequence[GenerationEnded]) -> None:
    for event in made:
        if node_of(event.path) != op.node:
            continue
        before = [m for m in made[: made.index(event)] if node_of(m.path) in op.onto]
        if before:
            parent = before[-1]
            assert event.cached_tokens >= parent.prompt_tokens
            assert event.prompt_tokens > parent.prompt_tokens + parent.sampled_tokens + parent.forced_tokens
        assert event.cached_tokens + event.computed_tokens in (event.prompt_tokens, event.prompt_tokens + 1)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", ["best_of_n", "map_reduce", "react", "research"])
async def test_the_static_prefix_has_as_many_tokens_as_promised(name: str) -> None:
    example = SCRIPTED[NAMES.index(name)]
    program = example.program
    other = {"react": "What is 1+1?", "map_reduce": ["Xylophone!", "Zither!"]}.get(name, "Quite another one.")
    script: dict[str, Any] = {
        key: [*value, *value] if isinstance(value, list) else value for key, value in example.script.items()
    }
    async with ScriptedRuntime(script) as lm:
        promised = [int(n) for n in re.findall(r"begin with .*: (\d+) tokens", program.explain(lm=lm))]
        await run(program, example.value, lm)
        _, events = await run(program, other, lm)
    heads = [op.node for op in program.plan.ops if isinstance(op, Extend) and op.onto == ("",)]
    found = [
        min(e.cached_tokens for e in events if isinstance(e, GenerationEnded) and node_of(e.path) == node)
        for node in dict.fromkeys(heads)
    ]
    assert len(promised) == len(found) > 0
    assert all(tokens <= cached for tokens, cached in zip(promised, found, strict=True))
    # The two questions have nothing in common but how a message of the user begins: a token for each byte.
    assert found[0] <= promised[0] + len("<|im_start|>user\n")


# --------------------------------------------------------------------------------- on the real model


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lm(smollm2: Path) -> AsyncGenerator[Runtime]:
    async with Runtime(smollm2, kv_tokens=8192) as opened:
        yield opened


@pytest.mark.model
@pytest.mark.asyncio(loop_scope="module")
async def test_three_branches_share_the_introduction(lm: Runtime) -> None:
    going, events = await run(SCRIPTED[NAMES.index("research")].program, "tides", lm)
    made = {event.path: event for event in events if isinstance(event, GenerationEnded)}
    assert next(iter(made)) == "introduce"
    assert set(made) == {"introduce", "answer[0]", "answer[1]", "answer[2]", "write"}
    known = made["introduce"].prompt_tokens + made["introduce"].sampled_tokens
    for path in ("answer[0]", "answer[1]", "answer[2]", "write"):
        assert made[path].cached_tokens >= known
    assert len(going.output.summary) >= 20
    assert_cached(going, at_least=0.5)


@pytest.mark.model
@pytest.mark.asyncio(loop_scope="module")
async def test_nine_answers_agree_on_oslo(lm: Runtime) -> None:
    going, _ = await run(SCRIPTED[NAMES.index("best_of_n")].program, "What is the capital of Norway?", lm)
    assert going.output.sentence == "The capital of Norway is Oslo."
    asked = lm.transcript(system("Answer in one sentence."), user("What is the capital of Norway?"))
    assert (going.usage.computed_tokens or 0) <= len(asked._opened())  # the prompt once, not nine times


@pytest.mark.model
@pytest.mark.asyncio(loop_scope="module")
async def test_reviews_are_read_and_combined(lm: Runtime) -> None:
    module = load_file(EXAMPLES / "map_reduce.py")
    going, events = await run(module.agent, module.REVIEWS, lm)
    assert isinstance(going.output, module.Report)
    reads = [e for e in events if isinstance(e, GenerationEnded) and node_of(e.path) == "read"]
    static = len(lm.transcript(system(module.agent._definition.heads["read"].system)))
    assert sorted(event.cached_tokens >= static for event in reads) == [False, True, True, True]


@pytest.mark.model
@pytest.mark.asyncio(loop_scope="module")
async def test_a_search_computes_what_is_unique_and_full_hits(smollm2: Path) -> None:
    account = Account()
    async with Runtime(smollm2) as lm:
        engine = lm._home.last.engine()
        assert isinstance(engine, Engine)
        account.observe(engine)
        going, _ = await run(SCRIPTED[NAMES.index("tree_of_thought")].program, "4 5 6 10", lm)
        stats = lm.stats()
    for i, move in enumerate(going.output):
        assert move in GAME.legal_moves("4 5 6 10", going.output[:i])
    assert account.calls > 50
    assert stats.computed_tokens == account.computed == account.unique + account.full_hits
    assert account.computed < 0.25 * account.prompt
