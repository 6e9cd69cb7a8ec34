"""The servers of a client, in the order in which they are tried."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from namesrv_client.routes.servers.server import Server
from namesrv_client.settings import ClientSettings
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_runtime.clock import Clock
from namesrv_runtime.server_events import ServerEvents


class ServerOrder:
    """The servers in the order in which they are tried; the first is the chosen one."""

    def __init__(
        self,
        settings: ClientSettings,
        clock: Clock,
        *,
        protocols: ServerProtocols,
        shuffle: Callable[[list[str]], None],
        events: ServerEvents,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._protocols = protocols
        self._shuffle = shuffle
        self._events = events
        self._servers: list[Server] = []
        self._closing: set[asyncio.Task[None]] = set()
        # address of the chosen server that failed or was silent; None once another server has answered in its place, or
        # this server has answered as the chosen one again
        self._failed: str | None = None
        # number of times that another server answered in place of a failed or silent one
        self.failovers = 0

    def __repr__(self) -> str:
        return f"<ServerOrder [{', '.join(server.address for server in self)}]>"

    def __len__(self) -> int:
        return len(self._servers)

    def __iter__(self) -> Iterator[Server]:
        """The servers in their order now; any thread may iterate."""
        return iter(tuple(self._servers))

    @property
    def chosen(self) -> Server | None:
        """The chosen server; None if no server is known."""
        return self._servers[0] if self._servers else None

    def use(self, addresses: tuple[str, ...]) -> None:
        """Use another list of servers: the chosen server stays first if it is in the list, the others are shuffled."""
        order = self._shuffled(addresses)
        if self.chosen is not None and self.chosen.address in order:
            order.remove(self.chosen.address)
            order.insert(0, self.chosen.address)
        old = {server.address: server for server in self._servers}
        self._servers = [
            old.pop(address)
            if address in old
            else Server(address, self._settings, self._clock, self._protocols, self._events)
            for address in order
        ]
        for server in old.values():
            self._finish(server.close())
        self._events.servers_changed(addresses)

    def _shuffled(self, addresses: tuple[str, ...]) -> list[str]:
        order = list(addresses)
        self._shuffle(order)
        return order

    def at_random(self) -> Server | None:
        """A server at random; None if no server is known."""
        servers = {server.address: server for server in self._servers}
        order = self._shuffled(tuple(servers))
        return servers[order[0]] if order else None

    async def close(self) -> None:
        """Close all connections."""
        self.use(())
        if self._closing:
            await asyncio.wait(self._closing)

    def disconnect(self, server: Server) -> None:
        """Begin to close the connection to a server."""
        self._finish(server.disconnect())

    def _finish(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def choose(self, server: Server) -> None:
        """Make a server the chosen one."""
        self._servers.remove(server)
        self._servers.insert(0, server)

    def put_last(self, server: Server) -> None:
        """Move a server that failed or is silent to the end."""
        if server is self.chosen and self._failed is None:
            self._failed = server.address
        self._servers.remove(server)
        self._servers.append(server)

    def answered(self, server: Server) -> None:
        """Count a failover if a server has answered in place of the chosen one, which failed or was silent."""
        if server.address == self._failed and server is not self.chosen:
            # The failed server itself answered, late or recovered, but is not the chosen one again: no failover yet.
            return
        if self._failed not in (None, server.address):
            self.failovers += 1
        self._failed = None
