"""The clocks of the machine: the one place that asks for them; everything else is handed a `Clock`."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
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


class LoopClock:
    """What keeps the time of the event loop that its users run on: the loop itself can wait for it."""

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed; a loop with coarse timers may be a millisecond early."""
        await asyncio.sleep(seconds)


class SystemClock(LoopClock):
    """The machine's clocks."""

    # On Linux this clock stands still while the machine is suspended: a laptop that was closed for an hour wakes up
    # with every broker as old as it was.
    # Without a function of our own around it: it is asked for with every frame.
    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    busy = staticmethod(time.process_time)

    def __repr__(self) -> str:
        return "SystemClock()"


def timeout_on(clock: Clock, seconds: float) -> AbstractAsyncContextManager[object]:
    """`asyncio.timeout` on the given clock, which a test may move. Raises TimeoutError."""
    # with every call of a client: a task that watches the clock is for those that the loop does not know
    return asyncio.timeout(seconds) if isinstance(clock, LoopClock) else _watched(clock, seconds)


@asynccontextmanager
async def _watched(clock: Clock, seconds: float) -> AsyncIterator[None]:
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
