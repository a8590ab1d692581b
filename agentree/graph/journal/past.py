"""What a journal knows of a run when it is resumed, ready to be looked up along the way."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentree.graph.journal.facts import Fact
from agentree.runtime.request import TokenCounts

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Spent:
    """What the ended visits of a program have used of its limits."""

    tokens: int = 0
    per_tool: Counter[str] = field(default_factory=Counter[str])


class Past:
    """The facts of the processes that worked on a run before. Empty for a new run."""

    def __init__(self, facts: Sequence[Fact] = (), *, until: float = 0.0) -> None:
        """`until`: when the last process stopped to work on the run, if it did not say so."""
        self.ended: dict[str, Body] = {}
        """By task path, the end of a visit."""
        self.started: dict[str, Body] = {}
        """By task path, the first start of a visit."""
        self.questions: defaultdict[str, list[Body]] = defaultdict(list)
        """By task path, what was asked there, in order."""
        self.refused: set[str] = set()
        """Questions whose answer the reply type did not take."""
        self.calls: dict[tuple[str, str], Body] = {}
        """By task path and id of a call, its end; empty where only its start is known."""
        self.lost: defaultdict[str, list[Body]] = defaultdict(list)
        """By task path of a join, the branches of its fork that failed and were left out."""
        self.states: dict[str, Body] = {}
        """By task path of a visit that calls a program, the state that it was called with."""
        self._next: dict[str, str] = {}
        self._recorded = Counter[str]()
        """By task path of a visit, the tokens of its generations, also of those on branches of its own."""
        self._generations: defaultdict[tuple[str, str], list[Body]] = defaultdict(list)
        self._sessions: list[tuple[float, float]] = []
        for fact in facts:
            self._take(fact)
        if facts and facts[-1].kind not in ("ended", "waiting"):
            self._stopped(until)
        self.until = self._sessions[-1][1] if self._sessions else 0.0
        """When that was."""

    def _stopped(self, until: float) -> None:
        if self._sessions:
            began, last = self._sessions[-1]
            self._sessions[-1] = (began, max(last, until))

    def _take(self, fact: Fact) -> None:
        path, body = fact.path, fact.body
        match fact.kind:
            case "opened":
                self._stopped(body.get("until", 0.0))
                self._sessions.append((fact.time, fact.time))
            case "node started":
                self.started.setdefault(path, {**body, "time": fact.time})
                if body.get("after"):
                    self._next[body["after"]] = body["node"]
            case "state":
                self.states.setdefault(path, body)
            case "node ended":
                self.ended[path] = body
            case "generation":
                self._generations[path, body["key"]].append(body)
                for visit in _visits_of(path):
                    self._recorded[visit] += tokens_of(body)
            case "call started":
                self.calls.setdefault((path, body["call"]), {})
            case "call withdrawn":
                self.calls.pop((path, body["call"]), None)
            case "call ended":
                self.calls[path, body["call"]] = body
            case "question":
                self.questions[path].append(body)
            case "refused":
                self.refused.add(body["id"])
            case "branch lost":
                self.lost[path].append(body)
            case _:
                pass
        if self._sessions:
            began, _ = self._sessions[-1]
            self._sessions[-1] = (began, fact.time)

    def after(self, path: str) -> str | None:
        """The node that was gone to after a visit."""
        return self._next.get(path)

    def generation(self, path: str, key: str, n: int) -> Body | None:
        """What the n-th request of this content came to."""
        found = self._generations.get((path, key), ())
        return found[n] if n < len(found) else None

    def counts(self) -> list[TokenCounts]:
        """Tokens of every generation that was finished."""
        return [TokenCounts(**body["counts"]) for made in self._generations.values() for body in made]

    def recorded(self, visit: str) -> int:
        """Tokens of all that a visit generated, whether it has ended or not."""
        return self._recorded[visit]

    def spent(self, prefix: str) -> Spent:
        """What was used inside of a program, by the prefix of its paths: by visits that don't run again."""
        spent, per_tool = 0, Counter[str]()
        for path, body in self.ended.items():
            if path.startswith(prefix):
                spent += body.get("tokens", 0)
                per_tool.update(body.get("calls", {}))
        gone = (visit for visit in self.gone() if visit.startswith(prefix) and visit not in self.ended)
        return Spent(spent + sum(map(self.recorded, gone)), per_tool)

    def gone(self) -> set[str]:
        """Visits in branches that nobody waits for any more."""
        left = [body["visits"] for body in self.ended.values() if "visits" in body]
        for bodies in self.lost.values():
            if len({branch for body in bodies for branch in body["branches"]}) < bodies[0]["of"]:
                left += [body["visits"] for body in bodies]
        return {_visit(base, n) for visits in left for base, last in visits.items() for n in range(last)}

    def seconds(self, since: float = 0.0) -> float:
        """How long processes worked on the run, as far as facts tell, from a point of time on."""
        return sum(max(0.0, last - max(began, since)) for began, last in self._sessions)


def tokens_of(generation: Body) -> int:
    """Prompt and output tokens of a generation, by its fact."""
    counts = generation["counts"]
    return counts["prompt"] + counts["sampled"] + counts["forced"]


def _visit(base: str, before: int) -> str:
    """The task path of a visit that so many had been before."""
    return f"{base}#{before + 1}" if before else base


def _visits_of(path: str) -> Iterator[str]:
    """The path itself, and without the numbers of branches at its end: it may be one that the visit made."""
    yield path
    while path.endswith("]"):
        path = path[: path.rindex("[")]
        yield path
