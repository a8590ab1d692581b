"""Runs that wait for people: questions, approvals, answers in any order, and what is refused."""

from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest
from pydantic import BaseModel, Field, computed_field, field_validator

from agentree.errors import (
    AgentreeError,
    AlreadyAnswered,
    Interrupted,
    InvalidArgument,
    JournalError,
    UncertainCall,
)
from agentree.graph import Approval, Ctx, Graph, Limits, Program, collect, first
from agentree.graph.journal.facts import Fact
from agentree.graph.journal.file import JournalFile
from agentree.graph.journal.reading import Runs
from agentree.messages import Message, user
from agentree.testing import ScriptedRuntime, final_answer
from agentree.tools import Tool, ToolCall, ToolCalls, ToolResult, tool, tool_result

pytestmark = pytest.mark.anyio


class Verdict(BaseModel):
    good: bool
    why: str = ""

    @field_validator("why")
    @classmethod
    def short(cls, why: str) -> str:
        if len(why) > 5:
            raise ValueError("too long")
        return why


def panel(done: list[str], n: int = 3) -> Program[None, str, list[str]]:
    """Branches that each ask, and one that does not."""
    g = Graph("panel", input=str, output=list[str])

    @g.step
    async def split(ctx: Ctx, text: str) -> list[int]:
        done.append("split")
        return list(range(n))

    @g.step
    async def ask(ctx: Ctx, i: int) -> str:
        if i == 1:
            await anyio.sleep(0.01)
            done.append("no question")
            return "nothing to ask"
        verdict = await ctx.interrupt(f"Is {i} good?", Verdict)
        done.append(f"asked {i}")
        return f"{i} {verdict.good}"

    g.edge(g.start, split)
    g.edge(g.join(g.map(split, ask), collect(str)), g.end)
    return g.compile()


async def test_branches_ask_and_are_answered_in_any_order(journal: Path) -> None:
    done: list[str] = []
    program = panel(done, 4)
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(Interrupted) as asked:
            await program.run("go", lm=lm, journal=journal, run_id="a")
        assert [q.path for q in asked.value.questions] == ["ask[0]", "ask[2]", "ask[3]"]
        assert asked.value.questions[1].text == "Is 2 good?"
        assert "good" in str(asked.value.questions[1].schema)
        assert asked.value.run == "a"
        assert sorted(done) == ["no question", "split"]
        for path, left in (("ask[3]", 2), ("ask[0]", 1)):
            with pytest.raises(Interrupted) as asked:
                await program.resume("a", lm=lm, journal=journal, answers={path: {"good": path == "ask[3]"}})
            assert len(asked.value.questions) == left
        output = await program.resume("a", lm=lm, journal=journal, answers={"ask[2]": Verdict(good=True)})
    assert output == ["0 False", "nothing to ask", "2 True", "3 True"]
    assert sorted(done) == ["asked 0", "asked 2", "asked 3", "no question", "split"]


async def test_an_answer_is_given_once_and_has_to_fit(journal: Path) -> None:
    program = panel([], 1)
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(Interrupted):
            await program.run("go", lm=lm, journal=journal, run_id="a")

        async def resume(answers: Any) -> list[str]:
            return await program.resume("a", lm=lm, journal=journal, answers=answers)

        with pytest.raises(JournalError, match=r"no question 'ask'; open questions: 'ask\[0\]'"):
            await resume({"ask": True})
        with pytest.raises(InvalidArgument, match="does not fit: good: it must be of type boolean"):
            await resume({"ask[0]": {"good": "yes"}})
        with pytest.raises(InvalidArgument, match="'good' is missing"):
            await resume({"ask[0]": {}})
        with pytest.raises(InvalidArgument, match=r"fit: 'wyh' is not known \(there are: good, why\)"):
            await resume({"ask[0]": {"good": True, "wyh": "no"}})
        with pytest.raises(InvalidArgument, match=r"answers=\[True\]: write a mapping"):
            await resume([True])
        with pytest.raises(Interrupted):
            await resume(None)
        with pytest.raises(InvalidArgument, match="can't be written as JSON"):
            await resume({"ask[0]": object()})
        # The schema takes it and the type's own validator does not: the question is asked again.
        with pytest.raises(Interrupted) as asked:
            await resume({"ask[0]": {"good": True, "why": "a long story"}})
        assert [q.path for q in asked.value.questions] == ["ask[0]:2"]
        with pytest.raises(AlreadyAnswered):
            await resume({"ask[0]": {"good": True}})
        assert await resume({"ask[0]:2": {"good": True, "why": "ok"}}) == ["0 True"]
        with pytest.raises(AlreadyAnswered):
            await resume({"ask[0]:2": {"good": False}})


class Named(BaseModel):
    """Its keys have other names than its attributes, and one more is worked out."""

    good: bool = Field(alias="isGood")
    why: str = ""

    @computed_field
    @property
    def loud(self) -> str:
        return self.why.upper()


@pytest.mark.parametrize(
    "answer",
    [Named(isGood=True), {"isGood": True}, {"isGood": True, "why": ""}],
)
async def test_an_answer_may_be_an_instance_of_the_reply_type(answer: object, journal: Path) -> None:
    g = Graph("named", input=str, output=str)

    @g.step
    async def ask(ctx: Ctx, text: str) -> str:
        said = await ctx.interrupt("Good?", Named)
        return f"{said.good} {said.why}"

    g.edge(g.start, ask)
    g.edge(ask, g.end)
    program = g.compile()
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(Interrupted):
            await program.run("go", lm=lm, journal=journal, run_id="a")
        for unknown in ({"isGood": True, "loud": "X"}, {"isGood": True, "reason": "x"}):
            with pytest.raises(InvalidArgument, match="is not known"):
                await program.resume("a", lm=lm, journal=journal, answers={"ask": unknown})
        assert await program.resume("a", lm=lm, journal=journal, answers={"ask": answer}) == "True "


async def test_a_step_asks_twice_and_keeps_what_it_generated(journal: Path) -> None:
    g = Graph("twice", state=list[str], input=str, output=str)
    begun: list[str] = []

    @g.step
    async def talk(ctx: Ctx[list[str]], text: str) -> str:
        begun.append(ctx.call_key)
        ctx.state.append("talked")
        said = await ctx.transcript.gen(str, max_tokens=8, temperature=1.0)
        one = await ctx.interrupt(f"{said.value}?", int)
        more = await said.transcript.gen(str, max_tokens=8)
        two = await ctx.interrupt("and?", int)
        return f"{said.value} {one} {more.value} {two} {ctx.state}"

    g.edge(g.start, talk)
    g.edge(talk, g.end)
    program = g.compile()
    async with ScriptedRuntime({"talk": ["one", "two"]}) as lm:
        with pytest.raises(Interrupted):
            await program.run("go", lm=lm, journal=journal, run_id="a", state=["before"])
        with pytest.raises(Interrupted) as asked:
            await program.resume("a", lm=lm, journal=journal, answers={"talk": 1})
        assert [q.path for q in asked.value.questions] == ["talk:2"]
        output = await program.resume("a", lm=lm, journal=journal, answers={"talk:2": 2})
    assert output == "one 1 two 2 ['before', 'talked']"
    assert begun == ["a/talk"] * 3


async def test_another_question_does_not_get_the_answer(journal: Path) -> None:
    words = ["Pay 5?", "Pay 500?"]
    g = Graph("drift", input=str, output=bool)

    @g.step
    async def pay(ctx: Ctx, text: str) -> bool:
        return await ctx.interrupt(words[0], bool)

    g.edge(g.start, pay)
    g.edge(pay, g.end)
    program = g.compile()
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(Interrupted):
            await program.run("go", lm=lm, journal=journal, run_id="a")
        words.reverse()
        with pytest.raises(Interrupted) as asked:
            await program.resume("a", lm=lm, journal=journal, answers={"pay": True})
        assert [(q.path, q.text) for q in asked.value.questions] == [("pay:2", "Pay 500?")]
        with pytest.raises(JournalError, match="no question 'pay:3'; open questions: 'pay:2'"):
            await program.resume("a", lm=lm, journal=journal, answers={"pay:3": True})
        assert await program.resume("a", lm=lm, journal=journal, answers={"pay:2": False}) is False


async def test_asks_inside_of_a_steps_own_tasks(journal: Path) -> None:
    g = Graph("own", input=str, output=list[int])

    @g.step
    async def ask(ctx: Ctx, text: str) -> list[int]:
        found: dict[int, int] = {}

        async def one(i: int) -> None:
            found[i] = await ctx.interrupt(f"Number {i}?", int)

        async with anyio.create_task_group() as group:
            for i in range(3):
                group.start_soon(one, i)
        return [found[i] for i in range(3)]

    g.edge(g.start, ask)
    g.edge(ask, g.end)
    program = g.compile()
    async with ScriptedRuntime({}) as lm:
        asked: Interrupted | None = None
        try:
            await program.run("go", lm=lm, journal=journal, run_id="a")
        except Interrupted as e:
            asked = e
        while asked is not None:
            question = asked.questions[-1]
            try:
                answers = {question.path: int(question.text.split()[1].rstrip("?"))}
                output = await program.resume("a", lm=lm, journal=journal, answers=answers)
                assert output == [0, 1, 2]
                break
            except Interrupted as e:
                asked = e


async def test_a_cancelled_run_asks_nothing_and_goes_nowhere(journal: Path) -> None:
    done: list[str] = []
    program = panel(done, 1)
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(Interrupted):
            await program.run("go", lm=lm, journal=journal, run_id="a")
        with Runs(journal) as runs:
            assert runs.cancel("a")
            shown = runs.show("a")
            assert (shown.status, shown.questions) == ("cancelled", [])
            with pytest.raises(JournalError, match="run 'a' was cancelled: it is over"):
                runs.answer("a", "ask[0]", '{"good": true}')
        for answers in ({"ask[0]": {"good": True}}, {}):
            with pytest.raises(JournalError, match="run 'a' was cancelled: it is over"):
                await program.resume("a", lm=lm, journal=journal, answers=answers)
    with Runs(journal) as runs:
        assert (runs.show("a").status, runs.show("a").answered) == ("cancelled", {})
    assert done == ["split"]


async def test_without_a_journal_nobody_can_be_asked() -> None:
    async with ScriptedRuntime({}) as lm:
        with pytest.raises(AgentreeError, match="needs a journal"):
            await panel([], 1).run("go", lm=lm)
        with pytest.raises(AgentreeError, match="'pay', whose calls a person approves"):
            await agent(paying([])).run("go", lm=lm)


async def test_the_first_branch_does_not_wait_for_a_question(journal: Path) -> None:
    g = Graph("race", input=str, output=str)

    @g.step
    async def split(ctx: Ctx, text: str) -> str:
        return text

    @g.step
    async def ask(ctx: Ctx, text: str) -> str:
        return await ctx.interrupt("Really?", str)

    @g.step
    async def know(ctx: Ctx, text: str) -> str:
        await anyio.sleep(0.01)
        return "known"

    g.edge(g.start, split)
    g.edge(g.join(g.fork(split, ask, know), first(str)), g.end)
    async with ScriptedRuntime({}) as lm:
        assert await g.compile().run("go", lm=lm, journal=journal) == "known"


# -------------------------------------------------------------------------------------- approvals


def paying(done: list[str]) -> tuple[Tool[..., Any], ...]:
    @tool(approve=True)
    async def pay(amount: int) -> str:
        """Pay.

        Args:
            amount: How much.
        """
        done.append(f"pay {amount}")
        return f"paid {amount}"

    @tool
    async def look(x: int) -> str:
        """Look.

        Args:
            x: At what.
        """
        done.append(f"look {x}")
        return f"saw {x}"

    return pay, look


def agent(tools: tuple[Tool[..., Any], ...]) -> Program[None, str, str]:
    g = Graph("agent", input=str, output=str)

    @g.llm(str, tools=tools, parallel=True, max_tokens=300)
    def think(ctx: Ctx, message: str | Message) -> Message:
        return message if isinstance(message, Message) else user(message)

    act = g.tools(*tools)

    @g.step
    async def observe(ctx: Ctx, results: list[ToolResult]) -> Message:
        return tool_result(results)

    g.edge(g.start, think)
    g.branch(think).case(ToolCalls, act).case(str, g.end)
    g.edge(act, observe)
    g.edge(observe, think)
    return g.compile(limits=Limits(turns=4))


CALLS = ToolCalls(
    (
        ToolCall("", "pay", {"amount": 1}),
        ToolCall("", "look", {"x": 2}),
        ToolCall("", "pay", {"amount": 3}),
        ToolCall("", "pay", {"amount": 4}),
    )
)


async def test_each_call_is_approved_by_itself(journal: Path) -> None:
    done: list[str] = []
    program = agent(paying(done))
    prompts: list[str] = []

    def answer(request: Any) -> Any:
        prompts.append(request.prompt)
        return CALLS if request.path == "think" else final_answer("over")

    async with ScriptedRuntime(answer) as lm:
        with pytest.raises(Interrupted) as asked:
            await program.run("go", lm=lm, journal=journal, run_id="a")
        assert [(q.path, q.tool, dict(q.arguments)) for q in asked.value.questions] == [
            ("tools:call_1", "pay", {"amount": 1}),
            ("tools:call_3", "pay", {"amount": 3}),
            ("tools:call_4", "pay", {"amount": 4}),
        ]
        assert done == ["look 2"]
        misspelt = {"tools:call_3": {"approved": False, "resaon": "too much"}}
        with pytest.raises(InvalidArgument, match=r"'resaon' is not known \(there are: approved, reason\)"):
            await program.resume("a", lm=lm, journal=journal, answers=misspelt)
        said = {"tools:call_4": True, "tools:call_3": Approval(False, "too much")}
        with pytest.raises(Interrupted) as asked:
            await program.resume("a", lm=lm, journal=journal, answers=said)
        assert [q.path for q in asked.value.questions] == ["tools:call_1"]
        assert done == ["look 2", "pay 4"]
        with pytest.raises(AlreadyAnswered):
            await program.resume("a", lm=lm, journal=journal, answers={"tools:call_3": True})
        output = await program.resume("a", lm=lm, journal=journal, answers={"tools:call_1": False})
        assert output == "over"
    assert done == ["look 2", "pay 4"]
    told = prompts[-1][len(prompts[0]) :]
    assert "Error: this call was not approved\nsaw 2\n" in told
    assert "Error: this call was not approved: too much\npaid 4" in told


async def test_an_uncertain_call_stops_a_turn_before_another_starts(journal: Path) -> None:
    done: list[str] = []
    pay, _ = paying(done)

    @tool
    async def look(x: int) -> str:
        """Look.

        Args:
            x: At what.
        """
        await anyio.sleep(0.01)
        done.append("look")
        raise JournalError("the process stops here")

    program = agent((pay, look))
    calls = ToolCalls((ToolCall("", "look", {"x": 2}), ToolCall("", "pay", {"amount": 1})))

    def answer(request: Any) -> Any:
        return calls if request.path == "think" else final_answer("over")

    async with ScriptedRuntime(answer) as lm:
        with pytest.raises(JournalError, match="the process stops here"):
            await program.run("go", lm=lm, journal=journal, run_id="a")
        with pytest.raises(UncertainCall, match="look"):
            await program.resume("a", lm=lm, journal=journal, answers={"tools:call_2": True})
        with Runs(journal) as runs:
            begun = [f.body["tool"] for f in runs.show("a").facts if f.kind == "call started"]
        assert (begun, done) == (["look"], ["look"])
        assert await program.resume("a", lm=lm, journal=journal, uncertain="tell") == "over"
    assert done == ["look", "pay 1"]


async def test_a_call_that_was_cut_off_before_it_began_is_not_uncertain(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    _, look = paying(done)
    program = agent((look,))
    real = JournalFile.append

    def cut_off(self: JournalFile, run: str, facts: list[Fact], *rest: Any) -> bool:
        if any(fact.kind == "call started" for fact in facts):
            anyio.from_thread.run_sync(scope.cancel)
        return real(self, run, facts, *rest)

    def answer(request: Any) -> Any:
        calls = '[{"name": "look", "arguments": {"x": 2}}]'
        return calls if request.path == "think" else final_answer("over")

    async with ScriptedRuntime(answer) as lm:
        with monkeypatch.context() as patch, anyio.CancelScope() as scope:
            patch.setattr(JournalFile, "append", cut_off)
            await program.run("go", lm=lm, journal=journal, run_id="a")
        assert done == []
        assert await program.resume("a", lm=lm, journal=journal) == "over"
    assert done == ["look 2"]
