"""A loop that was held up is seen to be late."""

import asyncio
import time

from namesrv.histogram import Histogram
from namesrv.observability.loop_lag import INTERVAL_SECONDS, LoopLag
from tests.support.guard import GUARD_SECONDS
from tests.support.raw_peer import until


async def test_held_up_loop_is_late() -> None:
    """What was due while a callback ran for 0.3 s is late by most of that."""
    histogram = Histogram((0.15, 10.0))
    lag = LoopLag(histogram)
    async with asyncio.timeout(GUARD_SECONDS):
        lag.start()
        await until(lambda: histogram.count)
        before = histogram.counts[1]

        time.sleep(INTERVAL_SECONDS + 0.3)
        await until(lambda: histogram.counts[1] > before)
        lag.stop()

    assert histogram.sum >= 0.3


async def test_it_ends() -> None:
    """Stopped, it measures nothing more, and may be stopped again."""
    histogram = Histogram((1.0,))
    lag = LoopLag(histogram)
    lag.start()

    lag.stop()
    lag.stop()

    time.sleep(INTERVAL_SECONDS)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 0 == histogram.count
