"""Generations of a run: stored when they are made, and taken from the journal when they were made before."""

from array import array
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from agentree.graph.journal.log import RunLog
from agentree.graph.journal.past import Body, tokens_of
from agentree.runtime.request import Request, Result, TokenCounts


class Generations:
    """A request is known by its task path, its content, and how often the same was asked there before."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._asked = Counter[tuple[str, str]]()
        self._taken = Counter[str]()
        """Tokens of what came from the journal, by task path."""

    def known(self, request: Request) -> Result | None:
        """What it came to in an earlier process, if that is in the journal."""
        if not _is_kept(request):
            return None
        place = (request.scope.path, content(request))
        self._asked[place] += 1
        body = self._log.past.generation(*place, self._asked[place] - 1)
        if body is None:
            return None
        self._taken[request.scope.path] += tokens_of(body)
        return _result(body)

    def spent(self, path: str) -> int:
        """Prompt and output tokens of a visit's own generations that came from the journal."""
        return sum(n for at, n in self._taken.items() if at == path or at.startswith(f"{path}["))

    def forgotten(self, path: str) -> int:
        """The same of those in the journal that the visit, when it ran again, did not ask for."""
        recorded = self._log.past.recorded(path)
        return recorded - self.spent(path) if recorded else 0

    async def keep(self, made: Sequence[tuple[Request, Result]]) -> None:
        """Store results. They are durable before whoever asked goes on."""
        for request, result in made:
            if _is_kept(request):
                self._log.note("generation", request.scope.path, **_body(content(request), result))
        if made:
            await self._log.sync()


def _is_kept(request: Request) -> bool:
    """A request that only computes has no result to keep."""
    return request.max_tokens > 0 or request.score_from is not None


def content(request: Request) -> str:
    """A digest of everything that a request's tokens depend on."""
    shortest = None if request.constraint is None else request.constraint.min_tokens
    how = (request.max_tokens, request.sampling, request.stop, request.score_from)
    asked = repr((how, request.namespace, shortest)).encode(errors="surrogatepass")
    return blake2b(array("q", request.prompt).tobytes() + asked, digest_size=12).hexdigest()


def _body(key: str, result: Result) -> dict[str, Any]:
    return {**vars(result), "key": key, "counts": vars(result.counts)}


def _result(body: Body) -> Result:
    values: dict[str, Any] = {key: value for key, value in body.items() if key != "key"}
    values["output"], values["scores"] = tuple(body["output"]), tuple(body["scores"])
    values["counts"] = TokenCounts(**body["counts"])
    return Result(**values)
