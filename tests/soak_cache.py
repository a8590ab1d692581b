"""A million random operations on the cache beside its reference: `python -m tests.soak_cache [N] [SEED]`."""

import sys
import time
from random import Random

from tests.cache_driver import Driver

PER_CACHE = 1500
"""Operations on one cache before the next begins, with another pool, policy and budget."""


def soak(operations: int, seed: int) -> None:
    """Run so many operations; raises where cache and reference differ, naming the seed that shows it."""
    started = time.monotonic()
    done = 0
    while done < operations:
        random = Random(seed)
        slots = random.choice([6, 12, 24, 48])
        policy = random.choice(["lru", "plan"])
        driver = Driver(slots, policy=policy, lease_budget=slots * random.randint(1, 4) // 4)
        for step in range(PER_CACHE):
            name = random.choice(Driver.OPERATIONS)
            if len(driver.requests) > 8:
                name = random.choice(["finish", "abort"])
            try:
                getattr(driver, name)(*(random.randrange(81) for _ in range(3)))
                driver.compare()
            except BaseException:
                print(f"seed {seed}, step {step}, {name} on {slots} slots with policy {policy}", flush=True)
                raise
        while driver.requests:
            driver.abort(0, 0, 0)
        driver.compare()
        done += PER_CACHE
        seed += 1
        if seed % 20 == 0:
            print(f"{done:,} operations in {time.monotonic() - started:.0f} s", flush=True)
    print(f"{done:,} operations on the cache agree with the reference")


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    soak(given[0] if given else 1_000_000, given[1] if len(given) > 1 else 0)
