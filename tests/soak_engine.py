"""Many clients at once on a pool that is far too small: `python -m tests.soak_engine`, a part of `make soak`.

Every request ends in a result or a cancellation; nothing leaks. Twice: on a model whose tokens prove what its
slots held, which checks every output, and on a tiny Llama.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from engine_harness import Waiter, engine_over, load, reckless, settle
from engine_steps import END, expected, recall_model
from tiny_models import tiny_llama

from agentree.runtime.engine import Engine
from agentree.runtime.model.load import LoadedModel
from agentree.runtime.request import Hold, Request, Scope


@dataclass
class Tally:
    """What became of the requests."""

    counts: Counter[str] = field(default_factory=Counter[str])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1


def client(number: int, engine: Engine, requests: int, tally: Tally, *, proved: bool) -> None:
    """One agent after the other: growing transcripts, some cancelled in mid-flight."""
    rng = random.Random(number)
    head = tuple(random.Random(number % 5).randrange(4, 512) for _ in range(40))
    ids, run = head, f"client-{number}"
    for turn in range(requests):
        waiter = Waiter()
        request = Request(
            prompt=ids, max_tokens=rng.randint(1, 24), end_ids=END, scope=Scope(run, "turn"), hold=Hold(run)
        )
        ticket = engine.submit(request, waiter.sink())
        if rng.random() < 0.25:
            time.sleep(rng.random() * 0.05)
            engine.abort(ticket)
            tally.count("cancelled")
            continue
        if not waiter.over.wait(300):
            tally.count("never ended")
            raise TimeoutError(f"client {number}: request {turn} never ended")
        if waiter.error is not None:
            print(f"client {number}, request {turn}: {waiter.error!r}", file=sys.stderr, flush=True)
        output = () if waiter.result is None else waiter.result.output
        right = not proved or output == expected(ids, request.max_tokens)
        tally.count("failed" if waiter.result is None else "done" if right else "wrong")
        engine.expect(run, rng.random())
        ids = (*ids, *output, *(rng.randrange(4, 512) for _ in range(rng.randint(1, 12))))
        if len(ids) > 160:
            engine.release_run(run)
            ids = head
    engine.release_run(run)


def soak(model: LoadedModel, clients: int, requests: int, *, proved: bool) -> None:
    """Run all clients against one engine and check what is left. Raises SystemExit if anything went wrong."""
    tally = Tally()
    began = time.monotonic()
    with engine_over(model, max_batch_tokens=128) as engine:
        if proved:
            reckless(engine)
        shares = [requests // clients + (i < requests % clients) for i in range(clients)]
        threads = [
            threading.Thread(target=client, args=(i, engine, share, tally), kwargs={"proved": proved})
            for i, share in enumerate(shares)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(2):  # what was asked for is done, and told of
            settle(engine)
        stats = engine.stats()
    print(
        f"{clients} clients, {requests} requests in {time.monotonic() - began:.0f} s: {tally.counts}; "
        f"{stats.preempted_requests} preempted, {stats.revoked_leases} leases revoked, "
        f"{stats.evicted_tokens} tokens evicted, nothing leaked",
        flush=True,
    )
    if stats.leased or set(tally.counts) != {"done", "cancelled"} or tally.counts.total() != requests:
        raise SystemExit(f"{tally.counts} of {requests} requests, {stats.leased} tokens still leased")


def main() -> None:
    """Both models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--pool", type=int, default=1400, help="slots; the clients want about 4,700 at once")
    options = parser.parse_args()
    given = options.clients, options.requests
    soak(recall_model(options.pool), *given, proved=True)
    with tempfile.TemporaryDirectory() as folder:
        soak(load(tiny_llama(Path(folder)), kv_tokens=options.pool), *given, proved=False)


if __name__ == "__main__":
    main()
