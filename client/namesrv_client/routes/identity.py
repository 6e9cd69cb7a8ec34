"""The protocol and the boot id of one NameServer, and the time from which the server knows all brokers."""

import itertools
from typing import Final, Literal

from namesrv_client.settings import ClientSettings
from namesrv_runtime.clock import Clock

# numbers of the connections to servers, of all clients of the process
_connection_numbers: Final = itertools.count(1)


class ServerIdentity:
    """The protocol of one NameServer and its boot, as far as the responses show them.

    Apache's server has no boot id, so the name of the connection takes its place: on a new connection the server may
    have restarted. A restart behind a proxy that keeps the connection open is not visible.
    """

    def __init__(self, address: str, settings: ClientSettings, clock: Clock) -> None:
        self._address = address
        self._settings = settings
        self._clock = clock
        # None while the protocol is unknown on this connection
        self.is_native: bool | None = None
        self.boot_id: str | None = None
        # number of the open connection, or of the next one
        self.connection = next(_connection_numbers)
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

    def note_boot_id(self, boot_id: str, uptime_seconds: float) -> None:
        """Note the boot id in a response; a new one is that of a server that has started `uptime_seconds` ago."""
        if boot_id != self.boot_id:
            self.boot_id = boot_id
            self._complete_at = self._clock.monotonic() + self._settings.warm_up_seconds - uptime_seconds
            self._knows_topics_at = self._complete_at

    def note_rocketmq(self) -> None:
        """Note a RocketMQ server, which reports no uptime: a second connection may be one to a restarted server."""
        self.is_native = False
        self._rocketmq_connections += 1
        self.boot_id = f"{self._address}#{self.connection}"
        self.restart_warm_up()

    def note_routes(self, connection: int, boot_id: str, *, is_complete: bool) -> tuple[int, bool]:
        """Note a response with routes; return the number of its connection, and whether the server was complete on it.

        `connection` is the number at the time of the request.
        """
        if connection != self.connection:
            # The connection ended meanwhile: the response is of that connection or of the next one, so it gets a number
            # that no other response has.
            return next(_connection_numbers), is_complete
        if is_complete:
            self.complete_boot_id = boot_id
        return connection, boot_id == self.complete_boot_id

    def note_end(self) -> None:
        """Note the end of the connection: the next one at this address may be to another process."""
        self.is_native = None
        self.connection = next(_connection_numbers)
        self.complete_boot_id = None

    def restart_warm_up(self) -> None:
        """Count the warm-up of a RocketMQ server from now: its protocol is noted, or its first response has arrived."""
        now = self._clock.monotonic()
        self._complete_at = now + self._settings.warm_up_seconds
        self._knows_topics_at = now if self._rocketmq_connections == 1 else self._complete_at
