"""What a process and its children use, read from /proc: CPU seconds and resident memory. Linux only."""

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
INTERVAL = 0.2
"""Seconds between two looks at the memory."""


@dataclass(frozen=True)
class Used:
    """Of one process tree in one stretch of time."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds, user and system, of all threads."""
    peak: int
    """Bytes that were resident at most, in all processes together."""


def _tree(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:
                continue
    return found


def _read(pid: int, name: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/{name}").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_seconds(pid: int) -> float:
    """CPU time so far of a process and those children that are alive."""
    stats = [_read(one, "stat") for one in _tree(pid)]
    return sum(int(s[11]) + int(s[12]) for s in stats if s) / _TICKS


def resident(pid: int) -> int:
    """Bytes of memory that a process and its children hold now."""
    sizes = [_read(one, "statm") for one in _tree(pid)]
    return sum(int(s[1]) for s in sizes if s) * _PAGE


class Meter:
    """Measures one process tree while a block runs; `used` tells afterwards."""

    def __init__(self, pid: int | None = None) -> None:
        self._pid = pid or os.getpid()
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._peak = 0
        self.used = Used(0.0, 0.0, 0)

    def _look(self) -> None:
        while True:
            self._peak = max(self._peak, resident(self._pid))
            if self._over.wait(INTERVAL):
                return

    def __enter__(self) -> Self:
        """Begin."""
        self._watch.start()
        self._cpu, self._began = cpu_seconds(self._pid), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        wall = time.perf_counter() - self._began
        cpu = cpu_seconds(self._pid) - self._cpu
        self._over.set()
        self._watch.join()
        self.used = Used(wall, cpu, self._peak)
