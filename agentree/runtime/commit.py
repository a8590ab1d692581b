"""What becomes of a sequence once its logits are there: scores, the next token, forced runs, the end."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agentree.runtime.sampling import log_sum_exp, pick
from agentree.runtime.scheduler import Chunk
from agentree.runtime.sequence import Sequence

Finish = Literal["stop", "length"]
Rows = list[NDArray[np.float32]]


@dataclass(frozen=True)
class End:
    """A sequence is over."""

    finish: Finish
    end_token: int | None = None


def commit(chunk: Chunk, rows: Rows, *, jump_forward: bool) -> End | None:
    """Take a finished forward into account; returns how the sequence ended, or None if it goes on.

    Args:
        chunk: What ran.
        rows: The logits that the chunk wanted, in its order: float32 [vocab] each.
        jump_forward: Append forced runs without a forward pass.

    Raises:
        ValueError: The constraint allows no token here, or the logits are not finite.
    """
    sequence = chunk.sequence
    known = sequence.cached + sequence.prompt_computed
    sequence.prompt_computed += max(0, min(chunk.stop, sequence.prompt_length) - known)
    sequence.cursor = min(chunk.stop, sequence.length)
    sequence.passes += 1
    if sequence.request.score_from is not None:
        _score(sequence, chunk, rows)
    if sequence.cursor < sequence.length:
        return None
    if sequence.request.max_tokens == 0 or sequence.complete:
        return End("stop")
    return _verify(sequence, chunk, rows, jump_forward=jump_forward)


def _verify(sequence: Sequence, chunk: Chunk, rows: Rows, *, jump_forward: bool) -> End | None:
    """Sample, and go on as long as what comes is what was guessed: then the next logits are there as well."""
    begin = sequence.length
    guessed = sequence.ids[begin : chunk.stop].tolist()
    first = len(rows) - 1 - len(guessed)
    sampled = sequence.sampled
    while True:
        end = _sample(sequence, rows[first + sequence.length - begin], jump_forward=jump_forward)
        came = sequence.ids[begin : sequence.length].tolist()
        n = min(len(came), len(guessed))
        right = next((i for i in range(n) if came[i] != guessed[i]), n)
        sequence.cursor = begin + right
        if end is not None or right < len(came):
            chunk.right = sequence.sampled - sampled - (right < len(came))
            chunk.wrong = right < n or (end is not None and end.end_token is not None and n < len(guessed))
            return end


def append_forced(sequence: Sequence, last: int | None) -> bool:
    """Append every run of tokens that must come now; True if that completes the value.

    `last` is the token before the run, None at the start of the value: a run is tokenized together with it.
    """
    matcher = sequence.matcher
    if matcher is None:
        return False
    while not matcher.done:
        run = matcher.forced(last)
        if not run:
            return False
        for token in run:
            matcher.advance(token)
            sequence.append(token)
            sequence.text.push(token)
        sequence.forced += len(run)
        last = run[-1]
    return True


def _score(sequence: Sequence, chunk: Chunk, rows: Rows) -> None:
    for (position, _), row in zip(chunk.wanted, rows, strict=True):
        token = int(sequence.ids[position + 1])
        sequence.scores.append(float(row[token]) - log_sum_exp(row))


def _sample(sequence: Sequence, logits: NDArray[np.float32], *, jump_forward: bool) -> End | None:
    request, matcher = sequence.request, sequence.matcher
    token, logprob, near_tie = pick(
        logits, request.sampling, sequence.length, matcher.mask() if matcher is not None else None
    )
    sequence.near_ties += near_tie
    sequence.logprob += logprob
    if matcher is not None:
        matcher.advance(token)
    if token in request.end_ids:
        return End("stop", token)
    sequence.append(token)
    sequence.sampled += 1
    if sequence.text.push(token):
        return End("stop")
    if matcher is not None and (matcher.done or (jump_forward and append_forced(sequence, token))):
        return End("stop")
    if sequence.generated >= request.max_tokens:
        return End("stop" if matcher is not None and matcher.accepting else "length")
    return None
