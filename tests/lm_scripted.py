"""A runtime over a scripted engine: a real tokenizer and template, and answers that a test writes."""

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

import anyio
from tiny_models import CHATML, tiny_llama

from agentree.errors import RuntimeClosed
from agentree.events import Bus
from agentree.lm.seeds import Seeds
from agentree.lm.session import Session
from agentree.lm.transcript import Transcript
from agentree.runtime.model.config import read_config
from agentree.runtime.model.tokenizer import Tokenizer, read_tokenizer
from agentree.runtime.request import Hold, Progress, Request, Result, Sink, Ticket, TokenCounts
from agentree.runtime.stats import EngineStats

Answer = str | BaseException | Result | None
"""What a script says to a request: a text, an error, a whole result, or None to leave it waiting."""


@lru_cache(maxsize=1)
def tokenizer() -> Tokenizer:
    folder = tiny_llama(Path(mkdtemp()), layers=1)
    return read_tokenizer(folder, read_config(folder))


def result(text: str, request: Request, *, ids: Sequence[int] | None = None) -> Result:
    output = tuple(tokenizer().encode(text) if ids is None else ids)
    scores = tuple(
        -float(i + 1) for i in range(len(request.prompt) - (request.score_from or len(request.prompt)))
    )
    counts = TokenCounts(len(request.prompt), 0, len(request.prompt), len(output), 0, 1 + len(output))
    return Result(output, text, "stop", None, -0.5 * len(output), scores, counts)


@dataclass(eq=False)
class ScriptedEngine:
    """Answers on a thread of its own, as the real one does."""

    script: Callable[[Request], Answer]
    waves: list[list[Request]] = field(default_factory=list[list[Request]])
    aborted: list[int] = field(default_factory=list[int])
    held: dict[str, int] = field(default_factory=dict[str, int])
    """Leased tokens by owner."""
    last_used: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Owners released for good, and from which token on."""
    expected: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    """Owners and the seconds until they are back, as they were said."""
    open: dict[int, Ticket] = field(default_factory=dict[int, Ticket])
    sinks: list[Sink] = field(default_factory=list[Sink])
    closed: bool = False

    @property
    def requests(self) -> list[Request]:
        return [request for wave in self.waves for request in wave]

    def submit_all(self, requests: list[tuple[Request, Sink]]) -> list[Ticket]:
        start = len(self.requests)
        self.sinks += [sink for _, sink in requests]
        self.waves.append([request for request, _ in requests])
        tickets = [Ticket(start + i, request, sink) for i, (request, sink) in enumerate(requests, 1)]
        self.open |= {t.number: t for t in tickets}
        threading.Thread(target=self._answer, args=(tickets,), daemon=True).start()
        return tickets

    def _answer(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            answer = self.script(ticket.request)
            if answer is None or self.open.pop(ticket.number, None) is None:
                continue
            sink, request = ticket.sink, ticket.request
            if isinstance(answer, BaseException):
                sink.failed(answer)
                continue
            done = answer if isinstance(answer, Result) else result(answer, request)
            if sink.progress is not None:
                for word in done.text.splitlines(keepends=True):
                    sink.progress(Progress(word, 1))
            if request.hold is not None:
                self.held[request.hold.owner] = len(request.prompt) + len(done.output)
            sink.done(done)

    def abort(self, ticket: Ticket) -> None:
        self.aborted.append(ticket.number)
        self.open.pop(ticket.number, None)

    def hold(self, hold: Hold, ids: Sequence[int], namespace: Hashable) -> None:
        self.held[hold.owner] = len(ids)

    def expect(self, owner: str, seconds: float) -> None:
        self.expected.append((owner, seconds))

    def release(self, owner: str, *, last_use: bool = True, start: int = 0) -> None:
        if self.held.pop(owner, None) is not None and last_use:
            self.last_used.append((owner, start))

    def release_run(self, run: str) -> None:
        for owner in [o for o in self.held if o == run or o.startswith(f"{run}/")]:
            del self.held[owner]

    def acknowledge(self, done: Callable[[], None]) -> None:
        threading.Thread(target=done, daemon=True).start()

    def stats(self) -> EngineStats:
        return EngineStats(pool=4096, free=4096, computed_tokens=sum(len(r.prompt) for r in self.requests))

    def close(self) -> None:
        self.closed = True
        for ticket in list(self.open.values()):
            ticket.sink.failed(RuntimeClosed("closed"))


@dataclass(eq=False)
class Scripted:
    """What a test works with."""

    engine: ScriptedEngine
    session: Session
    empty: Transcript


def scripted(
    script: Callable[[Request], Answer] | str = "ok", *, template: str | None = CHATML, bus: Bus | None = None
) -> Scripted:
    """A session over a script; `empty` is a transcript without messages."""
    engine = ScriptedEngine(script if callable(script) else lambda _request: script)
    session = Session(
        name="scripted",
        engine=engine,
        tokenizer=tokenizer(),
        template=template,
        bus=bus or Bus(),
        context=2048,
        pool=4096,
    )
    return Scripted(engine, session, Transcript(session, Seeds(0)))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread brings about."""
    for _ in range(4000):
        if condition():
            return
        await anyio.sleep(0.005)
    raise AssertionError("it never came about")


def decoded(request: Request) -> str:
    """The text of a request's prompt, control tokens included."""
    return tokenizer().decode(request.prompt, special=True)
