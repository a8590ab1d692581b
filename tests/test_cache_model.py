"""The cache against a naive reference, driven by hypothesis. Long form: `python -m tests.soak_cache`."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.cache_driver import Driver

NUMBERS = st.integers(0, 80)


class CacheMachine(RuleBasedStateMachine):
    """Random match, publish, lock, lease, fork, finish, abort, failed steps and eviction."""

    driver: Driver

    @initialize(
        slots=st.sampled_from([8, 20, 60]), policy=st.sampled_from(["lru", "plan"]), share=st.integers(1, 4)
    )
    def begin(self, slots: int, policy: str, share: int) -> None:
        self.driver = Driver(slots, policy=policy, lease_budget=slots * share // 4)

    @rule(name=st.sampled_from(Driver.OPERATIONS), a=NUMBERS, b=NUMBERS, c=NUMBERS)
    def operate(self, name: str, a: int, b: int, c: int) -> None:
        getattr(self.driver, name)(a, b, c)

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "driver"):
            self.driver.compare()

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            while self.driver.requests:
                self.driver.abort(0, 0, 0)
            self.driver.compare()
            assert self.driver.cache.private == self.driver.cache.locked == 0


CacheMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestCache = CacheMachine.TestCase
