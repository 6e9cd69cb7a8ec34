"""Periodic ticks on a fixed schedule that know how late they are."""

from collections.abc import Awaitable, Callable
from typing import NoReturn

from namesrv_runtime.clock import Clock


class Periodic:
    """Calls `action(lateness_seconds)` at start + interval, start + 2 intervals, and so on, without drift.

    After a stop, a suspension, a busy loop or a long action the next tick is late: `action` gets the lateness, and
    missed ticks are skipped, not made up for. An exception of the action ends `run()` and the task group that owns it,
    so that a periodic job never dies silently.
    """

    def __init__(self, clock: Clock, interval_seconds: float, action: Callable[[float], Awaitable[None]]) -> None:
        if not interval_seconds > 0:
            raise ValueError(f"interval of {interval_seconds} seconds, must be more than 0")
        self._clock = clock
        self._interval = interval_seconds
        self._action = action

    async def run(self) -> NoReturn:
        """Tick until cancelled."""
        start = self._clock.monotonic()
        ticks = 1
        while True:
            due = start + ticks * self._interval
            # A late tick sleeps, too: an action that always takes too long must not starve the loop.
            await self._clock.sleep(due - self._clock.monotonic())
            now = self._clock.monotonic()
            ticks = next_tick(ticks, now - start, self._interval)
            # a timer may fire a millisecond early: that is on time
            await self._action(max(0.0, now - due))

    def __repr__(self) -> str:
        return f"<Periodic [every {self._interval} s]>"


def next_tick(served: int, elapsed: float, interval: float) -> int:
    """The first tick after `served` that is still to come when `elapsed` seconds have passed."""
    tick = max(served + 1, int(elapsed / interval))
    # the division may have rounded either way
    while tick * interval <= elapsed:
        tick += 1
    return tick
