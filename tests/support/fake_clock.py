"""A clock that tests move by hand, and waiting that depends on no real second."""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Final

NANOSECONDS = 1_000_000_000

# Event loop passes that a woken task gets. A chain of futures, queues and tasks needs one pass per link; this is far
# more than any chain of ours.
SETTLING_PASSES = 25
# passes of `until` before it waits between them
POLLING_PASSES: Final = 100
# Passes of `until` before it fails: a minute, and longer on a busy machine, where each pass takes longer.
MOST_PASSES: Final = 60_000
# A correct test needs less than a hundredth of it, or a tenth at a load of 20; a test that waits for ever fails.
GUARD_SECONDS: Final = 300.0
# small against every deadline in the tests
STEP_SECONDS: Final = 0.1
# Real time that passes with each step.
_REAL_STEP_SECONDS: Final = 0.001
# Real time for threads and sockets before the clock of `completed` advances.
_PATIENCE_SECONDS: Final = 0.02


class FakeClock:
    """A `Clock` that stands still until a test moves it.

    It counts whole nanoseconds, so that 119.9 + 0.1 is exactly 120.0.
    """

    def __init__(self, *, monotonic: float = 1_000.0, wall: float = 1_700_000_000.0) -> None:
        self._monotonic_ns = _nanoseconds(monotonic)
        self._wall_ns = _nanoseconds(wall)
        self._busy_ns = 0
        # (deadline, order of falling asleep, future that wakes the task)
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        return self._monotonic_ns / NANOSECONDS

    def wall(self) -> float:
        return self._wall_ns / NANOSECONDS

    @property
    def sleepers(self) -> int:
        return sum(1 for *_, wakes in self._sleepers if not wakes.done())

    def busy(self) -> float:
        """Seconds in which the process worked: those of `work`."""
        return self._busy_ns / NANOSECONDS

    async def sleep(self, seconds: float) -> None:
        """Return once a test has advanced the clock by `seconds`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        wakes = asyncio.get_running_loop().create_future()
        deadline = self._monotonic_ns + _nanoseconds(seconds)
        heapq.heappush(self._sleepers, (deadline, next(self._order), wakes))
        await wakes

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass: wake the sleepers in the order of their deadlines, each at its own time.

        Tasks that were just started reach their sleep first, and a woken task runs until it sleeps again before the
        next one is woken.
        """
        if seconds < 0:
            raise ValueError(f"advance by {seconds} seconds: the monotonic clock never goes back")
        await settle()
        end = self._monotonic_ns + _nanoseconds(seconds)
        while self._sleepers and self._sleepers[0][0] <= end:
            deadline, _, wakes = heapq.heappop(self._sleepers)
            if wakes.done():  # its task was cancelled
                continue
            self._move_to(deadline)
            wakes.set_result(None)
            await settle()
        self._move_to(end)

    def stall(self, seconds: float) -> None:
        """Let `seconds` pass while the loop does nothing; due sleepers wake late, with the next `advance`."""
        self._move_to(self._monotonic_ns + _nanoseconds(seconds))

    def work(self, seconds: float) -> None:
        """Let `seconds` pass while the loop is busy and can do nothing else."""
        self.stall(seconds)
        self._busy_ns += _nanoseconds(seconds)

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back; the monotonic clock does not change."""
        self._wall_ns += _nanoseconds(seconds)

    def _move_to(self, monotonic_ns: int) -> None:
        passed = max(0, monotonic_ns - self._monotonic_ns)
        self._monotonic_ns += passed
        self._wall_ns += passed

    def __repr__(self) -> str:
        return f"<FakeClock [{self.monotonic()} s | {self.sleepers} sleeping]>"


async def settle() -> None:
    """Run every runnable task until all tasks wait for something."""
    for _ in range(SETTLING_PASSES):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """Run the loop until a condition holds, for events on sockets, which no fake clock moves.

    A loop that never waits would keep the interpreter's lock from other threads, so that it waits a moment from the
    hundredth pass on.

    Raises:
        AssertionError: the condition did not hold within MOST_PASSES passes of the loop.
    """
    for number in range(MOST_PASSES):
        if condition():
            return
        await asyncio.sleep(0.001 if number >= POLLING_PASSES else 0)
    raise AssertionError(f"not so after {MOST_PASSES:,} passes of the event loop")


async def passing(clock: FakeClock, condition: Callable[[], object], *, at_most: float = 60.0) -> float:
    """Advance the clock until a condition holds; return the seconds that passed.

    Raises:
        AssertionError: the condition did not hold within `at_most` seconds.
    """
    began = clock.monotonic()
    await settle()
    while not condition():
        passed = clock.monotonic() - began
        assert passed <= at_most, f"not so after {passed:g} s"
        await clock.advance(STEP_SECONDS)
        # The kernel of a busy machine takes milliseconds for data on a socket, and timeouts on the clock are short.
        await asyncio.sleep(_REAL_STEP_SECONDS)
    return clock.monotonic() - began


async def completed(clock: FakeClock, work: Awaitable[Any]) -> float:
    """Advance the clock until the work is done, with real time for threads and sockets; return the seconds."""
    began = clock.monotonic()
    task = asyncio.ensure_future(work)
    while not (await asyncio.wait([task], timeout=_PATIENCE_SECONDS))[0]:
        await clock.advance(STEP_SECONDS)
    await task
    return clock.monotonic() - began


def _nanoseconds(seconds: float) -> int:
    return round(seconds * NANOSECONDS)
