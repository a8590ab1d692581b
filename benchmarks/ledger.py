"""Which prompt tokens had to be computed: counted beside an engine, by a trie that knows nothing of it."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from agentree.lm.session import EngineLike
from agentree.runtime.request import Request, Result, Sink, Ticket
from benchmarks.agents import Prefixes, processed


@dataclass
class Ledger:
    """Of all requests of one engine, in prompt tokens, from `observe` on."""

    jump_forward: bool = True
    """Whether the engine appends forced runs."""
    computed: int = 0
    unique: int = 0
    """No earlier prompt or output had them, with what is before them."""
    full_hits: int = 0
    """Prompts that were cached whole, and whose last token ran once more because its logits are needed."""
    seen: dict[object, Prefixes] = field(default_factory=dict[object, Prefixes])

    @property
    def needed(self) -> int:
        """How many prompt tokens have to be computed at least."""
        return self.unique + self.full_hits

    @contextmanager
    def observe(self, engine: EngineLike) -> Generator[None]:
        """Count every request that reaches an engine while the block lasts."""
        submit = engine.submit_all

        def submit_all(requests: list[tuple[Request, Sink]]) -> list[Ticket]:
            return submit([(request, self._entered(request, sink)) for request, sink in requests])

        engine.submit_all = submit_all
        try:
            yield
        finally:
            engine.submit_all = submit

    def _entered(self, request: Request, sink: Sink) -> Sink:
        seen = self.seen.setdefault(request.namespace, Prefixes())
        new = seen.add(request.prompt)
        self.unique += new

        def done(result: Result) -> None:
            self.computed += result.counts.computed
            # Equal prompts of one moment share the logits of the last token: then nothing was computed.
            self.full_hits += not new and result.counts.computed > 0
            seen.add(
                request.prompt + result.output[: processed(request, result, jump_forward=self.jump_forward)]
            )
            sink.done(result)

        return Sink(sink.progress, done, sink.failed)
