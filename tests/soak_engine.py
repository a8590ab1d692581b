"""Many clients at once on a pool that is far too small: `python tests/soak_engine.py`, a part of `make soak`.

Every request ends in a result, a cancellation or a typed error; nothing leaks; what is finished is right.
"""

import argparse
import os
import random
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("AGENTREE_CHECK", "1")

from engine_harness import Waiter, engine_over, load  # noqa: E402
from tiny_models import tiny_llama  # noqa: E402

from agentree.runtime.engine import Engine  # noqa: E402
from agentree.runtime.request import Hold, Request  # noqa: E402


@dataclass
class Tally:
    """What became of the requests."""

    done: int = 0
    cancelled: int = 0
    failed: int = 0


def client(number: int, engine: Engine, requests: int, tally: Tally, lock: threading.Lock) -> None:
    """One agent after the other: growing transcripts, some cancelled in mid-flight."""
    rng = random.Random(number)
    head = tuple(random.Random(number % 5).randrange(4, 512) for _ in range(40))
    ids = head
    for turn in range(requests):
        waiter = Waiter()
        request = Request(
            prompt=ids, max_tokens=rng.randint(1, 24), end_ids=frozenset({2}), hold=Hold(f"client-{number}")
        )
        ticket = engine.submit(request, waiter.sink())
        if rng.random() < 0.25:
            time.sleep(rng.random() * 0.05)
            engine.abort(ticket)
            with lock:
                tally.cancelled += 1
            continue
        if not waiter.over.wait(300):
            raise TimeoutError(f"client {number}: request {turn} never ended")
        with lock:
            tally.done += waiter.result is not None
            tally.failed += waiter.error is not None
        output = waiter.result.output if waiter.result is not None else ()
        ids = (*ids, *output, *(rng.randrange(4, 512) for _ in range(rng.randint(1, 12))))
        if len(ids) > 160:
            engine.release(f"client-{number}")
            ids = head


def soak(clients: int, requests: int, pool: int) -> None:
    """Run all clients against one engine and check what is left."""
    with tempfile.TemporaryDirectory() as folder:
        model = load(tiny_llama(Path(folder)), kv_tokens=pool)
        tally, lock = Tally(), threading.Lock()
        began = time.monotonic()
        with engine_over(model, max_batch_tokens=128) as engine:
            threads = [
                threading.Thread(target=client, args=(i, engine, requests // clients, tally, lock))
                for i in range(clients)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            stats = engine.stats()
        print(
            f"{clients} clients, {tally} in {time.monotonic() - began:.0f} s; "
            f"{stats.preempted_requests} preempted, {stats.revoked_leases} leases revoked, "
            f"{stats.evicted_tokens} tokens evicted; nothing leaked"
        )
        ended = tally.done + tally.cancelled + tally.failed
        if tally.failed or ended != clients * (requests // clients):
            raise SystemExit(f"{tally} of {requests} requests")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--pool", type=int, default=2500, help="slots; the clients want about 8,000 at once")
    options = parser.parse_args()
    soak(options.clients, options.requests, options.pool)
