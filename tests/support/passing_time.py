"""Lets a fake clock run until a condition holds."""

from collections.abc import Callable
from typing import Final

from tests.support.fake_clock import FakeClock, settle

# small against every deadline that is waited for
STEP_SECONDS: Final = 0.1


async def passing(clock: FakeClock, condition: Callable[[], object], *, at_most: float = 60.0) -> float:
    """Let time pass until something is so; how much that was.

    Raises:
        AssertionError: that much was not enough.
    """
    began = clock.monotonic()
    await settle()
    while not condition():
        passed = clock.monotonic() - began
        assert passed <= at_most, f"not so after {passed:g} s"
        await clock.advance(STEP_SECONDS)
    return clock.monotonic() - began
