"""What a recorded run came to, on its plan: the text of `Run.explain()`, made from its events alone."""

from collections.abc import Iterable

from agentree.events import Event, GenerationEnded, RunEnded, RunStarted
from agentree.graph.outline import actual, annotated, run_notes
from agentree.trace.state import Picture
from agentree.trace.text import ending


def explain(events: Iterable[Event]) -> str:
    """Each run's plan with the tokens that every visit took, and each cache miss with its reason.

    In the order and with the numbers that views give to runs. Generations outside of programs, and those of
    runs whose beginning is missing, are listed by their paths.
    """
    picture = Picture()
    plans: dict[str, str] = {}
    ends: dict[str, str] = {}
    made: dict[str, list[GenerationEnded]] = {}
    for event in events:
        picture.feed((event,))
        match event:
            case RunStarted():
                plans[event.run] = event.plan or event.program
            case RunEnded():
                ends[event.run] = ending(event.status, event.error)
            case GenerationEnded():
                made.setdefault(event.run, []).append(event)
            case _:
                pass
    parts: list[str] = []
    for run, view in picture.runs.items():
        plan, record = plans.get(run, ""), made.get(run, [])
        if not plan and not record:
            continue
        number = "" if view.number == 1 else f"{view.number}:"
        title = f"run {run}, {ends.get(run, 'not over')}" if run else "transcripts"
        listed = annotated(plan, run_notes(plan, record)) if "\t" in plan else _listed(plan, record)
        parts.append(f"{number}{title}\n{listed}")
    return "\n\n".join(parts)


def _listed(program: str, record: list[GenerationEnded]) -> str:
    lines = [program] if program else []
    lines += [f"   {line}" for event in record for line in actual(event, event.path or "transcripts")]
    return "\n".join(lines)
