"""The tree of task paths that a picture is made of: runs, branches, and the tokens of each."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["idle", "running", "done", "failed", "cancelled", "waiting", "limit"]
"""Of a run, a path, a call. "limit": a limit of the program has stopped it."""

KEPT_TEXT = 4000
"""Characters of one text that a view keeps; a trace file keeps all of it."""

_BRANCH = re.compile(r"\[(\d+)\]")
_SEGMENT = re.compile(r"(?P<base>.*?)(?P<branches>(?:\[\d+\])*)(?P<visit>#\d+)?")


def split_path(path: str) -> list[str]:
    """The nested names of a task path: "solve/answer[3]#2" -> ["solve", "answer", "[3]#2"]."""
    names: list[str] = []
    for segment in filter(None, path.split("/")):
        match = _SEGMENT.fullmatch(segment)
        if match is None or not match["branches"]:
            names.append(segment)
            continue
        nested = [match["base"], *re.findall(r"\[\d+\]", match["branches"])]
        nested[-1] += match["visit"] or ""
        names += filter(None, nested)
    return names


def path_of(names: Iterable[str]) -> str:
    """The path of nested names: what `split_path` splits."""
    path = ""
    for name in names:
        path += name if name.startswith("[") or not path else f"/{name}"
    return path


@dataclass
class Tokens:
    """Where tokens came from: `cached + computed` of prompts, `forced + sampled` of outputs."""

    cached: int = 0
    computed: int = 0
    forced: int = 0
    sampled: int = 0

    @property
    def prompt(self) -> int:
        """Tokens read."""
        return self.cached + self.computed

    @property
    def output(self) -> int:
        """Tokens generated."""
        return self.forced + self.sampled

    @property
    def total(self) -> int:
        """Tokens read and generated."""
        return self.prompt + self.output

    def add(self, other: "Tokens") -> None:
        """Count the other's tokens in."""
        self.cached += other.cached
        self.computed += other.computed
        self.forced += other.forced
        self.sampled += other.sampled

    def since(self, before: "Tokens") -> "Tokens":
        """What came after `before`."""
        return Tokens(
            self.cached - before.cached,
            self.computed - before.computed,
            self.forced - before.forced,
            self.sampled - before.sampled,
        )


@dataclass
class Call:
    """One tool call. Arguments and content are kept as far as a view can show them."""

    id: str
    tool: str
    arguments: str
    status: Status = "running"
    content: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Forming:
    """A tool call that a running generation writes: the tool is certain."""

    tool: str
    written: bool
    """The arguments are complete."""


@dataclass
class Writing:
    """A generation that runs, or the last one that did."""

    name: str
    """Of its path, outside of the tree."""
    request: int
    prompt_tokens: int
    counted: Tokens = field(default_factory=Tokens)
    """What the picture already knows of it."""
    text: str = ""
    status: Status = "running"
    touched: int = 0
    """Sequence number of the last event about it."""


@dataclass(eq=False)
class Branch:
    """One place of the tree: its own generations and tool calls, and what is below it."""

    name: str
    path: str
    parent: "Branch | None" = field(default=None, repr=False)
    number: int = -1
    """Of a branch of a fork, its place in it."""
    branches: bool = False
    """Some of what is below it are branches of a fork."""
    fork: bool = False
    """Below it are the branches of a fork of a graph."""
    agent: bool = False
    """It is such a branch: below it are the visits that it makes."""
    tokens: Tokens = field(default_factory=Tokens)
    """Its own."""
    total: Tokens = field(default_factory=Tokens)
    """Its own and those of all that is below it."""
    generations: int = 0
    passes: int = 0
    status: Status = "idle"
    running: int = 0
    """Generations in flight."""
    open: bool = False
    """A node visit has started and not ended."""
    calls: list[Call] = field(default_factory=list[Call])
    forming: dict[tuple[int, int], Forming] = field(default_factory=dict[tuple[int, int], Forming])
    """Calls that are being written, by request and place in its turn."""
    forks: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """(branches, shared tokens) of each fork made here, or of this fork."""
    forked: tuple[int, int] | None = None
    """The same of a fork that was made at this level and has shown none of its branches yet."""
    miss: str = ""
    error: str = ""
    touched: int = 0
    children: dict[str, "Branch"] = field(default_factory=dict[str, "Branch"])

    def below(self, name: str, path: str) -> "Branch":
        """What is below it by this name, made if it is new."""
        child = self.children.get(name)
        if child is None:
            match = _BRANCH.match(name)
            number = int(match[1]) if match else -1
            self.branches = self.branches or match is not None
            child = self.children[name] = Branch(name, path, self, number)
        return child

    def ordered(self) -> list["Branch"]:
        """What is below, in order of appearance; the branches of forks by their number."""
        below = list(self.children.values())
        return sorted(below, key=_number) if self.branches else below

    def walk(self) -> Iterator["Branch"]:
        """This branch and all below it, depth first."""
        yield self
        for child in self.ordered():
            yield from child.walk()

    @property
    def shown_status(self) -> Status:
        """Its own status; for a path that only has calls or others below it, what they say."""
        if self.status != "idle" or not (self.children or self.calls):
            return self.status
        below = {child.shown_status for child in self.children.values()}
        below |= {"running" if call.status == "running" else "done" for call in self.calls}
        order: tuple[Status, ...] = ("running", "waiting", "failed", "limit", "cancelled", "done", "idle")
        return next(status for status in order if status in below)

    @property
    def single(self) -> bool:
        """It is a branch of a fork that has made one visit, with nothing below: one row says it all."""
        visits = list(self.children.values())
        return self.agent and len(visits) == 1 and not (visits[0].children or visits[0].calls)

    def latest(self) -> "Branch | None":
        """Of what is below, the path that the last event was about."""
        below = max(self.children.values(), key=lambda child: child.touched, default=None)
        return None if below is None else below.latest() or below

    def only_call(self) -> Call | None:
        """Its call, where nothing else is here or below."""
        alone = len(self.calls) == 1 and not self.children and not self.generations
        return self.calls[0] if alone else None

    def count(self, more: Tokens) -> None:
        """Tokens that came here: its own, and part of all that it is below of."""
        self.tokens.add(more)
        branch: Branch | None = self
        while branch is not None:
            branch.total.add(more)
            branch = branch.parent


def _number(branch: Branch) -> int:
    return branch.number


@dataclass
class RunView:
    """A run of a program, or (id "") what was done with transcripts outside one."""

    id: str
    number: int
    """1 for the first run of the trace."""
    root: Branch
    program: str = ""
    input: str = ""
    output: str = ""
    error: str = ""
    status: Status = "running"

    @property
    def shown_status(self) -> Status:
        """Its status; outside of programs, where nothing says when it is over, that of what is below."""
        return self.status if self.id else self.root.shown_status
