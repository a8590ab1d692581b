"""Generating on transcripts: checks, requests, and what becomes of the results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentree.errors import InvalidArgument, InvalidValue
from agentree.lm import seeds
from agentree.lm.arguments import finite, stop_strings, whole
from agentree.lm.generation import Generation, Usage
from agentree.lm.holding import leave
from agentree.lm.session import Session
from agentree.lm.target import Target
from agentree.runtime.request import Request, Result, Sampling, TokenCounts
from agentree.tools import ToolCalls

if TYPE_CHECKING:
    from agentree.lm.transcript import Transcript

SEPARATOR = "\n"
"""Stands between free thought and a forced value where the thought does not end with it."""


@dataclass(frozen=True)
class Options:
    """How to generate. Lengths in tokens."""

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    think: int = 0

    @classmethod
    def of(
        cls,
        max_tokens: object = 256,
        temperature: object = 0.0,
        top_p: object = 1.0,
        stop: object = (),
        seed: object = None,
        think: object = 0,
    ) -> "Options":
        """Options as a caller gave them. Raises InvalidArgument for those that are none."""
        share = "it must lie above 0 and be at most 1; 1 leaves nothing out"
        heat = "0 is greedy, above 0 samples"
        made = cls(
            max_tokens=whole("max_tokens", max_tokens, "a generation needs at least 1 token", least=1),
            temperature=finite("temperature", temperature, heat),
            top_p=finite("top_p", top_p, share),
            stop=stop_strings(stop),
            seed=None if seed is None else seeds.check(seed),
            think=whole("think", think, "a number of tokens before the value, 0 for none", least=0),
        )
        if made.temperature < 0.0:
            raise InvalidArgument(f"temperature={made.temperature} is below 0: {heat}")
        if not 0.0 < made.top_p <= 1.0:
            raise InvalidArgument(f"top_p={made.top_p} is out of range: {share}")
        return made

    def check(self, target: Target) -> None:
        """Raise InvalidArgument or ConstraintError for what can't go with the target."""
        target.refuse_budget(self.max_tokens)
        if target.constraint is None:
            if self.think:
                raise InvalidArgument(
                    "think= is free text before a forced value; gen(str) is free text anyway"
                )
        elif self.stop:
            raise InvalidArgument(
                f"stop={list(self.stop)!r} can't go with {target.name}: a forced value ends by itself; leave "
                "stop out, or generate str"
            )

    def sampling(self, seed: int) -> Sampling:
        """How one branch draws its tokens."""
        return Sampling(self.temperature, self.top_p, seed)


async def generate(
    session: Session,
    transcripts: Sequence["Transcript"],
    targets: Sequence[Target],
    options: Options,
    drawn: Sequence[int],
) -> list[Generation[Any]]:
    """One generation on each transcript, all in one wave, in order; each with its target and its seed.

    Raises:
        InvalidValue: The first value, in order, that its own type refuses.
        ContextOverflow: A transcript and what it asks for don't fit.
    """
    thoughts: list[list[TokenCounts]] = [[] for _ in transcripts]
    opened = [t._opened() for t in transcripts]
    if options.think:
        opened = await _think(session, opened, options, drawn, thoughts)
    asked = list(zip(opened, targets, drawn, strict=True))
    results = await session.run([value_request(t, target, options, seed) for t, target, seed in asked])
    return [
        finished(t, target, result, seed, before)
        for (t, target, seed), result, before in zip(asked, results, thoughts, strict=True)
    ]


def value_request(opened: "Transcript", target: Target, options: Options, seed: int) -> Request:
    """The request for a value on a transcript whose turn is open."""
    return opened._request(
        options.max_tokens,
        sampling=options.sampling(seed),
        constraint=target.constraint,
        stop=options.stop,
        end_ids=opened._session.tokenizer.end_ids,
    )


def finished(
    opened: "Transcript", target: Target, result: Result, seed: int, before: Sequence[TokenCounts] = ()
) -> Generation[Any]:
    """What a result means. Raises InvalidValue if the type refuses the text."""
    transcript = opened._grown(result.output, result.text)._ended()
    try:
        value = target.parse(result.text, transcript._calls)
    except ValueError as error:
        raise InvalidValue(
            f"{target.name} refuses the generated text {result.text!r}: {error}",
            text=result.text,
            transcript=transcript,
        ) from error
    if isinstance(value, ToolCalls):
        transcript = transcript._after_calls(len(value.calls))
    leave(transcript, value)
    return Generation(
        value=value,
        text=result.text,
        transcript=transcript,
        logprob=result.logprob,
        seed=seed,
        finish_reason=result.finish,
        usage=Usage.of(*before, result.counts),
    )


async def _think(
    session: Session,
    opened: Sequence["Transcript"],
    options: Options,
    drawn: Sequence[int],
    counts: list[list[TokenCounts]],
) -> list["Transcript"]:
    """Free tokens first, as text of the same turn."""
    separator = session.prompts.plain(SEPARATOR)
    for t in opened:
        session.refuse_overflow(len(t), options.think + len(separator.ids) + options.max_tokens)
    requests = [
        t._request(
            options.think,
            sampling=options.sampling(seeds.derive(seed, "think")),
            end_ids=session.tokenizer.end_ids,
        )
        for t, seed in zip(opened, drawn, strict=True)
    ]
    grown: list[Transcript] = []
    for t, result, before in zip(opened, await session.run(requests), counts, strict=True):
        before.append(result.counts)
        thought = t._grown(result.output, result.text)
        if result.text and not result.text.endswith(SEPARATOR):
            thought = thought._grown(separator.ids, separator.text)
        grown.append(thought)
    return grown
