"""The workloads of the benchmarks ask what they say, of our runtime and of servers alike."""

import asyncio
import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agentree import system, user
from agentree.testing import ScriptedRequest, ScriptedRuntime
from benchmarks import texts
from benchmarks.ledger import Ledger
from benchmarks.local import Local, Sharing
from benchmarks.meter import Meter
from benchmarks.served import Dialect, Http
from benchmarks.talk import Want
from benchmarks.tasks import EXPECTED, WORKLOADS, mistakes

MODEL = "smollm2-135m-instruct"
CALL = json.dumps(
    {
        "tool": "close",
        "input": {"subject": "Elm 12", "urgency": "week", "reason": "done"},
        "last": True,
    }
)


def said(request: ScriptedRequest) -> str:
    """Text that differs by who is asked, and what each workload wants where it wants something."""
    if "calls" in request.prompt or "You look after the houses" in request.prompt:
        return CALL
    if "You file the letters" in request.prompt:
        return json.dumps(texts.letter(3)[1])
    if "concert house" in request.prompt:
        return "ABCD"[len(request.prompt) % 4]
    return f"{len(request.prompt)} words " * 60


def test_records_are_of_their_schema() -> None:
    for i in range(24):
        text, record = texts.letter(i)
        jsonschema.validate(record, texts.RECORD_SCHEMA)
        assert str(record["number_of_the_library_card"]) in text
        assert str(record["name_of_the_member"]) in text
    jsonschema.validate(json.loads(CALL), texts.AGENT_SCHEMA)
    assert len({texts.ticket(i)[0] for i in range(92)}) == 92
    assert {texts.ticket(i)[1] for i in range(64, 92)} == set(texts.CLASSES)
    assert texts.words("a", 1) != texts.words("b", 1) == texts.words("b", 1)


async def run(name: str, sharing: Sharing) -> tuple[Ledger, Local, int]:
    async with ScriptedRuntime(said, model=MODEL, kv_tokens=1 << 20) as lm:
        local, ledger = Local(lm, sharing), Ledger()
        with ledger.observe(lm._home.session.engine()):
            await WORKLOADS[name](local, "r1")
        return ledger, local, lm.stats().hit_tokens


@pytest.mark.model
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_gets_what_it_asks_for(name: str) -> None:
    ledger, local, _ = asyncio.run(run(name, "all"))
    assert mistakes(name, local.replies) == []
    assert ledger.computed == ledger.needed
    assert sum(reply.output for reply in local.replies) == EXPECTED.get(
        name, sum(reply.output for reply in local.replies)
    )


@pytest.mark.model
@pytest.mark.parametrize("name", ["W1", "W2"])
def test_sharing_less_computes_more(name: str) -> None:
    all_, own, none = (asyncio.run(run(name, sharing)) for sharing in ("all", "own", "none"))
    assert all_[0].computed < own[0].computed <= none[0].computed
    # A branch of W1 says one thing and is forked again: it has nothing of its own to go on from.
    assert (own[0].computed == none[0].computed) == (name == "W1")
    assert none[2] == 0
    assert [r.text for r in all_[1].replies] == [r.text for r in none[1].replies]


@pytest.mark.model
def test_wrong_replies_are_found() -> None:
    _, local, _ = asyncio.run(run("W3", "all"))
    assert mistakes("W2", local.replies)
    assert mistakes("W4", local.replies)
    assert mistakes("W7", local.replies)


class Server(BaseHTTPRequestHandler):
    """A server that answers with what it was asked."""

    seen: list[dict[str, Any]] = []  # noqa: RUF012

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(body)
        usage = {
            "prompt_tokens": 9,
            "completion_tokens": 4,
            "prompt_tokens_details": {"cached_tokens": 5},
        }
        if body["max_tokens"] == 13:
            self.send_error(500)
            return
        self.send_response(200)
        self.end_headers()
        if body.get("stream"):
            for piece in ("one ", "two"):
                self.event({"choices": [{"delta": {"content": piece}}]})
            self.event({"choices": [], "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")
        else:
            message = {"content": body["messages"][-1]["content"]}
            self.wfile.write(json.dumps({"choices": [{"message": message}], "usage": usage}).encode())

    def event(self, what: object) -> None:
        self.wfile.write(b"data: " + json.dumps(what).encode() + b"\n\n")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def port() -> Generator[int]:
    Server.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield int(server.server_address[1])
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("dialect", ["vllm", "llama.cpp"])
def test_a_server_is_asked_and_heard(port: int, dialect: Dialect, tmp_path: Path) -> None:
    engine = Http(["none"], {}, tmp_path / "log", dialect=dialect, port=port)

    async def talk() -> None:
        chat = engine.chat(system("s"), user("what?"))
        on, reply = await chat.reply(Want(tokens=4, schema=texts.AGENT_SCHEMA))
        assert (reply.text, reply.prompt, reply.output, reply.cached) == ("what?", 9, 4, 5)
        _, streamed = await on.add(user("and?")).reply(Want(tokens=4, exact=True, watched=True))
        assert streamed.text == "one two"
        assert streamed.output == 4
        assert streamed.first is not None
        assert streamed.began < streamed.first <= streamed.ended
        async with engine.fork([chat], each=3) as branches:
            told = await asyncio.gather(*(c.reply(Want(1, choices=("A", "B"))) for c in branches.chats))
            assert len(branches.keep(c for c, _ in told)) == 3

    asyncio.run(talk())
    asyncio.run(engine.stop())
    first, second, choice = Server.seen[:3]
    assert first["response_format"]["json_schema"]["schema"] == texts.AGENT_SCHEMA
    assert [m["role"] for m in second["messages"]] == ["system", "user", "assistant", "user"]
    assert second["ignore_eos"] is True
    assert "ignore_eos" not in first
    assert ("structured_outputs" in choice) == (dialect == "vllm")
    assert ("grammar" in choice) == (dialect == "llama.cpp")


def test_a_server_that_fails_is_told(port: int, tmp_path: Path) -> None:
    from benchmarks.remote import PeerFailed

    engine = Http(["none"], {}, tmp_path / "log", port=port)

    async def talk() -> None:
        with pytest.raises(PeerFailed, match="500"):
            await engine.chat(user("x")).reply(Want(tokens=13))

    asyncio.run(talk())
    asyncio.run(engine.stop())


def test_the_meter_sees_work_and_memory() -> None:
    with Meter() as meter:
        block = bytearray(b"x") * (64 << 20)
        total = sum(range(2_000_000))
    assert total and len(block) == 64 << 20
    assert meter.used.cpu > 0
    assert meter.used.peak > 64 << 20
