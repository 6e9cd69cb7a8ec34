"""The connections of brokers: each broker's own (in its live entry), and others over which the broker was seen."""

from typing import Final, NamedTuple

from namesrv.routeinfo.tables.records import BrokerAddrInfo

# Connections per broker that are remembered besides its own. A hostile peer may name all brokers in heartbeats over all
# of its connections; a broker that reconnects has two or three.
MAX_OTHER_CONNECTIONS: Final = 16


class OtherConnection(NamedTuple):
    """Requests of a broker over a connection other than its own; the greatest of these values takes over."""

    # True for a registration, False for heartbeats only.
    registered: bool
    # Time of the broker's last request over the connection.
    last_seen: float


class BrokerConnections:
    """The index from connections to brokers, and back; `RouteTables` keeps it in step with the live entries.

    1. A broker's own connection is that of its live entry; no broker's own connection is one of its others.
    2. A broker without a live entry has no connection.
    """

    def __init__(self) -> None:
        # Connection -> the brokers whose live entry names it; never an empty set.
        self.brokers_on: dict[int, set[BrokerAddrInfo]] = {}
        # Broker -> other connections of the broker -> the requests over them; at most MAX_OTHER_CONNECTIONS.
        self.others: dict[BrokerAddrInfo, dict[int, OtherConnection]] = {}
        # The reverse index: connection -> brokers in `others`.
        self.brokers_by_other: dict[int, set[BrokerAddrInfo]] = {}

    def __repr__(self) -> str:
        return f"<BrokerConnections [{len(self.brokers_on)} own | {len(self.brokers_by_other)} others]>"

    def others_of(self, key: BrokerAddrInfo) -> dict[int, OtherConnection]:
        """Return the other connections of a broker; not to be modified."""
        return self.others.get(key) or {}

    def set_own(self, key: BrokerAddrInfo, connection_id: int, before: int | None) -> None:
        """Make a connection the broker's own, in place of the one before."""
        if before is not None:
            _discard(self.brokers_on, before, key)
        self.brokers_on.setdefault(connection_id, set()).add(key)
        self._forget_other(key, connection_id)

    def drop_broker(self, key: BrokerAddrInfo, connection_id: int) -> None:
        """Drop a broker, whose own connection is this one."""
        _discard(self.brokers_on, connection_id, key)
        for other in list(self.others_of(key)):
            self._forget_other(key, other)

    def note_other(self, key: BrokerAddrInfo, connection_id: int, other: OtherConnection) -> None:
        """Note the requests of a broker over a connection that is not its own."""
        connections = self.others.setdefault(key, {})
        known = connections.get(connection_id)
        if known is None and len(connections) >= MAX_OTHER_CONNECTIONS:
            self._forget_other(key, min(connections, key=connections.__getitem__))
        registered = other.registered or (known is not None and known.registered)
        connections[connection_id] = OtherConnection(registered, other.last_seen)
        self.brokers_by_other.setdefault(connection_id, set()).add(key)

    def forget(self, connection_id: int) -> None:
        """Drop a closed connection from the connections that may take over a broker."""
        for key in list(self.brokers_by_other.get(connection_id, ())):
            self._forget_other(key, connection_id)

    def _forget_other(self, key: BrokerAddrInfo, connection_id: int) -> None:
        connections = self.others.get(key)
        if connections is None or connections.pop(connection_id, None) is None:
            return
        if not connections:
            del self.others[key]
        _discard(self.brokers_by_other, connection_id, key)


def _discard(index: dict[int, set[BrokerAddrInfo]], connection_id: int, key: BrokerAddrInfo) -> None:
    keys = index[connection_id]
    keys.discard(key)
    if not keys:
        del index[connection_id]
