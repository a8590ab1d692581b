"""What the engine itself costs on a real model: `python -m benchmarks.overhead`. Prints markdown tables.

Prompts that share nothing, so that the cache only costs. Each part of the step loop is timed by wrapping its
functions; "tree" is every call into the cache (match, publish, evict, lock, lease, explain). With the cache
"off" nothing outlives a wave and nothing is leased, so that nothing is ever found or evicted.
"""

import argparse
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agentree.events import Bus
from agentree.runtime.cache import Cache
from agentree.runtime.engine import Engine
from agentree.runtime.model.load import LoadedModel, load_model
from agentree.runtime.request import Hold, Request, Result, Sink

TREE = (
    "match", "publish", "lock", "unlock", "allocate", "release", "lease", "renew", "end", "explain_miss",
    "take_reports", "mark",
)  # fmt: skip


class Clock:
    """Seconds by part; a part that runs inside another counts for itself alone."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._open: list[float] = []

    def wrap(self, owner: Any, name: str, part: str) -> Callable[[], None]:
        """Time a method of an object or class; returns what undoes it."""
        inner = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            self._open.append(0.0)
            try:
                return inner(*args, **kwargs)
            finally:
                took = time.perf_counter() - began
                self.seconds[part] += took - self._open.pop()
                if self._open:
                    self._open[-1] += took

        setattr(owner, name, timed)
        return lambda: setattr(owner, name, inner)


@contextmanager
def timed_engine(model: LoadedModel, clock: Clock) -> Generator[Engine]:
    """An engine whose parts are timed while the block runs."""
    engine = Engine(model, bus=Bus())
    undo = [clock.wrap(engine._scheduler.cache, name, "tree") for name in TREE]
    undo.append(clock.wrap(model.decoder, "forward", "forward"))
    undo.append(clock.wrap(engine, "_commit", "commit"))
    undo.append(clock.wrap(engine._scheduler, "plan", "plan"))
    undo.append(clock.wrap(engine, "_step", "rest of the step"))
    try:
        yield engine
    finally:
        engine.close()
        for one in undo:
            one()


def run(engine: Engine, requests: list[Request]) -> list[Result]:
    """Submit as one wave and wait."""
    results: list[Result | None] = [None] * len(requests)
    over = threading.Semaphore(0)
    errors: list[BaseException] = []

    def done(i: int) -> Callable[[Result], None]:
        def take(result: Result) -> None:
            results[i] = result
            over.release()

        return take

    def failed(error: BaseException) -> None:
        errors.append(error)
        over.release()

    engine.submit_all([(r, Sink(None, done(i), failed)) for i, r in enumerate(requests)])
    for _ in requests:
        over.acquire()
    if errors:
        raise errors[0]
    return [result for result in results if result is not None]


@dataclass(frozen=True)
class Load:
    """Waves of `n` requests at once; prompt and output in tokens."""

    n: int
    prompt: int
    output: int
    waves: int


def strangers(model: LoadedModel, seed: int, load: Load, *, hold: bool) -> list[Request]:
    """Prompts of random tokens: they share nothing, and none has been seen before."""
    rng = random.Random(seed)
    vocab = model.config.vocab_size
    return [
        Request(
            prompt=tuple(rng.randrange(100, vocab) for _ in range(load.prompt)),
            max_tokens=load.output,
            namespace=("overhead", model.name),
            hold=Hold(f"agent-{seed}-{i}") if hold else None,
        )
        for i in range(load.n)
    ]


def forget_everything(engine: Engine) -> None:
    """Empty the cache between two steps."""
    over = threading.Event()

    def empty() -> None:
        cache: Cache = engine._scheduler.cache
        cache.evict(cache.size)
        over.set()

    engine.post(empty)
    over.wait()


def measure(model: LoadedModel, load: Load, *, keep: bool) -> tuple[float, Clock]:
    """Wall seconds of all waves, and where they went."""
    clock = Clock()
    with timed_engine(model, clock) as engine:
        run(engine, strangers(model, -1, load, hold=False))
        forget_everything(engine)
        clock.seconds.clear()
        wall = 0.0
        for seed in range(load.waves):
            began = time.perf_counter()
            run(engine, strangers(model, seed, load, hold=keep))
            wall += time.perf_counter() - began
            if not keep:
                forget_everything(engine)
    return wall, clock


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--pool", type=int, default=1536, help="small enough that waves evict each other")
    parser.add_argument("--waves", type=int, default=1, help="times 16 for one request, times 3 for sixteen")
    options = parser.parse_args()
    model = load_model(options.model, kv_tokens=options.pool)
    print("| at once | prompt + output | cache | wall | forward | tree | plan | commit | rest |")
    print("| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for load in (Load(1, 120, 48, 16 * options.waves), Load(16, 60, 32, 3 * options.waves)):
        for keep in (True, False):
            wall, clock = measure(model, load, keep=keep)
            parts = [clock.seconds[part] for part in ("forward", "tree", "plan", "commit")]
            shares = " | ".join(f"{part / wall:.2%}" for part in (*parts, wall - sum(parts)))
            name = "on" if keep else "off"
            print(
                f"| {load.n} | {load.prompt} + {load.output} | {name} | {wall:.2f} s | {shares} |", flush=True
            )


if __name__ == "__main__":
    main()
