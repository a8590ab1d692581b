"""The visits that one program makes in a run: what they are called, and how they begin and end."""

from dataclasses import dataclass

from agentree.events import NodeEnded, NodeRestored, NodeStarted
from agentree.graph.acts import Visit
from agentree.graph.ctx import Cell
from agentree.graph.journal.visits import Keeper
from agentree.graph.nodes import Definition, NodeSpec
from agentree.graph.shown import shown
from agentree.graph.task import Shared, Task
from agentree.runtime.request import Scope


@dataclass(eq=False)
class Visits:
    """Those of a run's own program, or of one that it calls."""

    shared: Shared
    definition: Definition
    cell: Cell
    prefix: str = ""
    """Task path of the node that calls this program, with a slash."""

    def __post_init__(self) -> None:
        journal = self.shared.journal
        self.keeper: Keeper | None = None if journal is None else journal.states(self.cell)

    def base(self, task: Task, node: NodeSpec) -> str:
        """The task path of a visit, without the number of the visit."""
        return f"{self.prefix}{node.name}{branch_of(task)}"

    def enter(self, task: Task, node: NodeSpec) -> Visit:
        """One more visit of a node by a task."""
        task.path = self.shared.path(self.base(task, node))
        return Visit(self.shared, self.definition, task, task.path)

    def begin(self, task: Task, node: NodeSpec, kind: str) -> Visit:
        """The same, and tell that it has begun."""
        visit = self.enter(task, node)
        visit.emit(NodeStarted(node=node.name, kind=kind))
        return visit

    def end(self, visit: Visit, node: NodeSpec, output: str, error: str) -> None:
        """A visit is over."""
        self._reach(visit.task)
        visit.emit(NodeEnded(node=node.name, output=output, error=error))

    def restored(self, visit: Visit, node: NodeSpec) -> None:
        """A visit was taken from the journal."""
        self._reach(visit.task)
        visit.emit(NodeRestored(node=node.name, kind=node.kind, output=shown(visit.task.value)))

    def let_go(self, task: Task, node: NodeSpec) -> None:
        """End the lease of the task's transcript where the plan says that it is not read again."""
        if self.definition.distance[node.name] == float("inf") and not task.indices:
            self.shared.lm._let_go(Scope(self.shared.id, self.prefix))

    def _reach(self, task: Task) -> None:
        if self.prefix == "" and not task.indices:
            self.shared.transcript, self.shared.output = task.transcript, task.value


def branch_of(task: Task) -> str:
    """The branches of forks that a task is in, as its paths have them: "[2][0]"."""
    return "".join(f"[{i}]" for i in task.indices)
