"""Random histories of an engine, every token proved: `python tests/engine_histories.py SEED N`."""

import random
from collections.abc import Hashable

import numpy as np
from engine_harness import Waiter, reckless
from engine_steps import END, Stepped, decoder, expected, logits_after, recall_model, stepped

from agentree.runtime.constraint import Regex, TokenConstraint, compile_constraint
from agentree.runtime.request import Hold, Request, Scope
from agentree.runtime.sampling import log_sum_exp
from agentree.runtime.speculate import Costs, Ids

Prompt = tuple[int, ...]

PATTERNS = (r"yes|no", r"\{\"n\": [0-9]{1,3}\}", r"The answer is 391\.", r"[ab]{3,9}")


class Free(Costs):
    """As if a guess cost nothing."""

    def worth(self, rows: int, queries: int = 1) -> float:
        return 1e-9


class Whisper:
    """Tells some of what will be said, and then something else."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def following(self, ids: Ids, namespace: Hashable, n: int) -> Ids:
        told = ids
        for _ in range(self.rng.randint(0, n)):
            token = int(logits_after(told.astype(np.int64)).argmax())
            told = np.append(told, np.int32(token)).astype(np.int32)
        wrong = [self.rng.randrange(2, 512) for _ in range(n)]
        return np.append(told[len(ids) :], np.array(wrong, np.int32))[:n].astype(np.int32)


def constraints() -> list[TokenConstraint]:
    vocabulary = recall_model(8).tokenizer.vocabulary()
    return [compile_constraint(Regex(pattern)).bind(vocabulary) for pattern in PATTERNS]


def play(seed: int, *, steps: int = 150) -> int:
    """Play one history and check all that it says; returns how many requests it made."""
    rng = random.Random(seed)
    forced_to = constraints() if rng.random() < 0.5 else []
    stems = [
        tuple(rng.randrange(4, 512) for _ in range(rng.randint(1, 40))) for _ in range(rng.randint(1, 4))
    ]
    budget, slots = rng.choice([1, 3, 8, 20, 64, 512]), rng.choice([110, 160, 400, 4096])
    eviction = rng.choice(["lru", "plan"])
    with stepped(slots, max_batch_tokens=budget, eviction=eviction) as engine:
        if rng.random() < 0.5:
            reckless(engine)
        if rng.random() < 0.6 and engine._speculator is not None:
            engine._speculator.costs = Free()
            engine._speculator._known = Whisper(random.Random(seed))
        if rng.random() < 0.3:
            decoder(engine).fail_at = frozenset(rng.sample(range(1, 150), 8))
        put: list[tuple[Request, Waiter]] = []
        history = list(stems)
        for _ in range(steps):
            if rng.random() < 0.5:
                wave = [request_of(rng, history, forced_to) for _ in range(rng.choice([1, 1, 1, 2, 3, 6]))]
                if rng.random() < 0.3:
                    wave += wave[: rng.randint(1, len(wave))]
                made = engine.put(*wave)
                for (ticket, waiter), request in zip(made, wave, strict=True):
                    if rng.random() < 0.15:
                        if rng.random() < 0.5:
                            engine.turn()
                        engine.abort(ticket)
                    else:
                        put.append((request, waiter))
                        if request.constraint is None:
                            said = expected(request.prompt, request.max_tokens)
                            history = [*history[-12:], ((*request.prompt, *said))[:60]]
            meddle(rng, engine)
            engine.turn()
        engine.settle()
        for request, waiter in put:
            check(request, waiter)
        assert (engine._scheduler._query_of == -1).all()
        return len(put)


def request_of(rng: random.Random, history: list[Prompt], forced_to: list[TokenConstraint]) -> Request:
    base = rng.choice(history)
    base = base[: rng.randint(1, len(base))] if rng.random() < 0.7 else base
    own = tuple(rng.randrange(4, 512) for _ in range(rng.choice([0, 0, 1, 1, 2, 8])))
    prompt = (*base, *own)
    run = f"run{rng.randrange(5)}"
    hold = Hold(f"{run}/{rng.randrange(3)}", rng.random() * 5) if rng.random() < 0.4 else None
    options: dict[str, object] = {"scope": Scope(run, f"node[{rng.randrange(3)}]"), "hold": hold}
    kind = rng.random()
    if kind < 0.1 and len(prompt) > 1:
        return Request(prompt, 0, score_from=rng.randint(1, len(prompt)), **options)  # type: ignore[arg-type]
    if forced_to and kind < 0.4:
        options |= {"constraint": rng.choice(forced_to), "jump_forward": rng.random() < 0.8}
        return Request(prompt, 20, end_ids=END, **options)  # type: ignore[arg-type]
    return Request(prompt, rng.choice([0, 1, 2, 5, 12, 30]), end_ids=END, **options)  # type: ignore[arg-type]


def meddle(rng: random.Random, engine: Stepped) -> None:
    run = f"run{rng.randrange(5)}"
    if rng.random() < 0.05:
        engine.release_run(run)
    if rng.random() < 0.1:
        engine.expect(f"{run}/{rng.randrange(3)}", rng.random() * 9)
    if rng.random() < 0.05:
        engine.release(f"{run}/{rng.randrange(3)}", last_use=rng.random() < 0.5, start=rng.randrange(20))
    if rng.random() < 0.03:
        engine.snapshot(lambda _: None)


def check(request: Request, waiter: Waiter) -> None:
    assert waiter.over.is_set()
    if waiter.error is not None:
        assert isinstance(waiter.error, FloatingPointError), waiter.error
        return
    result = waiter.wait()
    assert result.counts.cached + result.counts.computed == len(request.prompt)
    if request.score_from is not None:
        rows = [
            logits_after(np.array(request.prompt[:i])) for i in range(request.score_from, len(request.prompt))
        ]
        tokens = request.prompt[request.score_from :]
        scores = [float(row[t]) - log_sum_exp(row) for row, t in zip(rows, tokens, strict=True)]
        assert np.allclose(result.scores, scores)
    elif request.constraint is None:
        assert result.output == expected(request.prompt, request.max_tokens)
    else:
        assert result.finish == "stop"
        replay = request.constraint.matcher(request.max_tokens)
        for token, before in zip(result.output, range(len(request.prompt), 10**6), strict=False):
            mask = replay.mask()
            context = np.array((*request.prompt, *result.output)[:before])
            best = int(np.where(mask, logits_after(context), -np.inf).argmax())
            assert mask[token]
            assert request.jump_forward or token == best
            replay.advance(token)
        assert replay.accepting


if __name__ == "__main__":
    import sys

    first, count = (int(a) for a in sys.argv[1:3])
    for number in range(first, first + count):
        try:
            play(number)
        except BaseException:
            print(f"seed {number}", flush=True)
            raise
    print(f"{count} histories from seed {first}: every token is right")
