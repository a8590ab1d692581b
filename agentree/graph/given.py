"""What a run is given, and gives: refused where it can't work with it."""

import inspect
from typing import Any

from agentree.errors import GraphError, InvalidArgument
from agentree.events import Event
from agentree.graph.bounds import is_whole
from agentree.graph.flow import matches, show
from agentree.graph.nodes import Definition
from agentree.graph.shown import shown

UNSET: Any = object()
"""A state that was not given."""


def check_input(program: str, kind: Any, value: object) -> None:
    """Raises InvalidArgument where a program's input is not of the type that it takes."""
    if matches(value, kind):
        return
    raise InvalidArgument(
        f"program {program!r} takes {show(kind)}, not {show(type(value))}: it was given "
        f"{shown(repr(value), 80)}"
    )


def new_state(definition: Definition, given: Any = UNSET) -> Any:
    """The state that a program begins with: as given, else made. Raises GraphError where there is none."""
    kind = definition.state
    if given is not UNSET:
        if isinstance(kind, type) and not matches(given, kind):
            raise GraphError(
                f"program {definition.name!r} has state {kind.__name__}, not {type(given).__name__}"
                f"{_lacking(kind, given)}"
            )
        return given
    if kind is None:
        return None
    try:
        return kind()
    except TypeError as e:
        raise GraphError(
            f"program {definition.name!r} can't make its state {kind.__name__}() ({e}): pass state="
        ) from e


def _lacking(kind: Any, given: Any) -> str:
    """The first key that a TypedDict needs and that is not there."""
    needed: frozenset[str] = getattr(kind, "__required_keys__", frozenset[str]())
    missing = [key for key in sorted(needed) if isinstance(given, dict) and key not in given]
    return f" without {missing[0]!r}" if missing else ""


def check_output(program: str, kind: Any, path: str, made: object) -> None:
    """Raises GraphError where what comes to a program's end is not of the type that it gives."""
    if matches(made, kind):
        return
    remedy = "annotate what the node returns, and put a step between that makes it right"
    if inspect.isawaitable(made):
        if inspect.iscoroutine(made):
            made.close()
        remedy = "write 'return await ...'"
    elif hasattr(made, "transcript") and hasattr(made, "value"):
        remedy = "return the generation's .value"
    raise GraphError(
        f"program {program!r} gives {show(kind)}, but what came to its end (from {path!r}) is "
        f"{show(type(made))} {shown(made, 80)}: {remedy}"
    )


def check_goto(given: object) -> None:
    """Raises GraphError for what no successor can go on from."""
    from agentree.lm import Transcript

    if not isinstance(given, Transcript):
        remedy = (
            "generation.transcript"
            if hasattr(given, "transcript")
            else "one made with ctx.lm.transcript(...)"
        )
        raise GraphError(f"ctx.goto({shown(repr(given), 80)}): it takes a transcript, such as {remedy}")


def check_event(given: object) -> None:
    """Raises GraphError for what is no event."""
    if not isinstance(given, Event):
        raise GraphError(
            f"ctx.emit({shown(repr(given), 80)}): it takes an event of a class of your own, a frozen "
            "dataclass that extends agentree.Event"
        )


def check_run(program: str, lm: object, transcript: object, seed: object) -> None:
    """Refuse what is no runtime, transcript or seed.

    Raises:
        InvalidArgument: One of them is something else, or the transcript belongs to another runtime.
        RuntimeClosed: The runtime is not open.
    """
    from agentree.lm import Runtime, Transcript

    if not isinstance(lm, Runtime):
        name = repr(lm) if isinstance(lm, str) else "..."
        raise InvalidArgument(
            f"program {program!r}: lm={lm!r} is no open runtime: write 'async with Runtime({name}) as lm:' "
            "and pass that lm"
        )
    session = lm._home.session
    if transcript is not None and not isinstance(transcript, Transcript):
        raise InvalidArgument(
            f"program {program!r}: transcript={transcript!r} is none: make one with lm.transcript(...)"
        )
    if transcript is not None and transcript._session is not session:
        raise InvalidArgument(
            f"program {program!r}: {transcript!r} belongs to another runtime, or to an earlier opening of "
            "this one"
        )
    if not is_whole(seed):
        raise InvalidArgument(f"program {program!r}: seed={seed!r} must be a whole number")
