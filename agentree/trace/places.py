"""Which branch of the tree an event is about: visits below their agent, agents below their fork."""

import re

from agentree.events import Event, NodeRestored, NodeStarted
from agentree.trace.tree import Branch, path_of, split_path

_VISIT = re.compile(r"(?P<node>.*?)(?P<indices>(?:\[\d+\])+)(?P<visit>#\d+)?", re.DOTALL)


class Places:
    """The tree of one run, by task paths.

    A path such as "answer[3]#2" names the node first, and then the branch that visits it. In the tree it is
    the other way round, since it is the branch that has a transcript: all visits of branch 3, of whichever
    nodes, are below "[3]", and that is below the fork, which is named after the nodes that are visited first.
    """

    def __init__(self) -> None:
        self.root = Branch("", "")
        self._known: dict[str, Branch] = {"": self.root}
        self._open: dict[Branch, Branch] = {}
        """The fork that is open at a level: the run itself, a branch, or a program that is called."""
        self._firsts: dict[Branch, list[str]] = {}
        """The nodes that the branches of a fork visit first."""

    def at(self, event: Event) -> Branch:
        """The branch of an event's path, which is now the one touched last."""
        found = self._known.get(event.path)
        if found is None:
            begins = isinstance(event, NodeStarted | NodeRestored)
            found = self._visit(event.path) if begins else self._nested(event.path)
            self._known[event.path] = found
        branch: Branch | None = found
        while branch is not None:
            branch.touched = event.seq
            branch = branch.parent
        return found

    def _visit(self, path: str) -> Branch:
        """A visit that begins."""
        program, _, segment = path.rpartition("/")
        level = self._nested(program)
        match = _VISIT.fullmatch(segment)
        if match is None:
            self._open.pop(level, None)  # the task itself moves on: its branches have met
            return level.below(segment, path)
        for index in re.findall(r"\[\d+\]", match["indices"]):
            fork = self._fork(level, match["node"], index)
            level = fork.below(index, f"{fork.path}{index}")
            level.agent = True
        self._open.pop(level, None)
        return level.below(match["node"] + (match["visit"] or ""), path)

    def _fork(self, level: Branch, node: str, index: str) -> Branch:
        fork = self._open.get(level)
        if fork is None:
            key = f"{node}[]"
            before = sum(name.startswith(key) for name in level.children)
            name = f"{node}#{before + 1}" if before else node
            path = f"{level.path}/{name}" if level.path else name
            fork = self._open[level] = level.below(f"{key}{before or ''}", path)
            fork.name, fork.fork = name, True
            self._firsts[fork] = [node]
            if level.forked is not None:
                fork.forks.append(level.forked)
                level.forked = None
        elif index not in fork.children and node not in self._firsts[fork]:
            fork.name += f", {node}"
            self._firsts[fork].append(node)
        return fork

    def _nested(self, path: str) -> Branch:
        """A path that no visit began with: what a step forks by itself, or the trace began in its middle."""
        names = split_path(path)
        paths = [path_of(names[: i + 1]) for i in range(len(names))]
        start = max((i for i, so_far in enumerate(paths, 1) if so_far in self._known), default=0)
        branch = self._known[paths[start - 1]] if start else self.root
        for name, so_far in zip(names[start:], paths[start:], strict=True):
            branch = branch.below(name, so_far)
        return branch
