"""`asyncio.timeout` on a `Clock`, so that tests can move it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from namesrv_runtime.clock import Clock


@asynccontextmanager
async def timeout_on(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """`asyncio.timeout` on the given clock instead of the loop's, so that a test moves it.

    Raises:
        TimeoutError: the time was up before the block ended; what it awaited was cancelled.
    """
    async with asyncio.timeout(None) as scope:
        watch = asyncio.create_task(_expire(scope, clock, seconds))
        try:
            yield
        finally:
            watch.cancel()


async def _expire(scope: asyncio.Timeout, clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)
    # a moment in the past: asyncio's own handler cancels, and can tell its cancellation from anybody else's
    scope.reschedule(asyncio.get_running_loop().time())
