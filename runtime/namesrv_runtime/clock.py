"""The clocks of the machine; all other modules get a `Clock` passed in, so that tests can move the time."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol


class Clock(Protocol):
    """Times and a way to wait. Deadlines use `monotonic`; `wall` is for logs and for people."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; this clock never goes back and never jumps."""
        ...

    def wall(self) -> float:
        """Seconds since 1970; this clock jumps when an operator or NTP sets it."""
        ...

    def busy(self) -> float:
        """Seconds of processor time that this process has used, in all its threads."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed on the monotonic clock; other tasks run meanwhile, even for 0 seconds."""
        ...


class LoopClock:
    """A clock that agrees with the event loop's own time, so that the loop's timers can wait for it."""

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed; uvloop's timers may fire a millisecond early."""
        await asyncio.sleep(seconds)


class SystemClock(LoopClock):
    """The machine's clocks."""

    # On Linux the monotonic clock stands still while the machine is suspended: a laptop that was closed for an hour
    # wakes up with every broker as old as before.
    # The clocks are bound without a wrapper function, because the hot path calls them for every read.
    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    busy = staticmethod(time.process_time)

    def __repr__(self) -> str:
        return "SystemClock()"


def wall_at(clock: Clock, moment: float) -> float:
    """The seconds since 1970 at a moment of the monotonic clock, by the wall clock as it is set now.

    A wall-clock time that was noted earlier is wrong once the clock has been set.
    """
    return clock.wall() - (clock.monotonic() - moment)


def wall_ms_at(clock: Clock, moment: float) -> int:
    """The milliseconds since 1970 at a moment of the monotonic clock, by the wall clock as it is set now."""
    return round(wall_at(clock, moment) * 1000)


def timeout_on(clock: Clock, seconds: float) -> AbstractAsyncContextManager[object]:
    """`asyncio.timeout` on the given clock, which a test may move. Raises TimeoutError."""
    # Clients need a timeout for every call. A task that watches the clock is only for clocks that the loop cannot use.
    return asyncio.timeout(seconds) if isinstance(clock, LoopClock) else _watched(clock, seconds)


# Ends a wait that `call_later_on` began.
Timer = asyncio.TimerHandle | asyncio.Task[None]


def call_later_on(clock: Clock, seconds: float, callback: Callable[[], None]) -> Timer:
    """`loop.call_later` on the given clock, which a test may move; the caller cancels what it gets, or lets it run."""
    if isinstance(clock, LoopClock):
        return asyncio.get_running_loop().call_later(seconds, callback)
    return asyncio.create_task(_call_after(clock, seconds, callback))


async def _call_after(clock: Clock, seconds: float, callback: Callable[[], None]) -> None:
    await clock.sleep(seconds)
    callback()


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
    # A deadline in the past lets asyncio's own handler cancel, which can tell its cancellation from other ones.
    scope.reschedule(asyncio.get_running_loop().time())
