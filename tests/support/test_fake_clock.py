"""The fake clock wakes who is due, in order, and nobody else."""

import asyncio

import pytest

from tests.support.fake_clock import FakeClock, settle


async def test_sleepers_wake_in_order_each_at_its_own_time() -> None:
    """One advance wakes each when it is due, also who goes to sleep again; of equals, who slept first wakes first."""
    clock = FakeClock(monotonic=0.0)
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, *naps: float) -> None:
        for seconds in naps:
            await clock.sleep(seconds)
            woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as tasks:
        for name, naps in [("c", [3.0]), ("a", [1.0, 1.5]), ("b1", [2.0]), ("b2", [2.0])]:
            tasks.create_task(sleeper(name, *naps))
        await clock.advance(10)

    assert [("a", 1.0), ("b1", 2.0), ("b2", 2.0), ("a", 2.5), ("c", 3.0)] == woken
    assert 10.0 == clock.monotonic()


async def test_a_sleeper_wakes_at_its_deadline_and_not_before() -> None:
    """Tenths add up; a stall makes it late, a step of the wall clock does not; a cancelled one is forgotten."""
    clock = FakeClock(monotonic=0.0, wall=1_000_000.0)
    sleeper, late, cancelled = (asyncio.create_task(clock.sleep(seconds)) for seconds in (1.0, 2.0, 5.0))
    for _ in range(9):
        await clock.advance(0.1)
    clock.step_wall(-3600)
    await settle()
    assert (False, 3) == (sleeper.done(), clock.sleepers)

    await clock.advance(0.1)
    assert (True, 1.0, 996_401.0) == (sleeper.done(), clock.monotonic(), clock.wall())

    cancelled.cancel()
    clock.stall(30)
    await settle()
    assert (False, 1) == (late.done(), clock.sleepers)
    await clock.advance(0)
    assert (True, 31.0) == (late.done(), clock.monotonic())

    await clock.sleep(0)  # only yields
    with pytest.raises(ValueError, match=r"advance by -1 seconds"):
        await clock.advance(-1)
