"""The clocks of the machine: the one place that asks for them; everything else is handed a `Clock`."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol


class Clock(Protocol):
    """Times and a way to wait. Deadlines live on `monotonic`; `wall` is for logs and for people."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back, never jumps."""
        ...

    def wall(self) -> float:
        """Seconds since 1970; jumps whenever somebody sets the machine's clock."""
        ...

    def busy(self) -> float:
        """Seconds of processor time that this process has used, in all its threads."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed on the monotonic clock; others get to run even if that is none."""
        ...


class SystemClock:
    """The machine's clocks."""

    # On Linux this clock stands still while the machine is suspended: a laptop that was closed for an hour wakes up
    # with every broker as old as it was.
    # Without a function of our own around it: it is asked for with every frame.
    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    busy = staticmethod(time.process_time)

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed; a loop with coarse timers may be a millisecond early."""
        await asyncio.sleep(seconds)

    def __repr__(self) -> str:
        return "SystemClock()"


@asynccontextmanager
async def timeout_on(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """`asyncio.timeout` on the given clock instead of the loop's, so that a test moves it. Raises TimeoutError."""
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
