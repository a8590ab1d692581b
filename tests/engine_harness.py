"""Drives an engine from a test: submit, wait, collect; and the plain reference that it is compared with."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM

from agentree.events import Bus
from agentree.runtime.engine import Engine
from agentree.runtime.model.load import LoadedModel, load_model
from agentree.runtime.request import Progress, Request, Result, Sink, Ticket
from agentree.runtime.sequence import Sequence

Ids = list[int] | tuple[int, ...]


@dataclass(eq=False)
class Waiter:
    """A sink that keeps what it is told."""

    text: str = ""
    result: Result | None = None
    error: BaseException | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def sink(self) -> Sink:
        return Sink(progress=self._progress, done=self._done, failed=self._failed)

    def _progress(self, progress: Progress) -> None:
        self.text += progress.text

    def _done(self, result: Result) -> None:
        self.result = result
        self.over.set()

    def _failed(self, error: BaseException) -> None:
        self.error = error
        self.over.set()

    def wait(self) -> Result:
        assert self.over.wait(60), "the request never ended"
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result


def submit(engine: Engine, *requests: Request) -> list[tuple[Ticket, Waiter]]:
    """Submit as one wave."""
    waiters = [Waiter() for _ in requests]
    tickets = engine.submit_all([(r, w.sink()) for r, w in zip(requests, waiters, strict=True)])
    return list(zip(tickets, waiters, strict=True))


def run(engine: Engine, *requests: Request) -> list[Result]:
    """Submit as one wave and wait for all."""
    return [waiter.wait() for _, waiter in submit(engine, *requests)]


def load(folder: Path, *, kv_tokens: int = 4096, weights: Any = "fp32") -> LoadedModel:
    return load_model(folder, device="cpu", weights=weights, kv_tokens=kv_tokens)


@contextmanager
def engine_over(model: LoadedModel, **options: Any) -> Generator[Engine]:
    """An engine with an empty cache, checked after every step, with nothing left in it at the end."""
    engine = Engine(model, bus=options.pop("bus", None) or Bus(), **options)
    engine._check_every_step = True
    try:
        yield engine
        settle(engine)
        stats = engine.stats()
        assert stats.free + stats.private + stats.tree == stats.pool
        assert stats.private == stats.running == stats.waiting == 0
    finally:
        engine.close()


def reckless(engine: Engine) -> None:
    """Admit as if nobody would say anything: the pool then runs out all the time."""

    def growth(sequence: Sequence) -> int:
        return max(1, sequence.length - sequence.have)

    def room() -> int:
        return cache.free + cache.evictable - sum(map(growth, engine._scheduler.running))

    cache = engine._scheduler.cache
    engine._scheduler._growth = growth
    engine._scheduler._room = room


def settle(engine: Engine) -> None:
    """Wait until the engine has done all that was asked before now."""
    done = threading.Event()
    engine.post(done.set)
    assert done.wait(60)


@lru_cache(maxsize=8)
def reference_model(folder: Path) -> LlamaForCausalLM:
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval()


def reference_logits(folder: Path, ids: Ids) -> torch.Tensor:
    """float32 [len(ids), vocab] by transformers, everything computed from scratch."""
    with torch.inference_mode():
        return reference_model(folder)(torch.tensor([list(ids)])).logits[0]


def reference_greedy(folder: Path, prompt: Ids, n: int, end_ids: frozenset[int]) -> list[int]:
    """Greedy continuation, one whole forward for each token."""
    ids = list(prompt)
    for _ in range(n):
        token = int(reference_logits(folder, ids)[-1].argmax())
        if token in end_ids:
            break
        ids.append(token)
    return ids[len(prompt) :]
