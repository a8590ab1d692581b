"""Engines that are servers with chat completions over HTTP."""

import asyncio
import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Any, Literal

from benchmarks.remote import STARTED, Remote
from benchmarks.talk import Reply, Want

AT_ONCE = 128
"""Requests in flight."""
Dialect = Literal["vllm", "llama.cpp"]


@dataclass
class Http(Remote):
    """A server with chat completions, on loopback."""

    dialect: Dialect = "vllm"
    port: int = 0
    _process: "subprocess.Popen[bytes] | None" = None
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(AT_ONCE))

    async def start(self) -> None:
        """See `Remote`."""
        self._process = await asyncio.to_thread(self._launch)
        self.pid = self._process.pid
        began = time.monotonic()
        while time.monotonic() - began < STARTED:
            if self._process.poll() is not None:
                raise self.failed(f"it ended with {self._process.returncode}")
            if await asyncio.to_thread(self._up):
                return
            await asyncio.sleep(0.5)
        raise self.failed(f"it did not come up within {STARTED:.0f} s")

    def _launch(self) -> "subprocess.Popen[bytes]":
        with self.log.open("wb") as log:
            return subprocess.Popen(
                self.command,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _up(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    async def stop(self) -> None:
        """See `Remote`."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        process, self._process = self._process, None
        if process is None:
            return
        self.resume()
        for number, patience in ((signal.SIGINT, 30), (signal.SIGKILL, 30)):
            self.send(number)
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, patience)
                return

    async def answer(self, messages: list[dict[str, str]], want: Want) -> Reply:
        """See `Remote`."""
        body = {"messages": messages, "max_tokens": want.tokens, "temperature": 0, **self._special(want)}
        if want.watched:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._ask, json.dumps(body).encode())

    def _special(self, want: Want) -> dict[str, Any]:
        """What each server calls the things that the protocol has no name for."""
        special: dict[str, Any] = {"ignore_eos": True} if want.exact else {}
        if self.dialect == "llama.cpp":
            special["cache_prompt"] = True
        if want.schema:
            named = {"name": "reply", "schema": want.schema, "strict": True}
            special["response_format"] = {"type": "json_schema", "json_schema": named}
        if want.choices and self.dialect == "vllm":
            special["structured_outputs"] = {"choice": list(want.choices)}
        elif want.choices:
            special["grammar"] = "root ::= " + " | ".join(json.dumps(one) for one in want.choices)
        return special

    def _ask(self, body: bytes) -> Reply:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=STARTED)
        began = time.perf_counter()
        first: float | None = None
        text: list[str] = []
        told: dict[str, Any] = {}
        try:
            connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise self.failed(f"{response.status}: {response.read(500)!r}")
            for line in response:
                # A whole answer is one line of JSON, a stream is lines of events.
                event = line.removeprefix(b"data:").strip()
                if not event or event == b"[DONE]":
                    continue
                said: dict[str, Any] = json.loads(event)
                if "error" in said:
                    raise self.failed(said["error"])
                choices: list[dict[str, Any]] = said.get("choices") or []
                for choice in choices:
                    message: dict[str, Any] = choice.get("message") or choice.get("delta") or {}
                    if piece := message.get("content"):
                        first = first or time.perf_counter()
                        text.append(piece)
                if said.get("usage"):
                    told = said
        except (OSError, HTTPException, ValueError) as error:
            raise self.failed(repr(error)) from error
        finally:
            connection.close()
        usage: dict[str, Any] = told.get("usage") or {}
        details: dict[str, Any] = usage.get("prompt_tokens_details") or {}
        timings: dict[str, Any] = told.get("timings") or {}
        cached = details.get("cached_tokens", timings.get("cache_n"))
        return Reply(
            "".join(text),
            usage.get("prompt_tokens", 0),
            usage.get("completion_tokens", 0),
            began,
            time.perf_counter(),
            first if b'"stream": true' in body else None,
            cached,
        )
