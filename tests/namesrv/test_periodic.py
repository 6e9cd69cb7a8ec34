"""Periodic jobs: a fixed schedule, and ticks that know their lateness."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv.periodic import Periodic, next_tick
from tests.support.fake_clock import FakeClock, settle


class EarlyClock(FakeClock):
    """A clock whose timers fire a millisecond early, like a coarse timer of a loop."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds - 0.001)


async def ticks_of(
    clock: FakeClock, *steps: float | str, takes_seconds: tuple[float, ...] = ()
) -> list[tuple[float, float]]:
    """Ticks of a 10 s job during these steps of the clock; steps after "stall" block the loop."""
    seen: list[tuple[float, float]] = []
    durations = list(takes_seconds)

    async def action(lateness_seconds: float) -> None:
        seen.append((clock.monotonic(), lateness_seconds))
        if durations:
            await clock.sleep(durations.pop(0))

    job = Periodic(clock, 10.0, action)
    task = asyncio.create_task(job.run())
    await settle()
    for before, step in pairwise(("", *steps)):
        # the wall clock is irrelevant
        clock.step_wall(3600)
        if isinstance(step, float):
            clock.stall(step) if before == "stall" else await clock.advance(step)
    task.cancel()
    await settle()
    assert task.cancelled()
    # also during an action
    assert clock.sleepers == 0
    assert repr(job) == "<Periodic [every 10.0 s]>"
    return seen


@pytest.mark.parametrize(
    ("steps", "takes_seconds", "ticks"),
    [
        # the first tick after one interval, the next at multiples of it, for actions of any duration
        ((35.0,), (3.0, 3.0, 8.0), [(10.0, 0.0), (20.0, 0.0), (30.0, 0.0)]),
        # a loop stalled from 5 to 47 s ticks once, 37 s late; at 50 s it is back on schedule
        ((5.0, "stall", 42.0, 13.0), (), [(47.0, 37.0), (50.0, 0.0), (60.0, 0.0)]),
        # exactly one interval late: the tick of that moment is done
        (("stall", 20.0, 10.0), (), [(20.0, 10.0), (30.0, 0.0)]),
        # an action from 10 to 35 s is followed at once by one tick, not by two
        ((45.0,), (25.0,), [(10.0, 0.0), (35.0, 15.0), (40.0, 0.0)]),
    ],
)
async def test_ticks_come_on_a_fixed_schedule(
    steps: tuple[float | str, ...], takes_seconds: tuple[float, ...], ticks: list[tuple[float, float]]
) -> None:
    """Each tick has its time and lateness; a late tick replaces the missed ones."""
    assert await ticks_of(FakeClock(monotonic=0.0), *steps, takes_seconds=takes_seconds) == ticks


async def test_early_timer_ticks_once() -> None:
    """A timer at 9.999 s is the tick of 10 s, with a lateness of 0, and is not repeated at 10 s."""
    assert await ticks_of(EarlyClock(monotonic=0.0), 25.0) == [(9.999, 0.0), (19.999, 0.0)]


async def test_exception_of_the_action_ends_the_job() -> None:
    """The exception leaves run(), and no tick follows."""
    clock = FakeClock()

    async def fails(lateness_seconds: float) -> None:
        raise LookupError("broker-a")

    task = asyncio.create_task(Periodic(clock, 10.0, fails).run())
    await clock.advance(25)

    assert (task.done(), clock.sleepers) == (True, 0)
    with pytest.raises(LookupError, match="broker-a"):
        await task
    for interval in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match=rf"interval of {interval} seconds, must be more than 0"):
            Periodic(clock, interval, fails)


@given(served=st.integers(1, 10**6), elapsed=st.floats(0, 10**8), interval=st.floats(0.01, 10**4))
def test_next_tick_is_the_first_future_one(served: int, elapsed: float, interval: float) -> None:
    """The next tick is later than the last one and than now, for any rounding of floats."""
    tick = next_tick(served, elapsed, interval)

    assert tick > served
    assert tick * interval > elapsed
    assert tick == served + 1 or (tick - 1) * interval <= elapsed
