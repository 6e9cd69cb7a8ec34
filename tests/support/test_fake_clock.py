"""The fake clock wakes who is due, in order, and nobody else."""

import asyncio

import pytest

from tests.support.fake_clock import FakeClock, settle


async def test_nobody_wakes_before_the_deadline() -> None:
    """A sleeper of 120 s still sleeps after 119.9 s and is awake after 0.1 s more."""
    clock = FakeClock()
    sleeper = asyncio.create_task(clock.sleep(120))

    await clock.advance(119.9)
    assert not sleeper.done()

    await clock.advance(0.1)
    assert sleeper.done()


async def test_sleepers_wake_in_the_order_of_their_deadlines_at_their_own_time() -> None:
    """One advance over three deadlines wakes each when it is due; of equals, who went to sleep first wakes first."""
    clock = FakeClock(monotonic=0.0)
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as tasks:
        for name, seconds in [("c", 3.0), ("a", 1.0), ("b1", 2.0), ("b2", 2.0)]:
            tasks.create_task(sleeper(name, seconds))
        await clock.advance(10)

    assert [("a", 1.0), ("b1", 2.0), ("b2", 2.0), ("c", 3.0)] == woken
    assert 10.0 == clock.monotonic()


async def test_woken_task_may_sleep_again_within_the_same_advance() -> None:
    """A task that sleeps one second five times is done after one advance of five seconds."""
    clock = FakeClock(monotonic=0.0)
    woken: list[float] = []

    async def sleeper() -> None:
        for _ in range(5):
            await clock.sleep(1)
            woken.append(clock.monotonic())

    task = asyncio.create_task(sleeper())
    await clock.advance(5)

    assert task.done()
    assert [1.0, 2.0, 3.0, 4.0, 5.0] == woken


async def test_tenths_add_up() -> None:
    """Ten times 0.1 s is exactly one second, which it is not in floats."""
    clock = FakeClock(monotonic=0.0)
    for _ in range(10):
        await clock.advance(0.1)

    assert 1.0 == clock.monotonic()


async def test_stalled_sleepers_wake_late() -> None:
    """While the loop is stalled nobody wakes; the first advance after it, of no time at all, wakes them late."""
    clock = FakeClock(monotonic=0.0)
    task = asyncio.create_task(clock.sleep(1))
    await settle()

    clock.stall(30)
    await settle()
    assert not task.done()

    await clock.advance(0)
    assert task.done()
    assert 30.0 == clock.monotonic()


async def test_wall_clock_steps_alone() -> None:
    """A step of the wall clock wakes nobody and leaves the monotonic clock alone; an advance moves both."""
    clock = FakeClock(monotonic=0.0, wall=1_000_000.0)
    task = asyncio.create_task(clock.sleep(10))
    await settle()

    clock.step_wall(-3600)
    assert 0.0 == clock.monotonic()
    assert 996_400.0 == clock.wall()

    await clock.advance(9)
    assert not task.done()
    assert 996_409.0 == clock.wall()
    await clock.advance(1)
    assert task.done()


async def test_cancelled_sleeper_is_forgotten() -> None:
    """A cancelled sleeper is not counted and does not disturb the next advance."""
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(5))
    await settle()
    assert 1 == clock.sleepers

    task.cancel()
    await settle()
    assert 0 == clock.sleepers
    await clock.advance(10)
    assert task.cancelled()


async def test_sleep_of_nothing_only_yields() -> None:
    """A sleep of no time returns without anybody advancing the clock."""
    clock = FakeClock()
    await clock.sleep(0)
    await clock.sleep(-1)

    assert 0 == clock.sleepers


async def test_time_never_goes_back() -> None:
    """Advancing by a negative time is refused by value."""
    with pytest.raises(ValueError, match=r"advance by -1 seconds"):
        await FakeClock().advance(-1)


async def test_repr_shows_time_and_sleepers() -> None:
    """A failing assert says what time it was and how many slept."""
    assert "<FakeClock [2.5 s | 0 sleeping]>" == repr(FakeClock(monotonic=2.5))
