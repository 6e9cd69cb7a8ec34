"""Liveness seconds: the monotonic clock without the time in which this process was stopped.

Two promises, and why both hold:

1. *A live broker whose heartbeats arrive is not evicted because we were stopped, suspended or starved.* What arrived
   meanwhile waits in the kernel, and before a broker is judged every socket is read (`Housekeeping`). What could not
   arrive (a full accept queue, a peer that has yet to dial again) is made good by moving deadlines.
2. *A dead broker is gone at most expiry + scan interval + `MAX_CREDIT_SECONDS` after we read its last heartbeat,
   whatever strangers do.* A loop that is late because it worked deserves no credit: it read its sockets in between. So
   only lateness beyond our own processor time counts (`stopped_seconds`), which no peer can cause over the network: a
   signal, a debugger, a paused machine, a disk that blocks, other processes. And the credit within any `window_seconds`
   is capped. A window is as long as a broker lives after its last heartbeat, expiry and scan, so that no silence is
   credited with more.

Processor time is that of all our threads: one that decodes holds up the loop through the interpreter's lock. It may
exceed the time that the loop lost, which errs towards less credit.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

# A server that was stopped for longer has lost most of its connections: who is alive dials again and is heard before it
# is judged. Five expiries.
MAX_CREDIT_SECONDS: Final = 600.0
# A tick that is later than this was held up by us, not by a timer's grain.
LATENESS_TOLERANCE_SECONDS: Final = 0.25


def stopped_seconds(lateness_seconds: float, busy_seconds: float) -> float:
    """How much of a tick's lateness this process did not run, if it worked for so long since the tick before."""
    return max(0.0, lateness_seconds - busy_seconds)


class LivenessClock:
    """What brokers' silence is measured with."""

    __slots__ = ("_credits", "_window_seconds", "late_seconds", "monotonic")

    def __init__(self, monotonic: Callable[[], float], window_seconds: float) -> None:
        self.monotonic = monotonic
        # all the time that counts as nobody's silence
        self.late_seconds = 0.0
        self._window_seconds = window_seconds
        # (when, in liveness seconds; how much) of the last window
        self._credits: deque[tuple[float, float]] = deque()

    def now(self) -> float:
        """Liveness seconds."""
        return self.monotonic() - self.late_seconds

    def credit(self, seconds: float) -> float:
        """This process was stopped for so long; how much of that does not count as silence, and moves deadlines."""
        if seconds < LATENESS_TOLERANCE_SECONDS:
            return 0.0
        now = self.now() - seconds
        while self._credits and self._credits[0][0] < now - self._window_seconds:
            self._credits.popleft()
        granted = min(seconds, MAX_CREDIT_SECONDS - sum(given for _, given in self._credits))
        if granted > 0:
            self._credits.append((now, granted))
            self.late_seconds += granted
        return max(0.0, granted)
