"""The state of the link to one NameServer: its status, counts and last error, as the agent's owner sees them."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from namesrv_runtime.clock import Clock, wall_at

logger: Final = logging.getLogger("namesrv_agent.connection")
_registration_logger: Final = logging.getLogger("namesrv_agent.registration")
_heartbeat_logger: Final = logging.getLogger("namesrv_agent.heartbeat")

# connecting: the link has just started, and its first attempt has no result yet;
# registered: the server has accepted a registration over the current connection;
# refused: the connection is open, but the server lacks the broker: it refused the registration, or the registration was
# too large to send; `last_error` has the reason;
# unreachable: the last attempt failed, or the connection ended;
# stopped: the link is closed
Status = Literal["connecting", "registered", "refused", "unreachable", "stopped"]
# A heartbeat that is this late is worth a warning; a single lost attempt delays the heartbeat by less.
_LATE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class LinkCounts:
    """What has happened on the link to one NameServer since the link's start, as counts that only grow."""

    # registrations and heartbeats that the server has accepted
    registrations: int = 0
    heartbeats: int = 0
    # registrations and heartbeats that the server has refused
    refusals: int = 0
    # attempts to connect or register that failed, and connections that ended
    failures: int = 0
    # connections over which the server has accepted a registration, without the first one
    reconnects: int = 0

    def with_registration(self, *, over_new_connection: bool) -> "LinkCounts":
        """The counts after an accepted registration, which may be the first one over its connection."""
        is_reconnect = over_new_connection and self.registrations > 0
        reconnects = self.reconnects + 1 if is_reconnect else self.reconnects
        return replace(self, registrations=self.registrations + 1, reconnects=reconnects)

    def with_heartbeat(self) -> "LinkCounts":
        """The counts after an accepted heartbeat."""
        return replace(self, heartbeats=self.heartbeats + 1)

    def with_refusal(self) -> "LinkCounts":
        """The counts after a refused registration or heartbeat."""
        return replace(self, refusals=self.refusals + 1)

    def with_failure(self) -> "LinkCounts":
        """The counts after a failed attempt, or the end of a connection."""
        return replace(self, failures=self.failures + 1)


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state of the link to one NameServer; times are wall-clock seconds since 1970."""

    # Only within the agent, `LinkState.current` is a ServerState with monotonic times, and with the defaults of
    # `lateness_seconds` and `is_settled`.

    address: str
    status: Status
    # time of the last change of the status
    since: float
    # native or rocketmq; None before the first choice
    protocol: str | None = None
    boot_id: str | None = None
    # time of the last response that accepted or refused a registration or a heartbeat; a response to a heartbeat that
    # the server does not know the broker is not counted, because a registration follows at once
    last_response: float | None = None
    # the last failure or refusal, until the server accepts a registration or a heartbeat; while the server lacks topics
    # that it has refused, this refusal
    last_error: str | None = None
    counts: LinkCounts = LinkCounts()
    # time of the last accepted heartbeat or registration: for the server, a registration counts as a heartbeat
    last_heartbeat: float | None = None
    # seconds by which the time since `last_heartbeat` (or the start) exceeds heartbeat_seconds
    lateness_seconds: float = 0.0
    # True if the server has accepted all topics and settings of the broker
    is_settled: bool = False


class LinkState:
    """Keeps the ServerState of one link up to date, logs what an operator should know, and reports each new status."""

    def __init__(
        self, address: str, heartbeat_seconds: float, clock: Clock, on_status_changed: Callable[[Status], None]
    ) -> None:
        self._heartbeat_seconds = heartbeat_seconds
        self._clock = clock
        # called after each change of the status, with the previous status
        self._on_status_changed = on_status_changed
        # monotonic time
        self._started_at = clock.monotonic()
        # The state with monotonic times, and without lateness_seconds and is_settled; `reported` sets the wall-clock
        # times and both of these fields.
        self.current = ServerState(address, "connecting", self._started_at)
        # True until the server accepts a registration over the current connection
        self._is_new_connection = True
        # The last refusal, if the server has accepted nothing since. A server that refuses a broker may close the
        # connection, and the refusal is then the reason of the end.
        self._last_refusal: str | None = None

    def reported(self, *, is_settled: bool) -> ServerState:
        """The current state, with times by the wall clock as it is set now; any thread may call this."""
        current = self.current
        return replace(
            current,
            since=wall_at(self._clock, current.since),
            last_response=self._by_wall_clock(current.last_response),
            last_heartbeat=self._by_wall_clock(current.last_heartbeat),
            lateness_seconds=self._lateness_seconds(current.last_heartbeat),
            is_settled=is_settled,
        )

    def _lateness_seconds(self, last_heartbeat: float | None) -> float:
        """Seconds by which the next heartbeat is overdue; 0 before the heartbeat is due."""
        silent_since = self._started_at if last_heartbeat is None else last_heartbeat
        return max(0.0, self._clock.monotonic() - silent_since - self._heartbeat_seconds)

    def _by_wall_clock(self, at: float | None) -> float | None:
        return None if at is None else wall_at(self._clock, at)

    def connection_replaced(self) -> None:
        """Note that the next registration goes over a new connection."""
        self._is_new_connection = True

    def registration_accepted(self, boot_id: str | None) -> None:
        """Note that the server has accepted a registration."""
        counts = self.current.counts.with_registration(over_new_connection=self._is_new_connection)
        self._is_new_connection = False
        self._accepted(counts, boot_id, error=None)

    def heartbeat_accepted(self, error: str | None) -> None:
        """Note that the server has accepted a heartbeat, with the error that continues in spite of that."""
        self._accepted(self.current.counts.with_heartbeat(), self.current.boot_id, error)

    def _accepted(self, counts: LinkCounts, boot_id: str | None, error: str | None) -> None:
        last_heartbeat = self.current.last_heartbeat
        late = self._lateness_seconds(last_heartbeat)
        # Before the first registration the server expected no heartbeat.
        if late > _LATE_SECONDS and last_heartbeat is not None:
            _heartbeat_logger.warning("heartbeat to %s was %.1f s late", self.current.address, late)
        self._last_refusal = None
        now = self._clock.monotonic()
        self.current = replace(
            self.current, counts=counts, boot_id=boot_id, last_response=now, last_heartbeat=now, last_error=error
        )

    def refused(self, error: str) -> None:
        """Note that the server has refused a registration or a heartbeat, and log each new reason once."""
        self._warn_of_new(error)
        self._last_refusal = error
        counts, now = self.current.counts.with_refusal(), self._clock.monotonic()
        self.current = replace(self.current, counts=counts, last_response=now, last_error=error)

    def not_sent(self, error: str) -> None:
        """Note a registration that this side could not send, and log each new reason once."""
        self._warn_of_new(error)
        self.current = replace(self.current, last_error=error)

    def _warn_of_new(self, error: str) -> None:
        if error != self.current.last_error:
            _registration_logger.warning("%s: %s", self.current.address, error)

    def failed(self, error: str, protocol: str | None) -> None:
        """Note that an attempt failed or a connection ended, and log each new reason once."""
        if self._last_refusal is not None and self.current.status != "registered":
            error = self._last_refusal
        self._last_refusal = None
        if error != self.current.last_error:
            # The errors of connections name the server, but its responses do not.
            address = self.current.address
            logger.info("%s", error if address in error else f"{address}: {error}")
        self.current = replace(self.current, counts=self.current.counts.with_failure())
        self.becomes("unreachable", protocol, error)

    def becomes(self, status: Status, protocol: str | None, error: str | None = None) -> None:
        """Set the status, with the protocol of the connection and the error that caused the change."""
        before = self.current.status
        since = self.current.since if before == status else self._clock.monotonic()
        self.current = replace(self.current, status=status, since=since, protocol=protocol, last_error=error)
        if status != before:
            if status == "registered":
                logger.info("registered with %s", self.current.address)
            self._on_status_changed(before)
