"""How many CPU threads a forward pass uses."""

from collections.abc import Generator
from contextlib import contextmanager

import torch

SMALL = 8_000_000
"""Multiplications per layer below which a second thread gains less than waiting for it can cost."""


@contextmanager
def threads_for(work: int) -> Generator[None]:
    """Run the block on one thread if a layer of it does less than SMALL multiplications.

    A decode step of a small model is a hundred parallel regions of some 50 microseconds. On an idle machine
    more threads win a quarter of that; where another process has a core, every region waits for the
    scheduler, and the step takes ten times as long.
    """
    before = torch.get_num_threads()
    if before == 1 or work >= SMALL:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
