"""A way to look into a running engine from another process: what `agentree top` reads.

Each open runtime has a Unix-domain socket in the cache folder, for its own user only. Whoever connects gets
one JSON object and nothing else: names and sizes, no text of any transcript. AGENTREE_NO_TOP=1 turns it off.
"""

import contextlib
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from agentree.errors import AgentreeError, RuntimeClosed

PATIENCE = 2.0
"""Seconds that a reader, and that an engine, may take."""
STALE = 60.0
"""Seconds after which a socket that nobody answers is removed."""

_numbers = itertools.count(1)


class Shows(Protocol):
    """An engine that can be looked into."""

    def snapshot(self, reply: Callable[[dict[str, Any]], None]) -> None: ...


def folder() -> Path:
    """Where the sockets of open runtimes are."""
    from agentree.runtime.model.store import home

    return home() / "run"


class Monitor:
    """Answers on a socket until it is closed. Never holds up the engine."""

    def __init__(self, engine: Shows, about: dict[str, Any], *, patience: float = PATIENCE) -> None:
        """`about` is told with every snapshot. Raises OSError where there can be no socket.

        A reader, and the engine, may take `patience` seconds each; the next reader waits as long.
        """
        place = folder()
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o700)
        _sweep(place)
        self.path = place / f"{os.getpid()}-{next(_numbers)}.sock"
        self._engine = engine
        self._about = about | {"pid": os.getpid(), "since": time.time()}
        self._owner = os.getpid()
        self._patience = patience
        self._closed = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.path.unlink(missing_ok=True)
            self._socket.bind(str(self.path))
            self.path.chmod(0o600)
            self._socket.listen(8)
        except OSError:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._serve, name="agentree-monitor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering and remove the socket."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() == self._owner:  # not in a forked child, which shares the file but not the thread
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
                knock.settimeout(PATIENCE)
                knock.connect(str(self.path))  # wakes the thread, which closing its socket may not
            self.path.unlink(missing_ok=True)
            self._thread.join(PATIENCE)
            self._socket.close()

    def _serve(self) -> None:
        while not self._closed:
            try:
                reader, _ = self._socket.accept()
            except OSError:
                return
            with reader, contextlib.suppress(OSError, RuntimeClosed):
                if self._closed:
                    return
                reader.settimeout(self._patience)
                reader.sendall(json.dumps(self._look()).encode())

    def _look(self) -> dict[str, Any]:
        seen: list[dict[str, Any]] = []
        there = threading.Event()

        def reply(snapshot: dict[str, Any]) -> None:
            seen.append(snapshot)
            there.set()

        self._engine.snapshot(reply)
        there.wait(self._patience)
        # In a step longer than that, what is known of the runtime itself is all there is to say.
        return self._about | (seen[0] if seen else {"busy": True})


def open_monitor(engine: Shows, about: dict[str, Any]) -> Monitor | None:
    """A monitor, or None where it is turned off or can't be: a runtime works without one."""
    if os.environ.get("AGENTREE_NO_TOP") == "1" or not hasattr(socket, "AF_UNIX"):
        return None
    with contextlib.suppress(OSError):
        return Monitor(engine, about)
    return None


def running(pid: int | None = None) -> Iterator[dict[str, Any]]:
    """What each runtime of this user tells, or those of one process; stale sockets are passed over."""
    pattern = "*.sock" if pid is None else f"{pid}-*.sock"
    for path in sorted(folder().glob(pattern)):
        with contextlib.suppress(OSError, ValueError):
            yield look(path)


def look(path: Path, *, patience: float = 2 * PATIENCE) -> dict[str, Any]:
    """One snapshot from a socket; `patience` in seconds between two pieces of it.

    Raises:
        OSError: Nobody answers.
        ValueError: The answer is cut short, or not one.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(patience)
        connection.connect(str(path))
        data = b""
        while piece := connection.recv(1 << 16):
            data += piece
    told: Any = json.loads(data)
    if not isinstance(told, dict):
        raise AgentreeError(f"{path} does not answer like a runtime of this version")
    return told  # pyright: ignore[reportUnknownVariableType]


def _sweep(place: Path) -> None:
    """Remove what processes left behind that ended without closing: nobody listens there any more."""
    for path in place.glob("*.sock"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime < STALE:
                continue
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(PATIENCE)
                try:
                    connection.connect(str(path))
                except ConnectionRefusedError:
                    path.unlink()
