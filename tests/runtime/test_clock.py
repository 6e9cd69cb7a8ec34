"""The system clock, and timeouts on any clock."""

import asyncio
import time

import pytest

from namesrv_runtime.clock import Clock, SystemClock, timeout_on
from tests.support.fake_clock import FakeClock, settle


async def test_system_clock_is_the_machines() -> None:
    """Both times lie between two readings of the machine's clock; a coarse timer may be a millisecond early."""
    clock: Clock = SystemClock()

    before = time.monotonic(), time.time()
    now = clock.monotonic(), clock.wall()
    await clock.sleep(0.01)

    assert before[0] <= now[0] <= time.monotonic() - 0.009
    assert before[1] <= now[1] <= time.time()
    assert repr(clock) == "SystemClock()"


async def wait_on(clock: FakeClock, seconds: float, event: asyncio.Event | None = None) -> str:
    """Wait for an event with a timeout; without an event, fail."""
    async with timeout_on(clock, seconds):
        await settle()
        if event is None:
            raise LookupError("broker-a")
        await event.wait()
    return "came"


async def test_timeout_ends_its_block() -> None:
    """The block runs at 2.9 s and ends with a TimeoutError at 3.0 s; a timeout of zero needs no clock."""
    clock = FakeClock()
    task = asyncio.create_task(wait_on(clock, 3.0, asyncio.Event()))
    await clock.advance(2.9)
    assert not task.done()

    await clock.advance(0.1)
    with pytest.raises(TimeoutError):
        await task
    for seconds in (0.0, -1.0):
        with pytest.raises(TimeoutError):
            await wait_on(clock, seconds, asyncio.Event())


async def test_timeout_leaves_other_ends_alone() -> None:
    """An event, a cancellation and an exception pass through, and no sleeper is left."""
    clock, event = FakeClock(), asyncio.Event()
    came, cancelled = (asyncio.create_task(wait_on(clock, 3.0, each)) for each in (event, asyncio.Event()))
    with pytest.raises(LookupError, match="broker-a"):
        await wait_on(clock, 3.0)
    await clock.advance(2.9)

    event.set()
    cancelled.cancel()
    await settle()

    assert (came.result(), cancelled.cancelled(), clock.sleepers) == ("came", True, 0)
