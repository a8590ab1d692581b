"""An engine that a test moves step by step, over a model whose every token proves what its slots held."""

import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from engine_harness import Waiter, load
from numpy.typing import NDArray
from tiny_models import tiny_llama

from agentree.events import Bus
from agentree.runtime.engine import Engine
from agentree.runtime.model.batch import Batch
from agentree.runtime.model.kv import KVPool
from agentree.runtime.model.load import LoadedModel
from agentree.runtime.request import Request, Result, Ticket

VOCAB = 512
END = frozenset({2})


class Recall:
    """A decoder that reads its context back out of the slots: a wrong, stale or unwritten slot is an error.

    Its logits are pseudo-random numbers that depend on the whole context and on nothing else.
    """

    def __init__(self, slots: int) -> None:
        self.ids = np.full(slots + 1, -1, np.int64)
        self.positions = np.full(slots + 1, -1, np.int64)
        self.scratch = slots
        self.forwards = 0
        self.queries = 0
        self.fail_at: frozenset[int] = frozenset()
        """Which forwards raise, counted from 1."""

    def forward(self, batch: Batch, kv: KVPool) -> torch.Tensor:
        self.forwards += 1
        self.queries += len(batch.ids)
        if self.forwards in self.fail_at:
            raise FloatingPointError(f"forward {self.forwards} failed")
        slots, ids, positions = (t.numpy() for t in (batch.slots, batch.ids, batch.positions))
        written = slots[slots != self.scratch]
        assert len(np.unique(written)) == len(written), "a slot is written twice in one forward"
        self.ids[slots], self.positions[slots] = ids, positions
        row_of = np.empty(len(ids), np.int64)
        rows = list(batch.rows)
        for number, row in enumerate(rows):
            row_of[row.start : row.stop] = number
            context = row.kv.numpy()
            assert np.array_equal(self.positions[context], np.arange(len(context))), "slots of something else"
            stop = row.stop - row.start
            assert np.array_equal(self.ids[context][-stop:], ids[row.start : row.stop])
        logits = np.empty((len(batch.wanted), VOCAB), np.float32)
        for i, query in enumerate(batch.wanted.numpy()):
            row = rows[int(row_of[query])]
            upto = row.kv.shape[0] - (row.stop - int(query)) + 1
            logits[i] = logits_after(self.ids[row.kv.numpy()[:upto]])
        return torch.from_numpy(logits)


def logits_after(context: NDArray[np.int64]) -> NDArray[np.float32]:
    seed = zlib.crc32(context.astype(np.int32).tobytes())
    return np.random.default_rng(seed).standard_normal(VOCAB, dtype=np.float32)


@lru_cache(maxsize=4096)
def expected(prompt: tuple[int, ...], n: int) -> tuple[int, ...]:
    """What `Recall` says greedily: at most `n` tokens, without the end."""
    ids = list(prompt)
    for _ in range(n):
        token = int(logits_after(np.array(ids)).argmax())
        if token in END:
            break
        ids.append(token)
    return tuple(ids[len(prompt) :])


@lru_cache(maxsize=1)
def _tiny() -> LoadedModel:
    return load(tiny_llama(Path(mkdtemp()), layers=1), kv_tokens=64)


def recall_model(slots: int) -> LoadedModel:
    """A loaded model of `slots` slots whose decoder is a `Recall`."""
    decoder: Any = Recall(slots)
    return replace(_tiny(), decoder=decoder, kv=KVPool(1, slots, 1, 1))


def ask(prompt: Sequence[int], n: int = 8, **options: Any) -> Request:
    return Request(prompt=tuple(prompt), max_tokens=n, end_ids=END, **options)


class Stepped(Engine):
    """An engine without a thread of its own, checked after every step."""

    def _launch(self) -> None:
        self._check_every_step = True
        self.steps = 0

    def put(self, *requests: Request) -> list[tuple[Ticket, Waiter]]:
        """Submit as one wave."""
        waiters = [Waiter() for _ in requests]
        tickets = self.submit_all([(r, w.sink()) for r, w in zip(requests, waiters, strict=True)])
        return list(zip(tickets, waiters, strict=True))

    def turn(self) -> bool:
        """Take up what was asked and do one step; False if there is nothing to do."""
        if not (self._todo or self._busy):
            return False
        self.steps += 1
        assert self.steps < 20_000, "this never ends"
        return self._turn()

    def settle(self) -> None:
        """Do all there is to do."""
        while self.turn():
            pass

    def answer(self, *requests: Request) -> list[Result]:
        """Submit and run to the end."""
        put = self.put(*requests)
        self.settle()
        return [waiter.wait() for _, waiter in put]

    def close(self) -> None:
        with self._wake:
            self._closing = True
        self._end()

    def assert_clean(self) -> None:
        """Nobody holds a slot, and nothing in the tree was left uncomputed."""
        self.settle()
        self._scheduler.check()
        cache = self._scheduler.cache
        assert cache.free + cache.tree == cache.size
        assert cache.private == cache.locked == 0
        assert not self._sequences and not self._scheduler.running and not len(self._scheduler.waiting)


@contextmanager
def stepped(slots: int = 4096, **options: Any) -> Generator[Stepped]:
    """A fresh stepped engine with an empty cache, clean at the end."""
    engine = Stepped(recall_model(slots), bus=options.pop("bus", None) or Bus(), **options)
    yield engine
    engine.assert_clean()
    engine.close()


def decoder(engine: Engine) -> Recall:
    made: Any = engine._model.decoder
    return made
