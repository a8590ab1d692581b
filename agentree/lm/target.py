"""What a generation shall be: the type asked for, as a constraint over a vocabulary and a parser."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from agentree.errors import ConstraintError, InvalidArgument
from agentree.lm.session import Session
from agentree.tools import Tool, ToolCall, ToolCalls, tools_by_name

if TYPE_CHECKING:
    from agentree.runtime.constraint import TokenConstraint

KEPT = 256
"""Targets that a session remembers."""

LONGEST_NAME = 80
"""Characters of a spec that an error shows."""


@dataclass(frozen=True, eq=False)
class Target:
    """A type bound to a vocabulary. `parse` gets the text and how many calls the transcript holds already."""

    name: str
    constraint: "TokenConstraint | None"
    parse: Callable[[str, int], Any]

    def refuse_budget(self, max_tokens: int) -> None:
        """Raise if the value can't be sure to end within `max_tokens`."""
        needed = self.constraint.min_tokens if self.constraint is not None else 1
        if max_tokens < needed:
            raise ConstraintError(
                f"max_tokens={max_tokens} is too small for {self.name}: the shortest value that surely ends "
                f"takes {needed} tokens; ask for max_tokens={needed} or more"
            )


FREE = Target("str", None, lambda text, _calls: text)
"""Free text: nothing is forced, and the text is the value."""


async def target_of(session: Session, types: Sequence[Any]) -> Target:
    """The target for `gen(*types)`. Compiling runs in a worker thread; a session keeps what it bound.

    Raises:
        ConstraintError: A type or keyword can't be enforced.
    """
    if not types:
        raise InvalidArgument("gen needs the type of the value: t.gen(str), t.gen(Answer), t.gen(A, B)")
    if types == (str,):
        return FREE
    return await _kept(session, ("gen", *types), lambda: _bind(session, types))


async def target_of_call(
    session: Session, tools: Sequence[Tool[..., Any]], output: Any, *, parallel: bool
) -> Target:
    """The target for `call(tools, output=output)`. Without tools, only the final answer is legal."""
    by_name = tools_by_name(tools)
    return await _kept(
        session,
        ("call", tuple(by_name.values()), output, parallel),
        lambda: _bind_call(session, tuple(by_name.values()), output, parallel),
    )


async def _kept(session: Session, key: tuple[Any, ...], make: Callable[[], Target]) -> Target:
    try:
        # Equal values of different types (1 and True in a Literal) must not share a target.
        full = (key, tuple(map(type, key)), repr(key))
        found = session.targets.get(full)
    except TypeError:
        return await _made(make)
    if found is None:
        found = await _made(make)
        session.targets[full] = found
        while len(session.targets) > KEPT:
            session.targets.pop(next(iter(session.targets)))
    return found


async def _made(make: Callable[[], Target]) -> Target:
    # A cancelled caller doesn't wait for the thread: what it compiles is kept by its content all the same.
    return await to_thread.run_sync(make, abandon_on_cancel=True)


def _bind(session: Session, types: Sequence[Any]) -> Target:
    from agentree.runtime.constraint import output_of

    output = output_of(*types)
    constraint = output.constraint
    bound = constraint.bind(session.tokenizer.vocabulary()) if constraint is not None else None
    return Target(_shown(types), bound, lambda text, _calls: output.parse(text))


def _bind_call(session: Session, tools: Sequence[Tool[..., Any]], output: Any, parallel: bool) -> Target:
    from agentree.runtime.constraint import Answer, output_of, parse_turn, tool_calls

    final = output_of(output)
    constraint = tool_calls([(t.name, t.schema) for t in tools], final, parallel, patterns="rust")

    def parse(text: str, made: int) -> Any:
        turn = parse_turn(text, final)
        if isinstance(turn, Answer):
            return turn.value
        return ToolCalls(tuple(ToolCall(f"call_{made + i}", n, a) for i, (n, a) in enumerate(turn, 1)))

    names = " or ".join([*(t.name for t in tools), "final_answer"])
    return Target(f"a call of {names}", constraint.bind(session.tokenizer.vocabulary()), parse)


def _shown(types: Sequence[Any]) -> str:
    return " | ".join(getattr(t, "__name__", None) or _brief(t) for t in types)


def _brief(spec: Any) -> str:
    """A spec as it was written; the kind alone where that is long, as schemas are."""
    written = repr(spec)
    return written if len(written) <= LONGEST_NAME else type(spec).__name__
