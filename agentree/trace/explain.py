"""What a recorded run came to, on its plan: the text of `Run.explain()`, made from its events alone."""

from collections.abc import Iterable

from agentree.events import Event, GenerationEnded, RunEnded, RunStarted
from agentree.graph.outline import actual, annotated, run_notes


def explain(events: Iterable[Event]) -> str:
    """Each run's plan with the tokens that every visit took, and each cache miss with its reason.

    Generations outside of programs, and those of runs whose beginning is missing, are listed by their paths.
    """
    plans: dict[str, str] = {}
    ends: dict[str, str] = {}
    made: dict[str, list[GenerationEnded]] = {}
    for event in events:
        match event:
            case RunStarted():
                plans[event.run] = event.plan or event.program
            case RunEnded():
                ends[event.run] = event.status + (f": {event.error}" if event.error else "")
            case GenerationEnded():
                made.setdefault(event.run, []).append(event)
            case _:
                pass
    parts: list[str] = []
    for run in {**plans, **made}:
        plan = plans.get(run, "")
        title = "outside of programs" if not run else f"run {run}, {ends.get(run, 'not over')}"
        record = made.get(run, [])
        listed = annotated(plan, run_notes(record)) if "\t" in plan else _listed(plan, record)
        parts.append(f"{title}\n{listed}")
    return "\n\n".join(parts)


def _listed(program: str, record: list[GenerationEnded]) -> str:
    lines = [program] if program else []
    lines += [f"   {line}" for event in record for line in actual(event, event.path or "-")]
    return "\n".join(lines)
