"""The system clock is the machine's."""

import time

from namesrv_runtime.clock import Clock, SystemClock


async def test_system_clock_is_the_machines() -> None:
    """Both times lie between two readings of the machine's; a coarse timer may be a millisecond early."""
    clock: Clock = SystemClock()

    before = time.monotonic(), time.time()
    now = clock.monotonic(), clock.wall()
    await clock.sleep(0.01)

    assert before[0] <= now[0] <= time.monotonic() - 0.009
    assert before[1] <= now[1] <= time.time()
    assert "SystemClock()" == repr(clock)
