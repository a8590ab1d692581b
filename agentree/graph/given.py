"""Refuses what a run is given and can't work with, before anything runs."""

from typing import Any

from agentree.errors import InvalidArgument
from agentree.graph.bounds import is_whole
from agentree.graph.flow import matches, show
from agentree.graph.shown import shown


def check_input(program: str, kind: Any, value: object) -> None:
    """Raises InvalidArgument where a program's input is not of the type that it takes."""
    if matches(value, kind):
        return
    raise InvalidArgument(
        f"program {program!r} takes {show(kind)}, not {show(type(value))}: it was given "
        f"{shown(repr(value), 80)}"
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
