"""The seven workloads, W1 to W7, as programs over any engine.

Greedy throughout. `run` stands at the beginning of every prompt: another run meets a cold cache. How much
work there is does not depend on what the model says, but for the JSON of W2 and W3, which may end early.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agentree.messages import Message, system, user
from benchmarks import texts
from benchmarks.talk import C, Engine, Reply, Want


def _head(run: str, text: str) -> Message:
    return system(f"(run {run}) {text}")


def _worth(reply: Reply) -> int:
    """The fixed rule by which W1 picks: more different words are better."""
    return len(set(reply.text.lower().split()))


async def tree_of_thought(engine: Engine[C], run: str) -> None:
    """W1: three levels, five candidates of 40 tokens for each of at most two partial plans."""
    start = engine.chat(_head(run, "You plan with care."), user(texts.PLAN_PROBLEM))
    beam, want = [start], Want(tokens=40, exact=True)
    for level in range(1, 4):
        async with engine.fork(beam, each=len(texts.PLAN_WAYS)) as branches:
            asked = [
                chat.add(user(f"What is step {level}? {texts.PLAN_WAYS[i % len(texts.PLAN_WAYS)]}"))
                for i, chat in enumerate(branches.chats)
            ]
            told = await asyncio.gather(*(chat.reply(want) for chat in asked))
            best = sorted(range(len(told)), key=lambda i: (-_worth(told[i][1]), i))[:2]
            beam = branches.keep([told[i][0] for i in sorted(best)])


async def agents(engine: Engine[C], run: str) -> None:
    """W2: eight agents at once, five turns each, each turn a tool call forced by a JSON Schema."""
    want = Want(tokens=64, schema=texts.AGENT_SCHEMA)

    async def agent(i: int) -> None:
        chat = engine.chat(_head(run, texts.AGENT_SYSTEM), user(f"{texts.AGENT_CASES[i]} Call a tool."))
        for turn in range(5):
            chat, _ = await chat.reply(want)
            chat = chat.add(user(texts.finding(i, turn)))

    await asyncio.gather(*(agent(i) for i in range(len(texts.AGENT_CASES))))


async def extraction(engine: Engine[C], run: str) -> None:
    """W3: sixteen letters to JSON records of eight fields, with one worked letter before each."""
    want = Want(tokens=208, schema=texts.RECORD_SCHEMA)
    chats = [
        engine.chat(_head(run, texts.RECORD_SYSTEM), user(f"{texts.letter(i)[0]}\n\nIts record:"))
        for i in range(16)
    ]
    await asyncio.gather(*(chat.reply(want) for chat in chats))


async def classification(engine: Engine[C], run: str) -> None:
    """W4: 64 messages, one of four letters each, behind the same 28 worked examples."""
    want = Want(tokens=1, choices=texts.CLASSES)
    chats = [
        engine.chat(_head(run, texts.CLASS_SYSTEM), user(f"{texts.ticket(i)[0]}\nClass:")) for i in range(64)
    ]
    await asyncio.gather(*(chat.reply(want) for chat in chats))


async def no_sharing(engine: Engine[C], run: str) -> None:
    """W5: sixteen prompts that share nothing, 64 tokens each."""
    want = Want(tokens=64, exact=True)
    chats = [
        engine.chat(
            system(f"({i} {run}) {texts.words(run, i)}"), user("Tell a short story with some of these words.")
        )
        for i in range(16)
    ]
    await asyncio.gather(*(chat.reply(want) for chat in chats))


async def talks(engine: Engine[C], run: str) -> None:
    """W6: four conversations at once, six turns of 48 tokens each."""
    want = Want(tokens=48, exact=True)

    async def talk(opening: str, *asked: str) -> None:
        chat = engine.chat(_head(run, opening))
        for text in asked:
            chat, _ = await chat.add(user(text)).reply(want)

    await asyncio.gather(*(talk(*said) for said in texts.TALKS))


async def single(engine: Engine[C], run: str) -> None:
    """W7: one stream of 128 tokens."""
    chat = engine.chat(_head(run, "You write plainly and kindly."), user(texts.LONG_ASK))
    await chat.reply(Want(tokens=128, exact=True, watched=True))


Workload = Callable[[Engine[Any], str], Awaitable[None]]
WORKLOADS: dict[str, Workload] = {
    "W1": tree_of_thought,
    "W2": agents,
    "W3": extraction,
    "W4": classification,
    "W5": no_sharing,
    "W6": talks,
    "W7": single,
}
SHARED = ("W1", "W2", "W3", "W4", "W6")
"""Those with something to share: the geometric mean is over these."""
EXPECTED = {"W1": 25 * 40, "W5": 16 * 64, "W6": 24 * 48, "W7": 128, "W4": 64}
"""Output tokens where their number does not depend on what is said."""


async def warm_up(engine: Engine[C]) -> None:
    """Let an engine build whatever it builds at first use: buffers, kernels, automata of the schemas."""
    start = engine.chat(system("Warm up."))
    wants = [Want(tokens=8, exact=True)] * 4
    wants += [Want(tokens=64, schema=texts.AGENT_SCHEMA), Want(tokens=208, schema=texts.RECORD_SCHEMA)]
    wants += [Want(tokens=1, choices=texts.CLASSES), Want(tokens=8, exact=True, watched=True)]
    asked = [start.add(user(f"{i} stones. " * (1 + 9 * i))) for i in range(len(wants))]
    await asyncio.gather(*(chat.reply(want) for chat, want in zip(asked, wants, strict=True)))


def mistakes(name: str, replies: Sequence[Reply]) -> list[str]:
    """What is wrong with the replies of a workload: a number of tokens, or texts that nobody asked for."""
    output = sum(reply.output for reply in replies)
    found: list[str] = []
    if name in EXPECTED and output != EXPECTED[name]:
        found.append(f"{output} output tokens instead of {EXPECTED[name]}")
    if name in ("W2", "W3"):
        schema = texts.AGENT_SCHEMA if name == "W2" else texts.RECORD_SCHEMA
        bad = sum(not _fits(reply.text, schema) for reply in replies)
        found += [f"{bad} of {len(replies)} replies are not what the schema says"] if bad else []
    if name == "W4":
        bad = sum(reply.text.strip() not in texts.CLASSES for reply in replies)
        found += [f"{bad} replies are none of the choices"] if bad else []
    return found


def _fits(text: str, schema: texts.Schema) -> bool:
    """Whether a text is a JSON object with the keys of a schema and its required parts."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, dict) and set(value) == set(schema["properties"])  # pyright: ignore[reportUnknownArgumentType]
