"""Consequences of opened, closed and refused connections."""

import logging
from dataclasses import dataclass
from typing import Final

from namesrv.context import Namesrv, Spawn
from namesrv.net.protocol import ServerConnection
from namesrv.server.arrived_input import ArrivedInput
from namesrv.server.process_stops import ProcessStops
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

# Reasons for closing a connection that are normal for a healthy but quiet peer.
_EXPECTED: Final = frozenset({"idle", "silent"})


@dataclass(frozen=True, slots=True)
class ConnectionEvents:
    """The observer of the connections of one NameServer."""

    namesrv: Namesrv
    arrived_input: ArrivedInput
    process_stops: ProcessStops
    spawn: Spawn

    def may_be_idle(self, connection: ServerConnection) -> bool:
        """True for connections over which a broker is registered."""
        return connection.id in self.namesrv.manager.tables.connections.brokers_on

    def connection_opened(self, connection: ServerConnection) -> None:
        """Log a connection that has got a slot."""
        event(logger, logging.DEBUG, "connection_opened", connection=connection.id, peer=connection.peer.address)

    def connection_closed(self, connection: ServerConnection, reason: str) -> None:
        """Start the eviction of the brokers of a closed connection, but for brokers that another connection takes over.

        Without `evict_on_disconnect`, and while the server is stopping, the brokers stay. They also stay if the kernel
        gave up the connection (`timed_out`): their packets do not arrive, so they are silent, and the scan evicts them
        after their expiry. The kernel may give up after 30 s.
        """
        namesrv = self.namesrv
        event(
            logger,
            logging.DEBUG,
            "connection_closed",
            connection=connection.id,
            peer=connection.peer.address,
            reason=reason,
        )
        if namesrv.heartbeat_log is not None:
            namesrv.heartbeat_log.gone(connection)
        stay = reason == "timed_out" or namesrv.boot.is_draining
        if namesrv.settings.current.evict_on_disconnect and not stay:
            self.spawn(self._remove_disconnected(connection.id))
        else:
            namesrv.manager.leave_connection(connection.id)

    async def _remove_disconnected(self, connection_id: int) -> None:
        """Remove the brokers of a closed connection.

        If this process was stopped, however shortly, the brokers may have registered over new connections: these are
        read first. After a longer stop the brokers' own timeouts may have closed the connection, and the brokers stay
        until they had time to register again. A broker that was seen over another open connection moves there at once.
        """
        # This task may run before the tick that notices the same stop. A later stop does not count: the connection had
        # closed before.
        self.process_stops.notice()
        manager = self.namesrv.manager
        manager.leave_connection(connection_id)
        while connection_id in manager.tables.connections.brokers_on:
            await self.arrived_input.handle_before_removal()
            early_seconds = self.process_stops.seconds_until_closes_count()
            if early_seconds <= 0:
                await manager.connection_closed(connection_id)
                break
            await self.namesrv.clock.sleep(early_seconds)

    def connection_refused(self, connection: ServerConnection, error: RemoteProtocolError) -> None:
        """Count and log a refused peer, or a frame that was refused for lack of memory."""
        self.namesrv.counters.refusals[connection.peer.serialize_type, error.reason] += 1
        if error.reason in _EXPECTED:
            event(logger, logging.DEBUG, "connection_timed_out", peer=connection.peer.address, reason=error.reason)
            return
        if self.namesrv.access.audit is not None:
            self.namesrv.access.audit.refused_connection(connection, error)
        self.namesrv.limited_log.event(
            logger,
            logging.WARNING,
            "connection_refused",
            rest="connections_refused",
            peer=connection.peer.address,
            proxied=connection.peer.proxied,
            reason=error.reason,
            error=str(error),
        )
