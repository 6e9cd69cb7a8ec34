"""Slots for open connections: limited in number, by network and by memory; the last ones are reserved for brokers."""

from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Final

from namesrv.net.fairness.budget import MemoryBudget
from namesrv.net.limits import ServerLimits
from namesrv.net.protocol import ServerConnection
from namesrv_remoting.errors import RemoteProtocolError

# memory of an idle connection
_CONNECTION_BYTES: Final = 8 * 1024


class ConnectionSlots:
    """All open connections; each occupies a slot."""

    def __init__(self, limits: ServerLimits, budget: MemoryBudget, connections: dict[int, ServerConnection]) -> None:
        self.limits = limits
        self.budget = budget
        # connection id -> connection
        self.connections = connections
        # network of the peers -> number of its connections
        self._per_network: Counter[str] = Counter()
        # connection id -> connection that got a reserved slot, oldest first, with or without a registration
        self._in_reserved: dict[int, ServerConnection] = {}
        self._ids = count(1)

    def __repr__(self) -> str:
        return f"<ConnectionSlots [{len(self.connections)} of {self.limits.max_connections} occupied]>"

    def new_id(self) -> int:
        """The id of the next connection, whether or not it gets a slot; ids grow, and are never reused."""
        return next(self._ids)

    def occupy(self, connection: ServerConnection, make_room: Callable[[ServerConnection], None]) -> bool:
        """Give a connection a slot; True if the slot is a reserved one, so the peer must register a broker.

        While all slots are occupied, `make_room` is called with a connection to close for the new one.

        Raises:
            RemoteProtocolError: the connection gets no slot.
        """
        limits, network = self.limits, connection.peer.network
        if limits.max_connections_per_ip and self._per_network[network] >= limits.max_connections_per_ip:
            message = f"too many connections from one address, limit {limits.max_connections_per_ip}"
            raise RemoteProtocolError(message, reason="connections_per_ip")
        oldest = None
        if len(self.connections) >= limits.max_connections:
            oldest = self._oldest_without_broker()
            if oldest is None:
                message = f"too many connections, limit {limits.max_connections}"
                raise RemoteProtocolError(message, reason="connections")
        if not self._reserve_memory(network, oldest):
            raise RemoteProtocolError("no memory for another connection", reason="memory")
        if oldest is not None:
            make_room(oldest)
        self.connections[connection.id] = connection
        self._per_network[network] += 1
        is_slot_reserved = len(self.connections) > limits.max_connections - limits.reserved_connections
        if is_slot_reserved:
            self._in_reserved[connection.id] = connection
        return is_slot_reserved

    def _reserve_memory(self, network: str, oldest: ServerConnection | None) -> bool:
        """Reserve the memory of a new connection, which may be that of the oldest one; False if too little is left."""
        if oldest is None:
            return self.budget.reserve_connection(network, _CONNECTION_BYTES)
        self.budget.release_connection(oldest.peer.network, _CONNECTION_BYTES)
        is_memory_reserved = self.budget.reserve_connection(network, _CONNECTION_BYTES)
        # The oldest connection holds its memory until it is closed, which happens only if the new one gets its slot.
        self.budget.charge_connection(oldest.peer.network, _CONNECTION_BYTES)
        return is_memory_reserved

    def _oldest_without_broker(self) -> ServerConnection | None:
        """The oldest connection in a reserved slot that has no registration; None if every slot has one.

        A broker registers with its first or second packet, so an old connection without registration is a client.
        """
        # Connections of registered brokers are removed from `_in_reserved`, too: they are never closed to make room.
        while self._in_reserved:
            oldest = next(iter(self._in_reserved.values()))
            if oldest.must_register:
                return oldest
            del self._in_reserved[oldest.id]
        return None

    def leave(self, connection: ServerConnection) -> bool:
        """Free the slot of a connection; False if the connection occupies none."""
        if self.connections.pop(connection.id, None) is None:
            return False
        network = connection.peer.network
        self._in_reserved.pop(connection.id, None)
        self.budget.release_connection(network, _CONNECTION_BYTES)
        self._per_network[network] -= 1
        if not self._per_network[network]:
            del self._per_network[network]
        return True
