"""A server: listens, lets peers in or refuses them, and leaves in good order."""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import count
from typing import Final, Protocol

from namesrv.net.budget import MemoryBudget
from namesrv.net.dispatcher import Dispatcher
from namesrv.net.limits import ServerLimits
from namesrv.net.protocol import FastPath, RequestHandler, ServerConnection
from namesrv.net.read_shares import ReadShares
from namesrv.net.steps import Turns
from namesrv.net.tls import ServerTls, TlsDetector
from namesrv_remoting.aio.socket_options import set_tcp_options
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_runtime.clock import Clock
from namesrv_runtime.periodic import Periodic

BACKLOG: Final = 4096
_TRIES_OF_FREE_PORTS: Final = 16
_SWEEP_SECONDS: Final = 1.0
_SHORTEST_PAUSE_SECONDS: Final = 0.01
# what a connection that does nothing costs
_CONNECTION_BYTES: Final = 8 * 1024


class ConnectionListener(Protocol):
    """Listener of connections; called on the loop, must not block."""

    def connection_opened(self, connection: ServerConnection) -> None:
        """A peer was let in."""

    def connection_closed(self, connection: ServerConnection, reason: str) -> None:
        """A peer that was let in is gone."""

    def connection_refused(self, connection: ServerConnection, error: RemoteProtocolError) -> None:
        """A peer broke the protocol or a limit; its connection is being closed."""


@dataclass(eq=False, repr=False)
class RemotingServer:
    """Listens, and owns all accepted connections, inside the TaskGroup that is handed in: a bug in it ends that."""

    dispatcher: Dispatcher
    listener: ConnectionListener
    _: KW_ONLY
    clock: Clock
    # handlers' tasks belong to it
    tasks: asyncio.TaskGroup
    turns: Turns = field(default_factory=Turns)
    # one for all servers of a process
    read_shares: ReadShares = field(default_factory=ReadShares)
    limits: ServerLimits
    fast_path: FastPath
    # connection id -> connection; all that were let in and are not gone
    connections: dict[int, ServerConnection]
    budget: MemoryBudget
    tls: ServerTls = field(default_factory=ServerTls)
    # whose silence is somebody else's business
    may_be_idle: Callable[[ServerConnection], bool]
    # refusals by reason, for metrics
    refusals: Counter[str] = field(default_factory=Counter, init=False)
    # of all connections that ever were, the closed ones too
    bytes_received: int = field(default=0, init=False)
    bytes_sent: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.handler: RequestHandler = self.dispatcher
        self._sockets_per_network: Counter[str] = Counter()
        # Connections that hold a slot reserved for brokers, by id, the oldest first; some have registered one since.
        self._unconfirmed: dict[int, ServerConnection] = {}
        self._ids = count(1)
        self._servers: list[asyncio.Server] = []

    # -- listening ----------------------------------------------------------------------------------------------------

    async def listen(self, hosts: Sequence[str], port: int) -> list[tuple[str, int]]:
        """Start to accept on every host; the addresses that it listens on. Raises OSError; it then listens on none.

        Port 0 takes a free port for the first host and the same one for the others.
        """
        bound: list[tuple[str, int]] = []
        tries = 1 if port or len(hosts) == 1 else _TRIES_OF_FREE_PORTS
        while not bound:
            tries -= 1
            try:
                bound = await self._bind(hosts, port)
            except OSError as error:
                self.stop_accepting()
                # what is free on the first host need not be so on the others
                if error.errno != errno.EADDRINUSE or not tries:
                    raise
        self.tasks.create_task(Periodic(self.clock, _SWEEP_SECONDS, self._sweep).run())
        return bound

    async def _bind(self, hosts: Sequence[str], port: int) -> list[tuple[str, int]]:
        loop = asyncio.get_running_loop()
        bound: list[tuple[str, int]] = []
        for host in hosts:
            server = await loop.create_server(self._accept, host, port, backlog=BACKLOG)
            self._servers.append(server)
            for listening in server.sockets:
                name = listening.getsockname()
                bound.append((str(name[0]), int(name[1])))
            port = port or bound[0][1]
        return bound

    def _accept(self) -> asyncio.Protocol:
        connection = ServerConnection(self, next(self._ids))
        if self.tls.mode == "off":
            return connection
        return TlsDetector(connection, self.tls, self.read_shares, proxy_protocol=self.limits.proxy_protocol)

    def stop_accepting(self) -> None:
        """Accept no more connections; the open ones stay."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def close_connections(self, connections: Iterable[ServerConnection], over_seconds: float) -> None:
        """Close connections one by one, spread evenly over a time, so that not everybody moves at once."""
        leaving = [connection for connection in connections if connection.is_open]
        started = self.clock.monotonic()
        for number, connection in enumerate(leaving):
            wait = started + over_seconds * number / len(leaving) - self.clock.monotonic()
            # short pauses are saved up: a sleep per connection would be coarser than the spread
            if wait > _SHORTEST_PAUSE_SECONDS:
                await self.clock.sleep(wait)
            connection.close()

    async def drain(self, seconds: float) -> bool:
        """Wait until nothing is in flight; whether that was reached in time."""
        deadline = self.clock.monotonic() + seconds
        while any(connection.in_flight or connection.unsent_bytes for connection in self.connections.values()):
            if self.clock.monotonic() >= deadline:
                return False
            await self.clock.sleep(0.02)
        return True

    def abort_all(self) -> None:
        """Close whatever is still open, at once."""
        for connection in list(self.connections.values()):
            connection.abort()

    # -- what connections call ----------------------------------------------------------------------------------------

    def connection_opened(self, connection: ServerConnection) -> bool:
        """Let a peer in, or not; whether it has to say first that it is a broker."""
        limits, network = self.limits, connection.peer.network
        if limits.max_connections_per_ip and self._sockets_per_network[network] >= limits.max_connections_per_ip:
            message = f"too many connections from one address, limit {limits.max_connections_per_ip}"
            refusal = RemoteProtocolError(message, reason="connections_per_ip")
        elif len(self.connections) >= limits.max_connections and not self._make_room():
            refusal = RemoteProtocolError(f"too many connections, limit {limits.max_connections}", reason="connections")
        elif not self.budget.let_in(network, _CONNECTION_BYTES):
            refusal = RemoteProtocolError("no memory for another connection", reason="memory")
        else:
            self.connections[connection.id] = connection
            self._sockets_per_network[network] += 1
            if (accepted := connection.socket) is not None:
                set_tcp_options(accepted, user_timeout_seconds=limits.tcp_user_timeout_seconds)
            self.listener.connection_opened(connection)
            is_last = len(self.connections) > limits.max_connections - limits.reserved_connections
            if is_last:
                self._unconfirmed[connection.id] = connection
            return is_last
        self.refused(connection, refusal)
        connection.abort()
        return False

    def _make_room(self) -> bool:
        """Close the connection that has held a reserved slot longest without a registration; False if there is none.

        Brokers register with their first packet or two.
        """
        while self._unconfirmed:
            oldest = self._unconfirmed.pop(next(iter(self._unconfirmed)))
            if oldest.must_register:
                self.refused(oldest, RemoteProtocolError("connection slot needed for a broker", reason="connections"))
                oldest.abort()
                # not only when its transport is closed: the next connection is here already
                self.connection_closed(oldest, "closed")
                return True
        return False

    def connection_closed(self, connection: ServerConnection, reason: str) -> None:
        """Forget a peer, and tell the listener if it had been let in."""
        if self.connections.pop(connection.id, None) is None:
            return
        self._unconfirmed.pop(connection.id, None)
        self.budget.let_out(connection.peer.network, _CONNECTION_BYTES)
        if connection.peer.tls_version:
            self.tls.open_connections -= 1
        network = connection.peer.network
        self._sockets_per_network[network] -= 1
        if not self._sockets_per_network[network]:
            del self._sockets_per_network[network]
        self.listener.connection_closed(connection, reason)

    def refused(self, connection: ServerConnection, error: RemoteProtocolError) -> None:
        """Count and report a peer that broke a rule."""
        self.refusals[error.reason] += 1
        self.listener.connection_refused(connection, error)

    async def _sweep(self, lateness: float) -> None:
        # a loop that was itself late has not read what may have come in time
        now = self.clock.monotonic() - lateness
        for connection in list(self.connections.values()):
            connection.check_deadlines(now)
