"""Lag of the event loop.

A callback is asked for every tenth of a second, in real time; by how much it is late, whatever else was due then was
late, too: an answer to a client, a heartbeat that waited in its socket.
"""

import asyncio
import time
from typing import Final

from namesrv.histogram import Histogram

INTERVAL_SECONDS: Final = 0.1


class LoopLag:
    """Measures the running loop into a histogram, from `start` to `stop`."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._due = 0.0
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin."""
        # uvloop's own time stands still while a callback runs
        self._due = time.monotonic() + INTERVAL_SECONDS
        self._next = asyncio.get_running_loop().call_later(INTERVAL_SECONDS, self._tick)

    def stop(self) -> None:
        """End."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _tick(self) -> None:
        self._histogram.observe(max(0.0, time.monotonic() - self._due))
        self.start()
