"""Liveness seconds: the monotonic clock without the time in which this process was stopped.

The module keeps two promises, for these reasons:

1. *A live broker whose heartbeats arrive is not evicted because this process was stopped, suspended or starved.*
   Heartbeats that arrived meanwhile wait in the kernel, and every socket is read before a broker is judged
   (`Housekeeping`). For heartbeats that could not arrive (a full accept queue, a peer that has yet to connect again)
   the deadlines move.
2. *A dead broker is gone at most expiry + scan interval + `MAX_CREDIT_SECONDS` after this process read its last
   heartbeat, whatever unknown peers send.* An event loop that lagged because it worked gets no credit: it read its
   sockets in between. So only lateness beyond the processor time of this process counts (`stopped_seconds`), which no
   peer can cause over the network: a signal, a debugger, a paused machine, a disk that blocks, other processes. And the
   credit within one window is capped. A window is as long as any live broker may stay after its last heartbeat (the
   longest expiry of a live broker, and the scan interval), so that no silence is credited with more.

The processor time is that of all threads of the process: a thread that decodes delays the event loop through the
interpreter's lock. It may exceed the time that the loop lost, which errs towards less credit.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

# A server that was stopped for longer has lost most of its connections: live brokers connect again and send a heartbeat
# before they are judged. The maximum is five expiries.
MAX_CREDIT_SECONDS: Final = 600.0
# A tick that is later than this was delayed by this process, not by the resolution of a timer.
LATENESS_TOLERANCE_SECONDS: Final = 0.25
# The lateness of this process is checked this often, so that a short stop between two scans counts as well.
LONGEST_TICK_SECONDS: Final = 1.0
# A time that does not come.
NEVER: Final = float("inf")


def stopped_seconds(lateness_seconds: float, busy_seconds: float) -> float:
    """Return the part of a tick's lateness beyond the processor time since the tick before: the process was stopped."""
    return max(0.0, lateness_seconds - busy_seconds)


class WaitClock:
    """The clock for waits for brokers: the monotonic clock without the time in which this process was stopped.

    Only a tick knows of a stop. Therefore at most a second passes between two ticks: a request that is read before the
    first tick after a stop ends no wait.
    """

    __slots__ = ("_monotonic", "_stopped_seconds", "_ticked_at")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        # all the time in which the process was stopped
        self._stopped_seconds = 0.0
        self._ticked_at = monotonic()

    def now(self) -> float:
        """Return the seconds in which brokers could register, since an arbitrary moment."""
        return min(self._monotonic(), self._ticked_at + LONGEST_TICK_SECONDS) - self._stopped_seconds

    def tick(self, stopped_seconds: float) -> None:
        """Let time pass, in which this process was stopped for `stopped_seconds`."""
        self._stopped_seconds += stopped_seconds
        self._ticked_at = self._monotonic()


class LivenessClock:
    """The clock for the silence of brokers."""

    __slots__ = ("_credits", "_scan_seconds", "late_seconds", "monotonic")

    def __init__(self, monotonic: Callable[[], float], scan_seconds: float) -> None:
        self.monotonic = monotonic
        # Sum of all time that does not count as silence.
        self.late_seconds = 0.0
        self._scan_seconds = scan_seconds
        # Credits of the last window: (time in liveness seconds, credited seconds).
        self._credits: deque[tuple[float, float]] = deque()

    def now(self) -> float:
        """Return the liveness seconds."""
        return self.monotonic() - self.late_seconds

    def credit(self, seconds: float, expiry_seconds: Iterable[float]) -> float:
        """Report a stop of this process; return the seconds that do not count as silence, by which deadlines move.

        `expiry_seconds` are the expiries of all live brokers. They are read only if the process was stopped.
        """
        if seconds < LATENESS_TOLERANCE_SECONDS:
            return 0.0
        now = self.now() - seconds
        window_begins = now - max(expiry_seconds, default=0.0) - self._scan_seconds
        while self._credits and self._credits[0][0] < window_begins:
            self._credits.popleft()
        granted = min(seconds, MAX_CREDIT_SECONDS - sum(given for _, given in self._credits))
        if granted > 0:
            self._credits.append((now, granted))
            self.late_seconds += granted
        return max(0.0, granted)
