"""Every tick is on the schedule, and a late one knows how late it is."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_runtime.periodic import Periodic, next_tick
from tests.support.fake_clock import FakeClock, settle


@asynccontextmanager
async def running(clock: FakeClock, action: Callable[[float], Awaitable[None]]) -> AsyncIterator[None]:
    """A job of every ten seconds, cancelled at the end."""
    task = asyncio.create_task(Periodic(clock, 10.0, action).run())
    await settle()
    try:
        yield
    finally:
        task.cancel()
        await settle()
        assert task.cancelled()


class Ticks:
    """An action that notes when it was called and how late it was told to be, and may take its time."""

    def __init__(self, clock: FakeClock, *takes_seconds: float) -> None:
        self.seen: list[tuple[float, float]] = []
        self._clock = clock
        self._takes_seconds = list(takes_seconds)

    async def __call__(self, lateness_seconds: float) -> None:
        """Note the tick, then work for as long as the test said."""
        self.seen.append((self._clock.monotonic(), lateness_seconds))
        if self._takes_seconds:
            await self._clock.sleep(self._takes_seconds.pop(0))


async def test_ticks_come_on_a_fixed_schedule() -> None:
    """The first tick comes after one interval, the next ones at multiples of it, all of them on time."""
    clock = FakeClock(monotonic=0.0)
    ticks = Ticks(clock)

    async with running(clock, ticks):
        await clock.advance(35)

    assert [(10.0, 0.0), (20.0, 0.0), (30.0, 0.0)] == ticks.seen


async def test_time_spent_in_the_action_does_not_shift_the_schedule() -> None:
    """An action of 3 s is started every 10 s, not every 13 s."""
    clock = FakeClock(monotonic=0.0)
    ticks = Ticks(clock, 3.0, 3.0, 3.0)

    async with running(clock, ticks):
        await clock.advance(35)

    assert [(10.0, 0.0), (20.0, 0.0), (30.0, 0.0)] == ticks.seen


async def test_late_tick_says_how_late_and_stands_for_the_missed_ones() -> None:
    """A loop that stood still from 5 to 47 s ticks once, 37 s late, and is back on the schedule at 50 s."""
    clock = FakeClock(monotonic=0.0)
    ticks = Ticks(clock)

    async with running(clock, ticks):
        await clock.advance(5)
        clock.stall(42)
        await clock.advance(13)

    assert [(47.0, 37.0), (50.0, 0.0), (60.0, 0.0)] == ticks.seen


async def test_tick_that_is_exactly_one_interval_late_does_not_tick_twice() -> None:
    """When the late tick falls on a scheduled moment, that moment has been served."""
    clock = FakeClock(monotonic=0.0)
    ticks = Ticks(clock)

    async with running(clock, ticks):
        clock.stall(20)
        await clock.advance(10)

    assert [(20.0, 10.0), (30.0, 0.0)] == ticks.seen


async def test_slow_action_makes_the_next_tick_late_once() -> None:
    """An action that works from 10 to 35 s is followed at once by one tick, 15 s late, not by two."""
    clock = FakeClock(monotonic=0.0)
    ticks = Ticks(clock, 25.0)

    async with running(clock, ticks):
        await clock.advance(45)

    assert [(10.0, 0.0), (35.0, 15.0), (40.0, 0.0)] == ticks.seen


async def test_wall_clock_step_changes_nothing() -> None:
    """The schedule lives on the monotonic clock: an hour forward or back is not noticed."""
    clock = FakeClock(monotonic=0.0)
    ticks = Ticks(clock)

    async with running(clock, ticks):
        clock.step_wall(3600)
        await clock.advance(15)
        clock.step_wall(-7200)
        await clock.advance(10)

    assert [(10.0, 0.0), (20.0, 0.0)] == ticks.seen


async def test_exception_of_the_action_ends_the_job() -> None:
    """A bug in the action comes out of run(), and nothing ticks after it."""
    clock = FakeClock()

    async def fails(lateness_seconds: float) -> None:
        raise LookupError("broker-a")

    task = asyncio.create_task(Periodic(clock, 10.0, fails).run())
    await clock.advance(25)

    assert task.done()
    assert 0 == clock.sleepers
    with pytest.raises(LookupError, match="broker-a"):
        await task


async def test_cancellation_reaches_the_action() -> None:
    """A job that is cancelled in the middle of its action ends there."""
    clock = FakeClock()
    ticks = Ticks(clock, 5.0)

    async with running(clock, ticks):
        await clock.advance(12)
        assert 1 == clock.sleepers

    assert 0 == clock.sleepers
    assert 1 == len(ticks.seen)


class EarlyClock(FakeClock):
    """A clock whose timers fire a millisecond early, as a loop with coarse timers may."""

    async def sleep(self, seconds: float) -> None:
        """Return a millisecond before it is time."""
        await super().sleep(seconds - 0.001)


async def test_timer_that_fires_early_is_on_time_and_ticks_once() -> None:
    """A tick at 9.999 s is the tick of 10 s: not late by less than nothing, and not repeated at 10 s."""
    clock = EarlyClock(monotonic=0.0)
    ticks = Ticks(clock)

    async with running(clock, ticks):
        await clock.advance(25)

    assert [(9.999, 0.0), (19.999, 0.0)] == ticks.seen


@pytest.mark.parametrize("interval", [0.0, -1.0, float("nan")])
def test_interval_must_be_positive(interval: float) -> None:
    """An interval that is no interval is refused by value."""

    async def action(lateness_seconds: float) -> None: ...

    with pytest.raises(ValueError, match=rf"interval of {interval} seconds, must be more than 0"):
        Periodic(FakeClock(), interval, action)


@given(
    served=st.integers(1, 10**6),
    elapsed=st.floats(0, 10**8),
    interval=st.floats(0.01, 10**4),
)
def test_next_tick_is_the_first_one_still_to_come(served: int, elapsed: float, interval: float) -> None:
    """It is new, it lies in the future, and the one before it is served or past, whatever floats make of it."""
    tick = next_tick(served, elapsed, interval)

    assert tick > served
    assert tick * interval > elapsed
    assert tick == served + 1 or (tick - 1) * interval <= elapsed


def test_repr_says_how_often() -> None:
    """The job shows its interval."""

    async def action(lateness_seconds: float) -> None: ...

    assert "<Periodic [every 10.0 s]>" == repr(Periodic(FakeClock(), 10.0, action))
