"""Ring of recent events, for RECENT_EVENTS (20003)."""

from collections import deque
from typing import Any, Final

from namesrv_runtime.clock import Clock, wall_ms_at

MAX_EVENTS: Final = 1000


class EventRing:
    """The most recent events, numbered from 1 since the server started."""

    def __init__(self, clock: Clock, size: int = MAX_EVENTS) -> None:
        self._clock = clock
        # Each event with its monotonic time, oldest first.
        self._events: deque[tuple[float, dict[str, Any]]] = deque(maxlen=size)
        self.last_seq = 0

    def append(self, event: dict[str, Any]) -> None:
        """Add an event of this moment under the next number."""
        self.last_seq += 1
        self._events.append((self._clock.monotonic(), {"seq": self.last_seq, **event}))

    def since(self, seq: int, limit: int) -> list[dict[str, Any]]:
        """The last `limit` events after `seq` that are still in the ring, oldest first, with their times (`ts_ms`)."""
        newer = [(at, event) for at, event in self._events if event["seq"] > seq]
        return [{**event, "ts_ms": wall_ms_at(self._clock, at)} for at, event in newer[-limit:]]
