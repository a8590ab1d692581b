"""A runtime that says again what a recorded run said."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from agentree.testing.runtime import ScriptedRuntime
from agentree.testing.script import ScriptedRequest, ScriptError


class ReplayRuntime(ScriptedRuntime):
    """Answers from a recorded trace (`agentree run --trace FILE`): for each task path what was said there.

    The graph may have changed as long as the paths that it visits are in the record.
    """

    def __init__(self, trace: str | Path, *, run: str | None = None, model: str | Path | None = None) -> None:
        """Read a trace.

        Args:
            trace: A file with one event as JSON on each line.
            run: Id of the run to replay; None: the first in the file.
            model: As in `ScriptedRuntime`.

        Raises:
            ScriptError: The file has no such run.
        """
        recorded = _recorded(_events(Path(trace)), run)
        if not recorded:
            raise ScriptError(f"{trace} records no generation of {'any run' if run is None else repr(run)}")
        taken: dict[str, int] = {}

        def answer(request: ScriptedRequest) -> str:
            texts = recorded.get(request.path, [])
            at = taken.get(request.path, 0)
            if at >= len(texts):
                raise ScriptError(
                    f"{trace} records {len(texts)} generations at {request.path!r}, and one more is asked for"
                )
            taken[request.path] = at + 1
            return texts[at]

        super().__init__(answer, model=model)


def _events(path: Path) -> Iterable[Mapping[str, Any]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            event: object = json.loads(line)
        except ValueError as error:
            raise ScriptError(f"{path}, line {number} is no JSON: {error}") from error
        if isinstance(event, dict):
            yield cast("Mapping[str, Any]", event)


def _recorded(events: Iterable[Mapping[str, Any]], run: str | None) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for event in events:
        if event.get("event") != "GenerationEnded" or event.get("finish") not in ("stop", "length"):
            continue
        if run is None:
            run = str(event.get("run", ""))
        if event.get("run", "") == run:
            texts.setdefault(str(event.get("path", "")), []).append(str(event.get("text", "")))
    return texts
