"""How many threads a step gets, on a clock that the test drives."""

import os
from collections.abc import Callable

import pytest
import torch

from agentree.errors import InvalidArgument
from agentree.runtime.model.threads import COLD, LARGE, LONGEST, PATIENCE, TINY, Threads, most_threads


class Machine:
    """A machine on which a step of one unit of work takes `cost(threads)` seconds."""

    def __init__(self, cost: Callable[[int], float]) -> None:
        self.cost = cost
        self.now = 0.0

    def run(self, threads: Threads, work: int, steps: int) -> list[int]:
        used: list[int] = []
        for _ in range(steps):
            with threads.running(work) as count:
                assert torch.get_num_threads() == count
                used.append(count)
                self.now += work * self.cost(count)
        return used


WORK = 4 * TINY


def shared_out(threads: int) -> float:
    return 1e-9 / threads


def contended(threads: int) -> float:
    return 1e-9 * threads


def test_idle_cores_are_used_and_given_back() -> None:
    before = torch.get_num_threads()
    machine = Machine(lambda count: 1e-9 / min(count, 4))
    used = machine.run(Threads(4, lambda: machine.now), WORK, 2000)
    assert used[-1] == 4
    assert used.count(4) > 0.9 * len(used)
    assert torch.get_num_threads() == before


def test_threads_are_given_back_after_a_failure() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), Threads(before + 1).running(WORK):
        raise ZeroDivisionError
    assert torch.get_num_threads() == before


def test_where_others_have_the_cores_one_thread_is_left_and_trials_become_rare() -> None:
    machine = Machine(lambda count: 1e-9 if count == 1 else 1e-8 * count)
    threads = Threads(8, lambda: machine.now)
    machine.run(threads, WORK, 200)
    used = machine.run(threads, WORK, 10_000)
    assert used.count(1) > 0.99 * len(used)


def test_a_cold_start_decides_nothing() -> None:
    steps = 0

    def cost(threads: int) -> float:
        nonlocal steps
        steps += 1
        return 1e-7 if steps <= COLD else shared_out(threads)

    machine = Machine(cost)
    used = machine.run(Threads(2, lambda: machine.now), WORK, PATIENCE)
    assert used.count(2) > 0.8 * len(used)
    assert used[-1] == 2


def test_a_machine_that_gets_idle_again_is_noticed() -> None:
    machine = Machine(lambda count: 1e-9 * count**2)
    threads = Threads(2, lambda: machine.now)
    assert machine.run(threads, WORK, 500)[-1] == 1
    machine.cost = shared_out
    assert machine.run(threads, WORK, LONGEST + 100)[-1] == 2


def test_each_size_of_step_has_a_number_of_its_own_and_tiny_ones_have_one_thread() -> None:
    machine = Machine(lambda count: 1e-9 / count)
    threads = Threads(2, lambda: machine.now)
    assert set(machine.run(threads, TINY - 1, 50)) == {1}
    assert machine.run(threads, LARGE, 1) == [2]
    machine.cost = contended
    assert machine.run(threads, WORK, 200)[-1] == 1
    assert machine.run(threads, LARGE, 1) == [2]


def test_a_large_step_is_not_wasted_on_a_trial_soon() -> None:
    machine = Machine(shared_out)
    threads = Threads(4, lambda: machine.now)
    assert set(machine.run(threads, LARGE, PATIENCE)) == {4}
    # One step is enough to see that half the threads take twice as long.
    assert machine.run(threads, LARGE, PATIENCE).count(2) == 1


def test_a_new_size_begins_with_what_serves_its_neighbour() -> None:
    machine = Machine(contended)
    threads = Threads(2, lambda: machine.now)
    machine.run(threads, WORK, 100)
    assert set(machine.run(threads, 2 * WORK, PATIENCE)) == {1}


def test_one_core_is_never_divided() -> None:
    machine = Machine(lambda count: 1e-9)
    assert set(machine.run(Threads(1, lambda: machine.now), WORK, 300)) == {1}


def test_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTREE_THREADS", "1")
    assert most_threads() == 1
    # Threads without cores would only wait for each other.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    monkeypatch.setenv("AGENTREE_THREADS", "1000")
    assert 1 <= most_threads() <= cores
    monkeypatch.setenv("AGENTREE_THREADS", "")
    assert 1 <= most_threads() <= torch.get_num_threads()
    for wrong in ("0", "-1", "two", "1.5", "99999"):
        monkeypatch.setenv("AGENTREE_THREADS", wrong)
        with pytest.raises(InvalidArgument, match="AGENTREE_THREADS"):
            most_threads()
