"""A wait ends when the clock says so, and only then."""

import asyncio

import pytest

from namesrv_runtime.timeouts import timeout_on
from tests.support.fake_clock import FakeClock, settle


async def wait_on(clock: FakeClock, seconds: float, event: asyncio.Event) -> str:
    """Wait for an event, but not longer than so many seconds."""
    async with timeout_on(clock, seconds):
        await event.wait()
    return "came"


async def test_block_that_ends_in_time_is_left_alone() -> None:
    """Nothing of the timeout is left behind."""
    clock, event = FakeClock(), asyncio.Event()
    task = asyncio.create_task(wait_on(clock, 3.0, event))

    await clock.advance(2.9)
    event.set()
    await settle()

    assert task.result() == "came"
    assert clock.sleepers == 0


async def test_block_is_ended_when_its_time_is_up() -> None:
    """After 2.9 s it still waits, after 3.0 s it is a TimeoutError."""
    clock = FakeClock()
    task = asyncio.create_task(wait_on(clock, 3.0, asyncio.Event()))

    await clock.advance(2.9)
    assert not task.done()

    await clock.advance(0.1)
    with pytest.raises(TimeoutError):
        await task


@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_no_time_at_all_ends_what_waits(seconds: float) -> None:
    """A time that is already over needs no clock to move."""
    with pytest.raises(TimeoutError):
        await wait_on(FakeClock(), seconds, asyncio.Event())


async def test_cancellation_from_outside_stays_one() -> None:
    """Whoever is cancelled is not told that its time was up."""
    clock = FakeClock()
    task = asyncio.create_task(wait_on(clock, 3.0, asyncio.Event()))
    await settle()

    task.cancel()
    await settle()

    assert task.cancelled()
    assert clock.sleepers == 0


async def test_exception_of_the_block_comes_out() -> None:
    """An error inside is the error outside, and the clock is left alone."""
    clock = FakeClock()

    async def fails() -> None:
        async with timeout_on(clock, 3.0):
            await settle()
            raise LookupError("broker-a")

    with pytest.raises(LookupError, match="broker-a"):
        await fails()
    await settle()

    assert clock.sleepers == 0
