"""Ring of recent events, for RECENT_EVENTS (20003)."""

from collections import deque
from typing import Any, Final

MAX_EVENTS: Final = 1000


class EventRing:
    """The most recent events, numbered from 1 since the server started."""

    def __init__(self, size: int = MAX_EVENTS) -> None:
        self._events: deque[dict[str, Any]] = deque(maxlen=size)
        self.last_seq = 0

    def append(self, event: dict[str, Any]) -> None:
        """Add an event under the next number."""
        self.last_seq += 1
        self._events.append({"seq": self.last_seq, **event})

    def since(self, seq: int, limit: int) -> list[dict[str, Any]]:
        """The last `limit` events after `seq` that are still in the ring, oldest first."""
        newer = [event for event in self._events if event["seq"] > seq]
        return newer[-limit:]
