"""An engine behind a pipe: requests and answers are lines of JSON."""

import asyncio
import itertools
import json
import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.remote import STARTED, Remote
from benchmarks.talk import Reply, Want


@dataclass
class Pipe(Remote):
    """A worker that reads requests and writes answers as lines of JSON: `openvino_worker.py`."""

    _process: "asyncio.subprocess.Process | None" = None
    _reading: "asyncio.Task[None] | None" = None
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _waiting: dict[int, "asyncio.Future[dict[str, Any]]"] = field(
        default_factory=dict[int, "asyncio.Future[dict[str, Any]]"]
    )
    _firsts: dict[int, float] = field(default_factory=dict[int, float])

    async def start(self) -> None:
        """See `Remote`."""
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                env={**os.environ, **self.environment},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=1 << 22,
                start_new_session=True,
            )
        self.pid = self._process.pid
        ready = self._waiting[-1] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait_for(ready, STARTED)
        except TimeoutError as error:
            raise self.failed(f"it did not come up within {STARTED:.0f} s") from error

    async def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        while line := await self._process.stdout.readline():
            said: dict[str, Any] = json.loads(line)
            if said.get("first"):
                self._firsts[said["id"]] = time.perf_counter()
            elif (waiting := self._waiting.pop(said["id"], None)) is not None:
                waiting.set_result(said)
        for waiting in self._waiting.values():
            waiting.set_exception(self.failed("it ended"))
        self._waiting.clear()

    async def stop(self) -> None:
        """See `Remote`."""
        process, self._process = self._process, None
        if process is None:
            return
        self.resume()
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 30)
        except TimeoutError:
            self.send(signal.SIGKILL)
            await process.wait()

    async def answer(self, messages: list[dict[str, str]], want: Want) -> Reply:
        """See `Remote`."""
        stdin = self._process.stdin if self._process is not None else None
        if stdin is None or self._reading is None or self._reading.done():
            raise self.failed("it is not running")
        number, began = next(self._numbers), time.perf_counter()
        asked = {
            "id": number,
            "messages": messages,
            "tokens": want.tokens,
            "exact": want.exact,
            "schema": want.schema,
            "choices": want.choices,
        }
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        stdin.write(json.dumps(asked).encode() + b"\n")
        said = await waiting
        first = self._firsts.pop(number, None) if want.watched else None
        return Reply(said["text"], said["prompt"], said["output"], began, time.perf_counter(), first)
