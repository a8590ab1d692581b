"""What a run began with, and whether a program and a runtime can still go on with it."""

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

from agentree.errors import JournalError
from agentree.graph.journal.facts import Fact
from agentree.graph.journal.fingerprint import declared, fingerprint, tools_of
from agentree.graph.journal.past import Body
from agentree.graph.journal.unstorable import Unstorable
from agentree.graph.journal.values import Values
from agentree.graph.nodes import Definition
from agentree.lm.stored import stored

if TYPE_CHECKING:
    from agentree.graph.journal.opened import Begun
    from agentree.lm import Runtime

Changed = Literal["refuse", "accept"]
"""What becomes of a run whose program has changed since it began."""


def values_of(definition: Definition) -> Values:
    """How a program's values are written. Raises JournalError, naming where, for a type that can't be."""
    try:
        return Values(declared(definition), tools_of(definition))
    except Unstorable as e:
        raise JournalError(f"program {definition.name!r} can't be journaled: {e}") from e


def accepted_with(definition: Definition, values: Values, lm: "Runtime", begun: "Begun") -> dict[str, Any]:
    """What a run begins with, as JSON values. Raises JournalError for what can't be stored."""
    what = "state"
    try:
        state, parts = values.write_state(begun.state)
        what = "input"
        given = values.write(begun.input, state=parts)
    except Unstorable as e:
        raise JournalError(f"the {what} of program {definition.name!r} can't be journaled: {e}") from e
    transcript = begun.transcript
    return {
        "program": definition.name,
        "fingerprint": fingerprint(definition, values.described()),
        "types": values.versions(),
        "tokens": _tokens(lm),
        "input": given,
        "state": state,
        "seed": begun.seed,
        "transcript": None if transcript is None else stored(transcript, None),
    }


def _tokens(lm: "Runtime") -> list[Any]:
    """What tells one meaning of token ids from another."""
    session = lm._home.session
    sample = session.tokenizer.encode("A run, resumed: 0x1F €")
    return [session.name, session.tokenizer.size, blake2b(repr(sample).encode(), digest_size=8).hexdigest()]


def accepted_of(facts: list[Fact], run: str) -> Body:
    """What a run was accepted with. Raises JournalError where that is missing."""
    if not facts or facts[0].kind != "accepted":
        raise JournalError(f"run {run!r} is damaged: its beginning is missing")
    return facts[0].body


def refuse_other_tokens(lm: "Runtime", run: str, accepted: Body) -> None:
    """Raises JournalError where the runtime's tokens mean something else."""
    if _tokens(lm) != accepted["tokens"]:
        theirs, ours = accepted["tokens"][0], lm._home.session.name
        raise JournalError(
            f"run {run!r} was begun with the model {theirs!r}, and its tokens mean nothing to {ours!r}: "
            "resume it with a runtime of its own model"
        )


def refuse_change(definition: Definition, values: Values, run: str, accepted: Body, changed: Changed) -> None:
    """Raises JournalError for a program that is not the one that the run began with.

    Where the change is accepted, `values` are read as far as they still fit.
    """
    if accepted["program"] != definition.name:
        raise JournalError(
            f"run {run!r} is one of the program {accepted['program']!r}, not of {definition.name!r}"
        )
    if fingerprint(definition, values.described()) == accepted["fingerprint"]:
        return
    if changed == "accept":
        values.follow(accepted["types"])
    else:
        raise JournalError(
            f"the program {definition.name!r} has changed since run {run!r} began (its nodes, ways, types, "
            "tools or system messages): resume it with the program that it began with, or with "
            "changed='accept' if what it has done so far still fits"
        )
