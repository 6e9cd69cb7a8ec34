"""The record of one NameServer: its connections, responses and failures so far, for its status and for events."""

import logging
from collections import Counter
from typing import Final, Literal

from namesrv_runtime.clock import Clock, wall_at
from namesrv_runtime.server_events import ServerEvents

logger: Final = logging.getLogger("namesrv_client.connection")


class ServerRecord:
    """The connections, responses and failures of one NameServer so far.

    A connection counts from its first response.
    """

    def __init__(self, address: str, clock: Clock, events: ServerEvents) -> None:
        self._address = address
        self._clock = clock
        self._events = events
        # monotonic time of the last response
        self.answered_at = float("-inf")
        # the reason of the last failure of the server or of a request to it
        self.error: str | None = None
        # number of connections that had a response
        self._connections = 0
        # True while the current connection has had a response
        self.is_connected = False
        # monotonic time of the last change of `is_connected`; before the first one, that of the entry into the list
        self._changed_at = clock.monotonic()
        # route requests by result
        self.pulls: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<ServerRecord [{self.state} | {self.reconnects} reconnects | {dict(self.pulls)}]>"

    @property
    def state(self) -> Literal["connected", "disconnected", "unused"]:
        """The state of the connection; `unused` before the first response or failure."""
        return "connected" if self.is_connected else "disconnected" if self._connections or self.error else "unused"

    @property
    def reconnects(self) -> int:
        """Number of connections after the first one."""
        return max(0, self._connections - 1)

    @property
    def since(self) -> float:
        """Wall-clock time of the last change of `is_connected`, or at which the server came into the list."""
        return wall_at(self._clock, self._changed_at)

    @property
    def last_response(self) -> float | None:
        """Wall-clock time of the last response; None before the first one."""
        return wall_at(self._clock, self.answered_at) if self.answered_at > float("-inf") else None

    def note_failure(self, failure: object) -> str:
        """Keep the reason of a failure, and return it in words."""
        self.error = str(failure) or type(failure).__name__
        return self.error

    def note_response(self, *, is_open: bool, remark: str) -> None:
        """Note a response; the first one over an open connection is logged, with a remark on the server."""
        self.answered_at = self._clock.monotonic()
        # A response may be processed after its connection has ended.
        if not self.is_connected and is_open:
            self.is_connected = True
            self._connections += 1
            self._changed_at = self._clock.monotonic()
            logger.info("connected to %s%s", self._address, remark)
            self._events.connected(self._address)

    def note_end(self, why: str) -> None:
        """Note that the connection has ended."""
        if self.is_connected:
            self.is_connected = False
            self._changed_at = self._clock.monotonic()
            logger.info("disconnected from %s: %s", self._address, why)
            self._events.disconnected(self._address, why)
