"""Recorded-looking event streams for the tests of the trace: numbered and dated as a bus does it."""

from collections.abc import Iterable
from dataclasses import replace

from agentree import events as ev


def dated(events: Iterable[ev.Event], *, start: float = 1000.0, step: float = 0.1) -> list[ev.Event]:
    """The events with sequence numbers from 1 and a time each."""
    return [replace(event, seq=i + 1, time=start + i * step) for i, event in enumerate(events)]


def generation(
    run: str,
    path: str,
    request: int,
    cached: int,
    computed: int,
    forced: int,
    sampled: int,
    text: str,
    miss: str = "",
) -> list[ev.Event]:
    """A generation's events, its text in pieces of five characters."""
    prompt = cached + computed
    pieces = [text[i : i + 5] for i in range(0, len(text), 5)]
    return [
        ev.GenerationStarted(run=run, path=path, request=request, prompt_tokens=prompt),
        *(ev.TextGenerated(run=run, path=path, request=request, text=piece) for piece in pieces),
        ev.GenerationEnded(
            run=run,
            path=path,
            request=request,
            prompt_tokens=prompt,
            cached_tokens=cached,
            computed_tokens=computed,
            sampled_tokens=sampled,
            forced_tokens=forced,
            forward_passes=sampled,
            text=text,
            finish="stop",
            seconds=0.5,
            miss=miss,
        ),
    ]


def pool(done: int, running: int = 1) -> ev.PoolState:
    """The pool's state after some steps."""
    return ev.PoolState(
        pool=8192,
        free=8192 - 400 - 10 * done,
        private=40,
        tree=360 + 10 * done,
        leased=300,
        lookup_tokens=500 + 10 * done,
        hit_tokens=400 + 10 * done,
        computed_tokens=100,
        sampled_tokens=done,
        forced_tokens=2 * done,
        forward_passes=done,
        running=running,
        waiting=0,
    )


def react_run(run: str = "r1", question: str = "What is 17*23?") -> list[ev.Event]:
    """A ReAct run: load, think, calculate, think again, done."""
    call = '{"name": "calculator", "arguments": {"expression": "17*23"}}'
    final = '{"name": "final_answer", "arguments": {"answer": "391"}}'
    arguments = '{"expression": "17*23"}'
    model = "smollm2-135m-instruct"
    return dated(
        [
            *(
                ev.ModelLoading(model=model, stage="load", done=i, total=272, unit="tensors")
                for i in (0, 90, 272)
            ),
            ev.ModelReady(model=model, device="cpu", weights="fp16", pool=8192, seconds=1.9),
            ev.RunStarted(run=run, program="react", input=question),
            ev.NodeStarted(run=run, path="ask", node="ask", kind="step"),
            ev.NodeEnded(run=run, path="ask", node="ask"),
            ev.NodeStarted(run=run, path="think", node="think", kind="llm"),
            *generation(run, "think", 1, 0, 312, 24, 9, call, miss="never seen"),
            pool(9),
            ev.NodeEnded(run=run, path="think", node="think"),
            ev.NodeStarted(run=run, path="act", node="act", kind="tools"),
            ev.ToolStarted(run=run, path="act", call="c1", tool="calculator", arguments=arguments),
            ev.ToolEnded(
                run=run, path="act", call="c1", tool="calculator", content="391", error=False, seconds=0.0004
            ),
            ev.NodeEnded(run=run, path="act", node="act"),
            ev.NodeStarted(run=run, path="think#2", node="think", kind="llm"),
            *generation(run, "think#2", 2, 344, 21, 22, 8, final),
            pool(17, running=0),
            ev.NodeEnded(run=run, path="think#2", node="think"),
            ev.RunEnded(run=run, output="391"),
        ]
    )


def forked_run(run: str = "r2", width: int = 5) -> list[ev.Event]:
    """A map over `width` branches that write side by side, under pressure, one of them failing."""
    head: list[ev.Event] = [
        ev.RunStarted(run=run, program="research", input="Why is the sky [red] in the evening?\x1b[31m\n"),
        *generation(run, "plan", 10, 120, 64, 18, 25, '{"questions": ["What scatters light?", "Why red?"]}'),
        ev.Forked(run=run, path="answer", n=width, shared_tokens=227),
    ]
    each = [
        generation(
            run, f"answer[{i}]", 20 + i, 227, 14 + i, 11, 16 + 3 * i, f"[bold]Light \x1b]0;x\x07 {i} " * 6
        )
        for i in range(width)
    ]
    mixed = [event for turn in zip(*each, strict=False) for event in turn]
    return dated(
        [
            *head,
            *mixed,
            ev.Evicted(run=run, path="answer[3]", tokens=120),
            ev.LeaseRevoked(run=run, path="answer[3]", owner="plan", tokens=64),
            ev.ToolStarted(
                run=run, path="answer[1]/act", call="c1", tool="search_files", arguments='{"query": "sky"}'
            ),
            ev.ToolEnded(
                run=run,
                path="answer[1]/act",
                call="c1",
                tool="search_files",
                content="no such folder: [red]docs[/red]",
                error=True,
                seconds=1.25,
            ),
            *[each[i][-1] for i in range(width) if each[i][-1] not in mixed],
        ]
    )
