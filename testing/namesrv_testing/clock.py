"""A clock that runs like the machine's, and that a test can move forward."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final

# Far shorter than the intervals of heartbeats, scans, polls and pings, so that none of these comes noticeably late.
_STEP_SECONDS: Final = 0.25


class TestClock:
    """The machine's clock plus the time by which a test has advanced it, for any number of threads and event loops.

    Servers, brokers and clients that share a clock have the same time.
    """

    # keeps pytest from collecting the class, whose name begins with Test
    __test__ = False
    busy = staticmethod(time.process_time)

    def __init__(self) -> None:
        self._ahead = 0.0
        self._lock = threading.Lock()
        # functions that wake a sleeping task on its own loop
        self._sleepers: set[Callable[[], None]] = set()
        # functions that let one loop do the work that a step has made due
        self._followers: list[Callable[[], None]] = []

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment."""
        return time.monotonic() + self._ahead

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time() + self._ahead

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed on this clock."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop, until = asyncio.get_running_loop(), self.monotonic() + seconds
        advanced = asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(advanced.set)

        with self._lock:
            self._sleepers.add(wake)
        try:
            while (left := until - self.monotonic()) > 0:
                advanced.clear()
                try:
                    async with asyncio.timeout(left):
                        await advanced.wait()
                except TimeoutError:
                    pass
        finally:
            with self._lock:
                self._sleepers.discard(wake)

    def follow(self, settle: Callable[[], None]) -> Callable[[], None]:
        """Call `settle` after each step of `advance`; the returned function ends that."""
        self._followers.append(settle)
        return lambda: self._followers.remove(settle)

    def advance(self, seconds: float) -> None:
        """Let time pass quickly, in small steps, after each of which all threads do the work that is due.

        Two minutes take about a second. Raises ValueError for a negative number.
        """
        if seconds < 0:
            raise ValueError(f"cannot advance by {seconds} seconds: time does not go back")
        end = self._ahead + seconds
        while self._ahead < end:
            self._ahead = min(self._ahead + _STEP_SECONDS, end)
            with self._lock:
                sleepers = list(self._sleepers)
            for wake in sleepers:
                wake()
            # Twice, because a request of one thread may lead to a response of another.
            for settle in (*self._followers, *self._followers):
                settle()

    def __repr__(self) -> str:
        return f"<TestClock [{self._ahead:g} s ahead]>"
