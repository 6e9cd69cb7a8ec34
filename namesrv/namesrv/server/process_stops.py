"""Stops of this process, found by late ticks, and the time from which closed connections count after them."""

import math
from typing import Final

from namesrv.routeinfo.tables.liveness import LONGEST_TICK_SECONDS, stopped_seconds
from namesrv.state.expected_back import RECONNECTION_SECONDS
from namesrv_runtime.clock import Clock

# After a stop of at least so long, peers may have timed out and closed their connections.
_STOP_SECONDS: Final = 1.0


class ProcessStops:
    """Notices stops of this process."""

    def __init__(self, clock: Clock, scan_interval_seconds: float) -> None:
        self._clock = clock
        # Time between two ticks: the time between two scans, divided by the least number that leaves a second at most.
        self.tick_seconds = scan_interval_seconds / math.ceil(scan_interval_seconds / LONGEST_TICK_SECONDS)
        self._last_tick = clock.monotonic()
        # Processor time of this process at the last tick.
        self._busy_seconds = clock.busy()
        # Time from which closed connections count again after a stop.
        self._closes_count_at = clock.monotonic()

    def tick(self, lateness_seconds: float) -> float:
        """Note a tick; return for how long the process was stopped before."""
        self.notice()
        self._last_tick = self._clock.monotonic()
        before, self._busy_seconds = self._busy_seconds, self._clock.busy()
        return stopped_seconds(lateness_seconds, self._busy_seconds - before)

    def notice(self) -> None:
        """Ignore closed connections for a while if this process was stopped since the last tick."""
        lateness = self._clock.monotonic() - self._last_tick - self.tick_seconds
        if stopped_seconds(lateness, self._clock.busy() - self._busy_seconds) >= _STOP_SECONDS:
            self._closes_count_at = self._clock.monotonic() + RECONNECTION_SECONDS

    def seconds_until_closes_count(self) -> float:
        """Return the time for which closed connections do not count yet; 0 or less if they count."""
        return self._closes_count_at - self._clock.monotonic()
