"""What the engine itself costs on a real model: `python -m benchmarks.overhead`. Prints markdown tables.

Prompts that share nothing, so that the cache only costs. Each part of the step loop is timed by wrapping its
functions; "tree" is every call into the cache (match, publish, evict, lock, lease, explain). With the cache
"off" nothing outlives a wave and nothing is leased, so that nothing is ever found or evicted. Both take
turns, so that a machine that slows down slows down both.

Parts are told as shares of the wall time and of the CPU time of all threads: where others use the same cores,
wall times say as much about them, and CPU times do not.
"""

import argparse
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
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
    """Seconds of one kind by part; a part that runs inside another counts for itself alone."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.total = 0.0
        self.passes = 0
        self._open: list[float] = []

    def wrap(self, owner: Any, name: str, part: str) -> Callable[[], None]:
        """Time a method of an object or class; returns what undoes it."""
        inner = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = self.now()
            self._open.append(0.0)
            try:
                return inner(*args, **kwargs)
            finally:
                took = self.now() - began
                self.seconds[part] += took - self._open.pop()
                if self._open:
                    self._open[-1] += took

        setattr(owner, name, timed)
        return lambda: setattr(owner, name, inner)


@contextmanager
def timed_engine(model: LoadedModel, clocks: Sequence[Clock]) -> Generator[Engine]:
    """An engine whose parts are timed while the block runs."""
    engine = Engine(model, bus=Bus())
    undo: list[Callable[[], None]] = []
    for clock in clocks:
        undo += [clock.wrap(engine._scheduler.cache, name, "tree") for name in TREE]
        undo.append(clock.wrap(model.decoder, "forward", "forward"))
        undo.append(clock.wrap(engine, "_commit", "commit"))
        undo.append(clock.wrap(engine._scheduler, "plan", "plan"))
        undo.append(clock.wrap(engine, "_step", "rest of the step"))
    try:
        yield engine
    finally:
        engine.close()
        for one in reversed(undo):
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


def measure(model: LoadedModel, load: Load, clocks: Sequence[Clock], *, seed: int, keep: bool) -> None:
    """Run the waves of one turn, and add what they took to the clocks."""
    timed = [Clock(clock.now) for clock in clocks]
    with timed_engine(model, timed) as engine:
        run(engine, strangers(model, -1, load, hold=False))
        forget_everything(engine)
        before = engine.stats().forward_passes
        for clock in timed:
            clock.seconds.clear()
        for wave in range(load.waves):
            requests = strangers(model, seed * load.waves + wave, load, hold=keep)
            began = [clock.now() for clock in timed]
            run(engine, requests)
            for clock, start in zip(timed, began, strict=True):
                clock.total += clock.now() - start
            if keep:
                for request in requests:  # else they would hold back the strangers that come after them
                    engine.release(request.hold.owner if request.hold is not None else "")
            else:
                forget_everything(engine)
        passes = engine.stats().forward_passes - before
    for clock, one in zip(clocks, timed, strict=True):
        clock.total += one.total
        clock.passes += passes
        for part, seconds in one.seconds.items():
            clock.seconds[part] += seconds


def row(load: Load, kind: str, on: Clock, off: Clock) -> Iterator[str]:
    """Two lines of the table: the cache on and off."""
    for name, clock in (("on", on), ("off", off)):
        parts = [clock.seconds[part] for part in ("forward", "tree", "plan", "commit")]
        shares = " | ".join(f"{part / clock.total:.2%}" for part in (*parts, clock.total - sum(parts)))
        ratio = f"{on.total / off.total:.3f}" if name == "on" else "1"
        what = f"{load.n} | {load.prompt} + {load.output} | {kind} | {name}"
        yield f"| {what} | {clock.passes} | {clock.total:.2f} s | {ratio} | {shares} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--pool", type=int, default=1536, help="small enough that waves evict each other")
    parser.add_argument("--turns", type=int, default=3, help="of the cache on and off, one after the other")
    options = parser.parse_args()
    model = load_model(options.model, kv_tokens=options.pool)
    columns = (
        "at once", "prompt + output", "time", "cache", "passes", "in all", "on : off",
        "forward", "tree", "plan", "commit", "rest",
    )  # fmt: skip
    print(f"| {' | '.join(columns)} |")
    print(f"| {' | '.join(['---:', '---:', '---', '---', *['---:'] * 8])} |")
    for load in (Load(1, 120, 48, 16), Load(16, 60, 32, 3)):
        clocks = {keep: (Clock(time.perf_counter), Clock(time.process_time)) for keep in (True, False)}
        for turn in range(options.turns):
            for keep in (True, False):
                measure(model, load, clocks[keep], seed=turn, keep=keep)
        for kind, on, off in zip(("wall", "CPU"), clocks[True], clocks[False], strict=True):
            for line in row(load, kind, on, off):
                print(line, flush=True)


if __name__ == "__main__":
    main()
