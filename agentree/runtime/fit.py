"""What can never be computed is refused when it is submitted, with the numbers."""

from math import isnan

from agentree.errors import AgentreeError, ContextOverflow
from agentree.runtime.request import Request


def refuse_unfit(request: Request, *, context: int, slots: int, vocab: int) -> None:
    """Raise for a request that no state of the cache lets finish. Sizes in tokens.

    Raises:
        ContextOverflow: Prompt and output don't fit the model's context or the pool.
        AgentreeError: The prompt is empty or holds what is no token, or nothing stands before what shall be
            scored.
        TypeError: The namespace can't be hashed.
    """
    hash(request.namespace)
    prompt = len(request.prompt)
    needed = prompt + request.max_tokens
    if prompt == 0:
        raise AgentreeError("a request needs at least one token of prompt: add a message or raw text first")
    if not (min(request.prompt) >= 0 and max(request.prompt) < vocab):
        raise AgentreeError(
            f"the prompt holds ids that are no tokens of the model: they lie in 0..{vocab - 1}"
        )
    if request.score_from is not None and not 1 <= request.score_from <= prompt:
        raise AgentreeError(
            f"score_from={request.score_from} must lie in 1..{prompt}, the length of the prompt"
        )
    if request.hold is not None and isnan(request.hold.seconds):
        raise AgentreeError(f"the hold of {request.hold.owner!r} lasts NaN seconds: give a number")
    for limit, what, remedy in (
        (context, "the model's context", "shorten the transcript or max_tokens"),
        (slots, "the KV pool", "open the runtime with a larger kv_tokens"),
    ):
        if needed > limit:
            raise ContextOverflow(
                f"{prompt} prompt tokens and up to {request.max_tokens} new ones need {needed}, but "
                f"{what} holds {limit}: {remedy}",
                needed=needed,
                limit=limit,
                prompt=prompt,
                max_tokens=request.max_tokens,
            )
