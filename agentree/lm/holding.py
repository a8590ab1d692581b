"""Who holds which part of the cache: leases that belong to scopes, and end with them."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentree.lm import waits
from agentree.lm.session import Session
from agentree.runtime.request import Hold, Scope
from agentree.tools import ToolCalls

if TYPE_CHECKING:
    from agentree.lm.transcript import Transcript
    from agentree.lm.turns import Conversation

_INDEX = re.compile(r"\[\d+\]")


class Holder:
    """One branch of a fork, or one survivor that an outer branch took over: the owner of one lease.

    Its lease moves along with what is generated on the branch. A transcript that outlives the scope goes on
    without one.
    """

    def __init__(self, owner: str, *, outer: "Holder | None" = None, shared: int = 0) -> None:
        self.owner = owner
        self.outer = outer
        self._shared = shared
        """Tokens at the start that belong to the outer scope."""
        self._survivors: list[Holder] = []
        self._over = False

    def hold(self) -> Hold | None:
        """What a request asks for while the scope lasts."""
        return None if self._over else Hold(self.owner)

    def end(self, session: Session, *, kept: bool = False) -> None:
        """Give the leases back. What is not `kept` was used for the last time."""
        self._over = True
        for survivor in self._survivors:
            survivor.end(session, kept=kept)
        session.release(self.owner, last_use=not kept, start=self._shared)

    def adopt(self, session: Session, survivor: "Transcript") -> "Holder":
        """Hold a survivor of an inner fork for as long as this scope lasts."""
        holder = Holder(f"{self.owner}+{session.number()}", outer=self.outer, shared=self._shared)
        self._survivors.append(holder)
        session.hold(Hold(holder.owner), survivor._ids, survivor._namespace())
        return holder


class ForkScope:
    """The leases of one fork: of the trunks that it started from, and of its branches."""

    def __init__(self, session: Session, parents: Sequence["Transcript"]) -> None:
        self._session = session
        self._kept: set[Holder] = set()
        self._trunks: list[str] = []
        for parent in dict.fromkeys(parents):
            if parent._ids:
                self._trunks.append(_owner(session, parent._scope, ":trunk"))
                session.hold(Hold(self._trunks[-1]), parent._ids, parent._namespace())
        self.holders = [
            Holder(_owner(session, p._scope, f"[{i}]"), outer=p._holder, shared=len(p._ids))
            for i, p in enumerate(parents)
        ]

    def branch_of(self, transcript: "Transcript") -> Holder | None:
        """The branch of this fork that a transcript continues, forks inside of it included."""
        holder = transcript._holder
        while holder is not None and holder not in self.holders:
            holder = holder.outer
        return holder

    def keep(self, branch: Holder, survivor: "Transcript") -> Holder | None:
        """Hand a survivor to the enclosing scope; returns who holds it now."""
        self._kept.add(branch)
        outer = branch.outer
        return outer.adopt(self._session, survivor) if outer is not None and outer.hold() else None

    def end(self) -> None:
        """Release everything but what was kept."""
        for owner in self._trunks:
            self._session.release(owner, last_use=False)
        for holder in self.holders:
            holder.end(self._session, kept=holder in self._kept)


def _owner(session: Session, scope: Scope, suffix: str) -> str:
    # The number keeps apart two forks of one place; the run in front lets a run's end end them all.
    return f"{scope.run}/{scope.path}{suffix}:{session.number()}"


def owner_of(scope: Scope) -> str:
    """Who holds the transcripts of a run's visits: each path of tasks holds one, which grows along it.

    The run itself on its main path, `run/[2]` on a branch, `run/call` inside of a program that it calls.
    """
    program, _, node = scope.path.rpartition("/")
    parts = (scope.run, program, "".join(_INDEX.findall(node)))
    return "/".join(part for part in parts if part)


def request_hold(session: Session, holder: Holder | None, scope: Scope) -> Hold | None:
    """The lease that a request takes: its branch's, else its task's where the run holds its transcripts."""
    held = holder.hold() if holder is not None else None
    if held is None and scope.run and scope.run in session.held_runs:
        return Hold(owner_of(scope))
    return held


def leave(of: "Conversation", value: object) -> None:
    """A turn is over: say when its transcript is expected back, from what was generated."""
    hold = request_hold(of._session, of._holder, of._scope)
    if hold is not None:
        calls = value.calls if isinstance(value, ToolCalls) else ()
        of._session.leave(hold.owner, [waits.tool(c.name) for c in calls] or [waits.after(of._scope.path)])
