"""The system clock is the machine's."""

import time

from namesrv_runtime.clock import Clock, SystemClock


def test_system_clock_is_the_machines() -> None:
    """Both times lie between two readings of the machine's own clocks."""
    clock: Clock = SystemClock()

    before = time.monotonic(), time.time()
    now = clock.monotonic(), clock.wall()
    after = time.monotonic(), time.time()

    assert before[0] <= now[0] <= after[0]
    assert before[1] <= now[1] <= after[1]


async def test_system_clock_sleeps() -> None:
    """A sleep takes at least its time, less the millisecond that a coarse timer may be early."""
    clock = SystemClock()

    start = clock.monotonic()
    await clock.sleep(0.01)

    assert clock.monotonic() - start >= 0.009


def test_repr_names_the_clock() -> None:
    """The clock shows up by name in the repr of whatever holds it."""
    assert "SystemClock()" == repr(SystemClock())
