"""The tree-of-thought template: branches of a transcript are proposed, judged, and kept or dropped."""

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from typing_extensions import TypeVar

from agentree.errors import GraphError
from agentree.graph.bounds import whole_number
from agentree.graph.build import Graph
from agentree.graph.ctx import Ctx
from agentree.graph.search import Rules, Search
from agentree.graph.worth import Judge
from agentree.messages import Message, system

if TYPE_CHECKING:
    from agentree.graph.program import Program

T = TypeVar("T")

INSTRUCTIONS = "Solve the task step by step. Give one step at a time."
JUDGE = "How good is this step? Judge whether it can still lead to a solution."
VOTE = "Which of these is the most promising? Give its number."


def tree_of_thought(
    *,
    thought: type[T],
    value: Callable[[T], float] | type[Any] | Literal["vote"],
    breadth: int = 5,
    width: int = 2,
    depth: int = 3,
    instructions: str = INSTRUCTIONS,
    search: Literal["bfs", "dfs"] = "bfs",
    propose: bool = False,
    votes: int = 1,
    judge: str | None = None,
    examples: Sequence[Message] = (),
    options: Callable[[str, list[T]], Sequence[T]] | None = None,
    solved: Callable[[str, list[T]], bool] | None = None,
    name: str = "tree_of_thought",
) -> "Program[None, str, list[T]]":
    """Search for a sequence of thoughts. Gives the best one found, from the first thought to the last.

    Survivors go on from their own transcripts, so that nothing is computed twice; all thoughts of a level,
    and all verdicts on them, are one batch. A level judges equal ways once.

    After Yao et al., "Tree of Thoughts: Deliberate Problem Solving with Large Language Models" (2023).

    Args:
        thought: One step; it is forced.
        value: What a thought is worth, higher is better: a function, which gets the last thought of a way
            (neither the task nor the thoughts before) and returns a number; a type for the model's own
            verdict on each (int, float, bool, or a Literal or Enum whose first option is the best and whose
            last is worth 0); or "vote": the model sees all ways of a level and names the best.
        breadth: How many thoughts follow a survivor.
        width: "bfs": how many survivors a level keeps. "dfs": how many thoughts are followed from one.
        depth: How many thoughts make a sequence.
        instructions: What the model is told first.
        search: "bfs" goes level by level. "dfs" follows the best thought first and turns back where all are
            worth 0 or less; it ends with the first solution, or the first full sequence without `solved`.
        propose: False samples each thought on a branch of its own. True lets one turn name all thoughts that
            follow a survivor, so that they differ; each then becomes a branch.
        votes: How many verdicts on each thought are averaged, or votes of a level counted; 1 is greedy.
        judge: How the model is asked for its verdict or vote.
        examples: Worked turns for the static prefix (`user`, `assistant`).
        options: The thoughts that may follow in a task after some thoughts; nothing else can be generated
            then. None left: the way ends. Only for thoughts that are `str`.
        solved: Whether some thoughts solve a task: the first that do end the search, unjudged.
        name: Of the program; where another program calls it, traces and plans show it.

    Raises GraphError for an option that can't be used; a run raises it where `value` gives no number or
    `options` no list.
    """
    for option, number in (("breadth", breadth), ("width", width), ("depth", depth), ("votes", votes)):
        whole_number(f"tree_of_thought({option}", number, 1)
    if search not in ("bfs", "dfs"):
        raise GraphError(f"tree_of_thought(search={search!r}): write 'bfs' or 'dfs'")
    for option, given in (("options", options), ("solved", solved)):
        if given is not None and not callable(cast("object", given)):
            raise GraphError(
                f"tree_of_thought({option}={given!r}): write a function of the task and the thoughts so far"
            )
    for option, given in (("value", value), ("options", options), ("solved", solved)):
        if inspect.iscoroutinefunction(given):
            named = getattr(given, "__name__", repr(given))
            raise GraphError(f"tree_of_thought({option}={named}): write 'def', not 'async def'")
    if options is not None and thought is not str:
        raise GraphError(
            f"tree_of_thought(thought={thought!r}, options=...): options are texts, so write thought=str"
        )
    question = judge or (VOTE if value == "vote" else JUDGE)
    judging = Judge[T](value, question, votes)
    rules = Rules(thought, judging, breadth, width, depth, propose, options, solved)
    graph = Graph(name, input=str, output=cast("type[list[T]]", list[thought]))

    async def explore(ctx: Ctx, task: str) -> list[T]:
        root = ctx.lm.transcript(system(instructions), *examples)
        walk = Search(rules, ctx.lm, root, task)
        found = await (walk.breadth_first() if search == "bfs" else walk.depth_first())
        ctx.goto(found.transcript)
        return list(found.thoughts)

    explore.__doc__ = _summary(rules, search)
    node = graph.step(explore)
    graph.edge(graph.start, node)
    graph.edge(node, graph.end)
    return graph.compile()


def _summary(rules: Rules[Any], search: str) -> str:
    how = "propose" if rules.propose else "sample"
    until = "" if rules.solved is None else ", until one is solved"
    if search == "dfs":
        keep = f"follow the best {rules.width}, depth first"
        return f"at most {rules.depth} deep: {how} {rules.breadth} thoughts, {rules.judge}, {keep}{until}"
    keep = f"keep the best {rules.width}"
    return f"{rules.depth} levels: {how} {rules.breadth} thoughts a survivor, {rules.judge}, {keep}{until}"
