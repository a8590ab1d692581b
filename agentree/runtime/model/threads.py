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
LARGE = 64_000_000
"""Multiplications per layer from which on a trial costs too much to begin with one."""
TRIAL = 4
"""Steps in a row that another number of threads is tried for."""
PATIENCE = 48
"""Steps between two trials at first; each trial that fails doubles it."""
LONGEST = 3072
"""Most steps between two trials."""
GAIN = 0.9
"""A trial wins if its steps take less than so much of the time."""
LOSS = 1.5
"""A single step that takes so many times as long ends a trial: enough was seen."""
WAKING = 0.02
"""Seconds below which the first step of a trial may be slow only because it wakes threads."""
COLD = 3
"""First steps of a size that tell nothing: memory is touched for the first time, threads are made."""
MEMORY = 8
"""Steps that the time of the present number is an average of."""


def most_threads() -> int:
    """`AGENTREE_THREADS`, or what torch would use, no more than the cores that may be used at once.

    Threads beyond those make every step wait for the scheduler, a hundred times as long for small models.

    Raises:
        InvalidArgument: the variable is set to something else than a positive number.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if text:
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1024:
            raise InvalidArgument(f"{VARIABLE}={text!r} must be a number of threads, 1 to 1024; or unset it")
        return min(int(text), _cores())
    return max(1, min(torch.get_num_threads(), _cores()))


def _cores() -> int:
    """Cores that this process may use at once."""
    usable = getattr(os, "sched_getaffinity", None)
    return max(1, min((os.cpu_count() or 1) if usable is None else len(usable(0)), _quota()))


def _quota() -> int:
    """Cores that the control group may use at once, rounded up; many where there is no limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError, UnicodeDecodeError, ZeroDivisionError):
        return 1 << 16


class _Choice:
    """The number of threads for steps of one size, by hill climbing over `counts`."""

    def __init__(self, counts: Sequence[int], at: int, until: int) -> None:
        self.at = at
        self.judged = False
        """Whether a trial has ended."""
        self._counts = counts
        self._mean: float | None = None
        self._cold = COLD
        self._trying = 0
        """-1 or 1: the neighbour of `at` that is on trial; 0: none."""
        self._next = -1 if at else 1
        self._trial: list[float] = []
        self._patience = PATIENCE
        self._until = until

    @property
    def threads(self) -> int:
        """For the next step."""
        return self._counts[self.at + self._trying]

    def took(self, seconds: float, work: int) -> None:
        """A step of `work` on `threads` threads took so long."""
        if self._cold:
            self._cold -= 1
            return
        rate = seconds / work
        if self._mean is None or not self._trying:
            self._mean = rate if self._mean is None else self._mean + (rate - self._mean) / MEMORY
            self._until -= 1
            if self._until <= 0:
                self._trying, self._trial = self._next, []
            return
        self._trial.append(rate)
        waking = len(self._trial) == 1 and seconds < WAKING
        if len(self._trial) > TRIAL or rate > self._mean * (8 if waking else LOSS):
            self._judge(self._mean)

    def _judge(self, mean: float) -> None:
        # The first step wakes threads, or finds caches laid out for others.
        found = self._trial[1:] or self._trial
        average = sum(found) / len(found)
        if self._trial[-1] <= LOSS * mean and average < GAIN * mean:
            self.at += self._trying
            self._mean, self._patience = average, PATIENCE
            direction = self._trying
        else:
            self._patience = min(2 * self._patience, LONGEST)
            direction = -self._trying
        self._trying, self.judged = 0, True
        self._next = direction if 0 <= self.at + direction < len(self._counts) else -direction
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
        choice = self._choice(work)
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
            choice.took(took, work)

    def _choice(self, work: int) -> _Choice | None:
        """A new size begins with what serves the nearest one, and soon with a trial if there was none yet."""
        if work < TINY or len(self._counts) == 1:
            return None
        size = work.bit_length()
        if size not in self._choices:
            nearest = min(self._choices, key=lambda other: abs(other - size), default=None)
            at = len(self._counts) - 1 if nearest is None else self._choices[nearest].at
            soon = work < LARGE and not any(choice.judged for choice in self._choices.values())
            self._choices[size] = _Choice(self._counts, at, TRIAL if soon else PATIENCE)
        return self._choices[size]
