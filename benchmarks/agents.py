"""Recorded agent work run again as programs on the scripted runtime: `python -m benchmarks.agents`.

The model's turns are the recorded ones; prompts, forks, scopes, scheduler and cache are the real ones. Each
dataset has one runtime whose pool never fills, and every computed prompt token is accounted for by a walk
over a plain trie that knows nothing of the engine. Prints a markdown table.
"""

import argparse
import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agentree.runtime.engine import Engine
from agentree.runtime.request import Request, Result, Sink, Ticket
from agentree.testing import ScriptedRequest, ScriptedRuntime
from agentree.testing.engine import ScriptedEngine
from benchmarks.programs import DATASETS, Case
from benchmarks.traces import folder

POOL = 1 << 23
COLUMNS = (
    "recorded work",
    "runs",
    "calls",
    "prompt tokens",
    "unique",
    "full hits",
    "computed",
    "hit rate",
    "optimum",
)


@dataclass
class Prefixes:
    """What was computed, as a trie: one entry for each token that differs in itself or what is before it."""

    edges: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    def add(self, ids: Sequence[int]) -> int:
        """How many of these tokens are new."""
        at, edges, before = 0, self.edges, len(self.edges)
        for token in ids:
            at = edges.setdefault((at, token), len(edges) + 1)
        return len(edges) - before


@dataclass
class Account:
    """Of one dataset, in prompt tokens. `unique` and `full_hits` are counted without the engine."""

    calls: int = 0
    prompt: int = 0
    computed: int = 0
    unique: int = 0
    """No earlier prompt or output had them."""
    full_hits: int = 0
    """Prompts that earlier ones had whole: the last token is computed again, because its logits are needed.
    Equal prompts of one wave share the logits and count once."""
    seconds: float = 0.0
    seen: Prefixes = field(default_factory=Prefixes)

    def observe(self, engine: ScriptedEngine | Engine) -> None:
        """Keep account of every request that reaches an engine from now on."""
        submit = engine.submit_all

        def submit_all(requests: list[tuple[Request, Sink]]) -> list[Ticket]:
            wave: set[tuple[int, ...]] = set()
            return submit([(request, self._entered(request, sink, wave)) for request, sink in requests])

        engine.submit_all = submit_all

    def _entered(self, request: Request, sink: Sink, wave: set[tuple[int, ...]]) -> Sink:
        self.calls += 1
        self.prompt += len(request.prompt)
        new = self.seen.add(request.prompt)
        self.unique += new
        self.full_hits += not new and request.prompt not in wave
        wave.add(request.prompt)

        def done(result: Result) -> None:
            self.computed += result.counts.computed
            self.seen.add(request.prompt + result.output[: processed(request, result)])
            sink.done(result)

        return Sink(sink.progress, done, sink.failed)


def processed(request: Request, result: Result, *, jump_forward: bool = True) -> int:
    """How many tokens of an output went through the model.

    All, if an end token came after them. What completes a forced value (the last free pick, and what follows
    from it) is not computed before it is read again.
    """
    if request.constraint is None:
        return len(result.output) - (result.finish == "length")
    matcher = request.constraint.matcher(request.max_tokens)
    last: int | None = None
    at = picked = 0
    while not matcher.done:
        run = matcher.forced(last) if jump_forward else []
        for token in run:
            matcher.advance(token)
        at += len(run)
        if matcher.done or at == len(result.output):
            break
        picked, last = at, result.output[at]
        matcher.advance(last)
        at += 1
    return picked if matcher.done else len(result.output)


async def replay(cases: Iterable[Case], *, model: str | None) -> Account:
    """Run all cases one after the other on one runtime. Raises if an invariant of slots and tree breaks."""
    account, said = Account(), deque[str]()

    def script(request: ScriptedRequest) -> str:
        return said.popleft()

    began = time.perf_counter()
    async with ScriptedRuntime(script, model=model, kv_tokens=POOL) as lm:
        engine = lm._home.last.engine()
        assert isinstance(engine, ScriptedEngine)
        account.observe(engine)
        for case in cases:
            said.extend(case.said)
            await case.program.run(case.value, lm=lm, state=case.state)
            assert not said, "the program asked for less than was recorded"
        lm.check()
        stats = lm.stats()
        assert stats.evicted_tokens == stats.leased == stats.private == 0
        assert stats.computed_tokens == account.computed
    account.seconds = time.perf_counter() - began
    return account


def main() -> None:
    """Replay everything and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct", help="whose tokenizer and chat template")
    model = str(parser.parse_args().model)
    root = folder()
    print(f"| {' | '.join(COLUMNS)} |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, cases_of in DATASETS.items():
        cases = list(cases_of(root))
        a = asyncio.run(replay(cases, model=model))
        rates = f"{1 - a.computed / a.prompt:.2%} | {1 - a.unique / a.prompt:.2%}"
        counts = f"{a.calls:,} | {a.prompt:,} | {a.unique:,} | {a.full_hits:,} | {a.computed:,}"
        print(f"| {name} | {len(cases)} | {counts} | {rates} |", flush=True)
        if a.computed != a.unique + a.full_hits:
            raise SystemExit(f"{name}: {a.computed} computed are not {a.unique} + {a.full_hits}")


if __name__ == "__main__":
    main()
