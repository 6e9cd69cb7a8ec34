"""The protocol and the boot id of one NameServer, and the time from which the server knows all brokers."""

import itertools
from enum import Enum
from typing import Final, Literal

from namesrv_client.settings import ClientSettings
from namesrv_runtime.clock import Clock

# numbers of the connections to servers, of all clients of the process
_connection_numbers: Final = itertools.count(1)


class Protocol(Enum):
    """The protocol on the current connection to a server.

    From        on                                                     to
    UNKNOWN     RocketMQ's protocol is set or known to this process    ROCKETMQ
                SERVER_INFO sent                                       REQUESTED
                SERVER_INFO sent, the native protocol is set or known  PRESUMED
    REQUESTED   the native protocol has become known                   PRESUMED
                SERVER_INFO answered                                   NATIVE or ROCKETMQ
                SERVER_INFO failed                                     UNKNOWN
    PRESUMED    SERVER_INFO answered                                   NATIVE or ROCKETMQ
                SERVER_INFO failed                                     NATIVE
                connection ended                                       REQUESTED
    NATIVE      connection ended, or not opened                        UNKNOWN
    ROCKETMQ    connection ended                                       UNKNOWN
    """

    UNKNOWN = "unknown"
    # SERVER_INFO is under way, and other requests wait for its end
    REQUESTED = "requested"
    # SERVER_INFO is under way, and other requests are sent natively meanwhile
    PRESUMED = "presumed"
    NATIVE = "native"
    ROCKETMQ = "rocketmq"


class ServerIdentity:
    """The protocol of one NameServer and its boot, as far as the responses show them.

    Apache's server has no boot id, so the name of the connection takes its place: on a new connection the server may
    have restarted. A restart behind a proxy that keeps the connection open is not visible.
    """

    def __init__(self, address: str, settings: ClientSettings, clock: Clock) -> None:
        self._address = address
        self._settings = settings
        self._clock = clock
        self.state = Protocol.UNKNOWN
        self.boot_id: str | None = None
        # number of the open connection, or of the next one
        self.connection_number = next(_connection_numbers)
        # boot id under which the server has last sent a complete response over this connection; None without one
        self.complete_boot_id: str | None = None
        # monotonic time from which on all brokers have had time to register, so that missing brokers are gone
        self._complete_at = 0.0
        # monotonic time from which on topics that the server does not know do not exist: at once for the first
        # connection to a RocketMQ server, since nothing shows that the server has just started
        self._knows_topics_at = 0.0
        # number of connections on which the server spoke RocketMQ's protocol
        self._rocketmq_connections = 0

    def __repr__(self) -> str:
        return f"<ServerIdentity [{self.protocol or 'not identified'} | {self.boot_id}]>"

    @property
    def is_native(self) -> bool | None:
        """True for a native server, False for a RocketMQ server; None while the protocol is unknown."""
        if self.state in {Protocol.UNKNOWN, Protocol.REQUESTED}:
            return None
        return self.state is not Protocol.ROCKETMQ

    @property
    def protocol(self) -> Literal["native", "rocketmq"] | None:
        """The protocol on this connection; None while it is unknown."""
        return None if self.is_native is None else "native" if self.is_native else "rocketmq"

    @property
    def native_boot_id(self) -> str | None:
        """The boot id that the server has sent; None for Apache's server."""
        boot_id = self.boot_id
        return None if boot_id is None or boot_id.startswith(f"{self._address}#") else boot_id

    @property
    def is_complete(self) -> bool:
        """True if brokers that are missing in the server's routes are gone."""
        return self._clock.monotonic() >= self._complete_at

    @property
    def knows_all_topics(self) -> bool:
        """True if topics that the server does not know do not exist."""
        return self._clock.monotonic() >= self._knows_topics_at

    def note_requested(self, *, is_known_native: bool) -> None:
        """Note that SERVER_INFO is under way, perhaps to a server that is known to be native."""
        self.state = Protocol.PRESUMED if is_known_native else Protocol.REQUESTED

    def note_request_ended(self) -> None:
        """Note that SERVER_INFO has ended; an answered request has set the protocol before."""
        if self.state is Protocol.REQUESTED:
            self.state = Protocol.UNKNOWN
        elif self.state is Protocol.PRESUMED:
            self.state = Protocol.NATIVE

    def note_not_connected(self) -> None:
        """Note that there is no connection: if the state is NATIVE, the attempt to open one has failed."""
        if self.state is Protocol.NATIVE:
            # The end of an open connection changes the state in `note_end`: here, none was opened, and SERVER_INFO was
            # never sent.
            self.state = Protocol.UNKNOWN

    def note_native(self, boot_id: str, uptime_seconds: float) -> None:
        """Note a native server with its boot."""
        self.state = Protocol.NATIVE
        self.note_boot_id(boot_id, uptime_seconds)

    def note_boot_id(self, boot_id: str, uptime_seconds: float) -> None:
        """Note the boot id in a response; a new one is that of a server that has started `uptime_seconds` ago."""
        if boot_id != self.boot_id:
            self.boot_id = boot_id
            self._complete_at = self._clock.monotonic() + self._settings.warm_up_seconds - uptime_seconds
            self._knows_topics_at = self._complete_at

    def note_rocketmq(self) -> None:
        """Note a RocketMQ server, which reports no uptime: a second connection may be one to a restarted server."""
        self.state = Protocol.ROCKETMQ
        self._rocketmq_connections += 1
        self.boot_id = f"{self._address}#{self.connection_number}"
        self.restart_warm_up()

    def note_routes(self, connection_number: int, boot_id: str, *, is_complete: bool) -> tuple[int, bool]:
        """Note a response with routes; return the number of its connection, and whether the server was complete on it.

        `connection_number` is the one at the time of the request.
        """
        if connection_number != self.connection_number:
            # The connection ended meanwhile: the response is of that connection or of the next one, so it gets a number
            # that no other response has.
            return next(_connection_numbers), is_complete
        if is_complete:
            self.complete_boot_id = boot_id
        return connection_number, boot_id == self.complete_boot_id

    def note_end(self) -> None:
        """Note the end of the connection: the next one at this address may be to another process."""
        is_under_way = self.state in {Protocol.REQUESTED, Protocol.PRESUMED}
        self.state = Protocol.REQUESTED if is_under_way else Protocol.UNKNOWN
        self.connection_number = next(_connection_numbers)
        self.complete_boot_id = None

    def restart_warm_up(self) -> None:
        """Count the warm-up of a RocketMQ server from now: its protocol is noted, or its first response has arrived."""
        now = self._clock.monotonic()
        self._complete_at = now + self._settings.warm_up_seconds
        self._knows_topics_at = now if self._rocketmq_connections == 1 else self._complete_at
