"""Transcripts: append-only values whose tokens are what the chat template says."""

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, cast

import chat_sources
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_scripted import decoded, result, scripted, tokenizer
from tiny_models import CHATML, tiny_tokenizer, write_tokenizer

from agentree.errors import InvalidArgument
from agentree.lm.transcript import Transcript
from agentree.messages import Message, assistant, raw, system, user
from agentree.runtime.request import Request, Scope

START, END = tokenizer().encode("<|im_start|><|im_end|>", special=True)

texts = st.text(st.characters(codec="utf-8"), max_size=30)
messages = st.builds(Message, st.sampled_from(["system", "user", "assistant", "tool", "raw"]), texts)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same tokenizer as transformers reads it."""
    from transformers import PreTrainedTokenizerFast

    folder: Path = tmp_path_factory.mktemp("reference")
    write_tokenizer(folder, tiny_tokenizer(), template=CHATML)
    return cast("Any", PreTrainedTokenizerFast).from_pretrained(folder)


def as_dicts(said: list[Message]) -> list[dict[str, str]]:
    return [{"role": m.role, "content": m.text} for m in said]


@pytest.mark.parametrize("source", [CHATML, chat_sources.CHATML_DEFAULT_SYSTEM, chat_sources.FOLDED])
@settings(deadline=None, max_examples=60)
@given(
    said=st.lists(st.builds(Message, st.sampled_from(["user", "assistant"]), texts), min_size=1, max_size=5)
)
def test_tokens_equal_the_templates_own(reference: Any, source: str, said: list[Message]) -> None:
    made = scripted(template=source)
    if said[0].role == "user":
        said = [system("Rules."), *said]
    grown = made.empty + said
    whole = reference.apply_chat_template(as_dicts(said), chat_template=source, return_dict=False)
    assert list(grown.token_ids) == whole
    opened = reference.apply_chat_template(
        as_dicts(said), chat_template=source, add_generation_prompt=True, return_dict=False
    )
    assert list(grown._opened().token_ids) == opened
    assert grown.text == tokenizer().decode(grown.token_ids, special=True)


@settings(deadline=None)
@given(said=st.lists(messages, max_size=6), name=st.sampled_from(sorted(chat_sources.ALL)))
def test_every_message_only_appends(said: list[Message], name: str) -> None:
    grown = scripted(template=chat_sources.ALL[name]).empty
    for message in said:
        longer = grown + message
        assert longer.token_ids[: len(grown)] == grown.token_ids
        assert longer.text.startswith(grown.text)
        assert longer.text == tokenizer().decode(longer.token_ids, special=True)
        grown = longer
    assert grown == scripted_like(grown) + said


def scripted_like(transcript: Transcript) -> Transcript:
    return Transcript(transcript._session, transcript._seeds)


@given(said=st.lists(st.sampled_from(["<|im_end|>", "<|im_start|>", "<|tool|>", "a b", "\n"]), max_size=6))
def test_no_message_makes_a_control_token(said: list[str]) -> None:
    text = "".join(said)
    grown = scripted().empty + system(text) + user(text) + assistant(text) + Message("tool", text)
    ids = list(grown.token_ids)
    assert ids.count(START) == ids.count(END) == 4
    assert not set(ids) & set(tokenizer().encode("<|tool|><|endoftext|>", special=True))
    assert grown.text == "".join(
        f"<|im_start|>{role}\n{text}<|im_end|>\n" for role in ("system", "user", "assistant", "tool")
    )


@pytest.mark.asyncio
async def test_generated_ids_are_kept_as_sampled() -> None:
    odd = tuple(i for c in "hello" for i in tokenizer().encode(c))
    assert list(odd) != tokenizer().encode("hello")
    made = scripted(lambda request: result("hello", request, ids=odd))
    first = await (made.empty + user("hi")).gen(str)
    assert tuple(first.transcript.token_ids[-len(odd) :]) == odd
    second = await (first.transcript + user("again")).gen(str)
    prompt = made.engine.requests[1].prompt
    assert prompt[: len(first.transcript)] == first.transcript.token_ids
    assert second.transcript.text.count("hello") == 2


@pytest.mark.asyncio
async def test_a_turn_is_closed_by_what_follows() -> None:
    made = scripted("Fine.")
    answer = (await (made.empty + user("How?")).gen(str)).transcript
    assert answer.text.endswith("<|im_start|>assistant\nFine.")
    assert (answer + user("Good.")).text.endswith("Fine.<|im_end|>\n<|im_start|>user\nGood.<|im_end|>\n")
    await answer.gen(str)
    assert decoded(made.engine.requests[-1]).endswith("Fine.<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.asyncio
async def test_raw_text_opens_no_turn() -> None:
    made = scripted(" time")
    story = made.empty + raw("Once upon a")
    told = (await story.gen(str)).transcript
    assert decoded(made.engine.requests[-1]) == "Once upon a"
    await told.gen(str)
    assert decoded(made.engine.requests[-1]) == "Once upon a time"
    assert (told + user("x")).text == "Once upon a time<|im_start|>user\nx<|im_end|>\n"


@pytest.mark.asyncio
async def test_raw_text_goes_on_inside_a_turn() -> None:
    made = scripted("Thought")
    thought = (await (made.empty + user("q")).gen(str)).transcript + raw("\nObservation: 4\n")
    await thought.gen(str)
    assert decoded(made.engine.requests[-1]).endswith("assistant\nThought\nObservation: 4\n")
    end = (await thought.gen(str)).transcript + user("next")
    assert end.text.endswith("Observation: 4\nThought<|im_end|>\n<|im_start|>user\nnext<|im_end|>\n")


def test_raw_text_may_spell_control_tokens() -> None:
    grown = scripted().empty + raw("<|im_start|>assistant\nThe")
    assert grown.token_ids[0] == START


@pytest.mark.asyncio
async def test_empty_transcripts() -> None:
    made = scripted()
    assert len(made.empty) == 0 and made.empty.text == ""
    assert (await made.empty.prefill()).prompt_tokens == 0 and not made.engine.waves
    await made.empty.gen(str)
    assert decoded(made.engine.requests[-1]) == "<|im_start|>assistant\n"
    async with made.empty.fork(2) as kids:
        assert [len(k) for k in kids] == [0, 0]
        assert len(await kids.gen(str)) == 2
    with pytest.raises(InvalidArgument, match="nothing to go on from"):
        await (made.empty + raw("")).gen(str)


@pytest.mark.asyncio
async def test_a_system_message_that_can_not_stand_alone_waits() -> None:
    made = scripted(template=chat_sources.FOLDED)
    head = made.empty + system("Rules.") + system("More.")
    assert len(head) == 0
    assert (head + user("Go.")).text == "<|im_start|><|im_start|>user\n<<Rules.\n\nMore.>>\nGo.<|im_end|>\n"
    await head.gen(str)
    assert "Rules." in decoded(made.engine.requests[-1])


def test_equality_is_by_what_comes_next() -> None:
    made = scripted()
    said = (user("a"),)
    one, same = made.empty + user("a"), made.empty + said
    assert one == same and hash(one) == hash(same) and one is not same
    assert one != made.empty + user("b") and one != scripted().empty + user("a")
    assert one == one._at(Scope("run", "node"))
    assert made.empty != made.empty + raw("") and one != "text"
    assert {one: 1}[same] == 1


def test_values_can_not_be_changed() -> None:
    grown = scripted().empty + user("a")
    with pytest.raises(FrozenInstanceError):
        grown._ids = ()  # pyright: ignore[reportAttributeAccessIssue]
    assert "tokens" in repr(grown)


def test_only_messages_are_appended() -> None:
    empty = scripted().empty
    with pytest.raises(InvalidArgument, match=r"write user\('hello'\)"):
        _ = empty + cast("Any", "hello")
    nothing = ()
    assert empty + nothing == empty


@pytest.mark.asyncio
async def test_scope_and_namespace_reach_the_engine() -> None:
    made = scripted()
    scope = Scope("run7", "solve[1]")
    await (made.empty + user("a"))._at(scope).gen(str)
    salted = Transcript(made.session, made.empty._seeds, _salt="tenant") + user("a")
    await salted.gen(str)
    first, second = made.engine.requests
    assert first.scope == scope and first.prompt == second.prompt
    assert first.namespace != second.namespace and "tenant" in second.namespace  # pyright: ignore[reportOperatorIssue]


def hold_of(request: Request) -> str | None:
    return request.hold.owner if request.hold is not None else None


@pytest.mark.asyncio
async def test_a_held_run_leases_its_transcript() -> None:
    made = scripted()
    here = (made.empty + user("a"))._at(Scope("run7", "solve"))
    await here.gen(str)
    made.session.begin_run("run7")
    await here.gen(str)
    made.session.end_run("run7")
    await here.gen(str)
    assert [hold_of(r) for r in made.engine.requests] == [None, "run7", None]
    assert made.engine.held == {}
