"""How many CPU threads a forward pass uses: measured while it works, for each size of step.

A step is some hundred parallel regions of 20 to 500 microseconds. Where cores are idle every thread helps;
where another process has a core, each region waits for the scheduler and the step takes many times as long.
Which of the two holds changes from minute to minute, so a fixed number is wrong somewhere.
"""

import math
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from agentree.errors import InvalidArgument

VARIABLE = "AGENTREE_THREADS"
TINY = 1_000_000
"""Multiplications per layer below which a second thread can't pay for waking it."""
TRIAL = 4
"""Steps in a row that another number of threads is tried for."""
PATIENCE = 48
"""Steps between two trials at first; each trial that fails doubles it."""
LONGEST = 3072
"""Most steps between two trials."""
GAIN = 0.9
"""A trial wins if its steps take less than so much of the time."""
MEMORY = 8
"""Steps that the time of the present number is an average of."""


def most_threads() -> int:
    """`AGENTREE_THREADS`, or what torch would use, no more than the control group lets run at once.

    Raises:
        InvalidArgument: the variable is set to something else than a positive number.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if text:
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1024:
            raise InvalidArgument(f"{VARIABLE}={text!r} must be a number of threads, 1 to 1024; or unset it")
        return int(text)
    return max(1, min(torch.get_num_threads(), _quota()))


def _quota() -> int:
    """Cores that the control group may use at once, rounded up; many where there is no limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError, UnicodeDecodeError, ZeroDivisionError):
        return 1 << 16


class _Choice:
    """The number of threads for steps of one size, by hill climbing over `counts`."""

    def __init__(self, counts: Sequence[int], at: int) -> None:
        self._counts = counts
        self._at = at
        self._mean: float | None = None
        self._trying = 0
        """-1 or 1: the neighbour of `at` that is on trial; 0: none."""
        self._next = -1 if at else 1
        self._trial: list[float] = []
        self._patience = PATIENCE
        self._until = TRIAL

    @property
    def threads(self) -> int:
        """For the next step."""
        return self._counts[self._at + self._trying]

    def took(self, seconds: float) -> None:
        """A step on `threads` threads took so long per unit of work."""
        if not self._trying:
            self._mean = seconds if self._mean is None else self._mean + (seconds - self._mean) / MEMORY
            self._until -= 1
            if not self._until:
                self._trying, self._trial = self._next, []
            return
        self._trial.append(seconds)
        assert self._mean is not None
        # The first step wakes threads, or finds caches laid out for others. One that takes far too long
        # has shown enough.
        if len(self._trial) > 1 and seconds < 4 * self._mean and len(self._trial) <= TRIAL:
            return
        if len(self._trial) == 1 and seconds < 8 * self._mean:
            return
        self._judge(self._mean)

    def _judge(self, mean: float) -> None:
        found = self._trial[1:] or self._trial
        average = sum(found) / len(found)
        if average < GAIN * mean:
            self._at += self._trying
            self._mean, self._patience = average, PATIENCE
            direction = self._trying
        else:
            self._patience = min(2 * self._patience, LONGEST)
            direction = -self._trying
        self._trying = 0
        self._next = direction if 0 <= self._at + direction < len(self._counts) else -direction
        self._until = self._patience


class Threads:
    """Sets torch's threads for the steps of one model. For one thread at a time.

    Args:
        most: never use more.
        clock: seconds.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._counts = sorted({most, *(1 << i for i in range(most.bit_length()) if 1 << i < most)})
        self._clock = clock
        self._choices: dict[int, _Choice] = {}

    @contextmanager
    def running(self, work: int) -> Generator[int]:
        """Run a step of `work` multiplications per layer on the threads that serve such steps best."""
        size = work.bit_length()
        choice = self._choices.get(size)
        if choice is None and work >= TINY and len(self._counts) > 1:
            choice = self._choices[size] = _Choice(self._counts, len(self._counts) - 1)
        threads = self._counts[0] if choice is None else choice.threads
        before = torch.get_num_threads()
        if before != threads:
            torch.set_num_threads(threads)
        began = self._clock()
        try:
            yield threads
        finally:
            took = self._clock() - began
            if before != threads:
                torch.set_num_threads(before)
        if choice is not None:
            choice.took(took / work)
