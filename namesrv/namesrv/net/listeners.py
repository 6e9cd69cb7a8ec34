"""Listening sockets of a server: each accepted connection gets the name of its listener."""

import asyncio
import errno
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Final

from namesrv.net.peer import Peer, address_text
from namesrv.net.protocol import ServerConnection
from namesrv.net.remoting_server import RemotingServer
from namesrv.net.tls.detector import ServerTls, TlsDetector
from namesrv_remoting.address_views import DEFAULT_LISTENER

BACKLOG: Final = 4096
# Connections that a listening socket accepts in one iteration of the loop. libuv accepts one connection for each handle
# of the socket, so the socket has this many handles. An iteration may take 10 ms under attack: with a single handle, a
# broker that connects after a thousand peers would be accepted after 10 s. A handle that finds no connection takes 2
# microseconds.
_ACCEPTED_AT_ONCE: Final = 8
_TRIES_OF_FREE_PORTS: Final = 16


@contextmanager
def listening_on(host: str, port: int) -> Iterator[None]:
    """Context in which an OSError gets a text that names the address once, as it is in the settings."""
    try:
        yield
    except OSError as error:
        # The text of asyncio has the address as a Python tuple; the numbers of the resolver's errors are negative.
        number = error.errno or 0
        reason = (os.strerror(number) if number > 0 else str(error.strerror)).lower()
        raise OSError(error.errno, f"cannot listen on {address_text((host, port))}: {reason}") from error


class Listeners:
    """All listeners of a server; a listener has a name, and a socket for each host."""

    def __init__(self, server: RemotingServer, tls: ServerTls) -> None:
        # the owner of accepted connections
        self._server = server
        self._tls = tls
        # the handles of all sockets
        self._servers: list[asyncio.Server] = []

    def __repr__(self) -> str:
        return f"<Listeners [{len(self._servers)} handles]>"

    async def open(
        self, hosts: Sequence[str], port: int, further: Mapping[str, int] = MappingProxyType({})
    ) -> list[tuple[str, int]]:
        """Listen on every host and return the addresses. Raises OSError, after closing all listening sockets.

        Port 0 takes a free port on the first host, and uses the same port on the other hosts. `further` has the names
        of further listeners on the same hosts, and their ports; their addresses follow.
        """
        tries = 1 if port or len(hosts) == 1 else _TRIES_OF_FREE_PORTS
        while True:
            tries -= 1
            try:
                bound = await self._bind(hosts, port, DEFAULT_LISTENER)
                for name, further_port in further.items():
                    bound += await self._bind(hosts, further_port, name)
            except OSError as error:
                self.close()
                # A port that is free on the first host may be in use on another host.
                if error.errno != errno.EADDRINUSE or not tries:
                    raise
            else:
                return bound

    async def _bind(self, hosts: Sequence[str], port: int, name: str) -> list[tuple[str, int]]:
        loop = asyncio.get_running_loop()
        bound: list[tuple[str, int]] = []
        for host in hosts:
            accept = partial(self._accept, name)
            with listening_on(host, port):
                server = await loop.create_server(accept, host, port, backlog=BACKLOG)
            self._servers.append(server)
            for listening in server.sockets:
                address = listening.getsockname()
                bound.append((str(address[0]), int(address[1])))
                for _ in range(1, _ACCEPTED_AT_ONCE):
                    same = socket.fromfd(listening.fileno(), listening.family, listening.type)
                    self._servers.append(await loop.create_server(accept, sock=same, backlog=BACKLOG))
            port = port or bound[0][1]
        return bound

    def _accept(self, name: str) -> asyncio.Protocol:
        server = self._server
        connection = ServerConnection(server, server.slots.new_id(), Peer(listener=name))
        if self._tls.mode == "off":
            return connection
        proxy_protocol = server.limits.proxy_protocol
        return TlsDetector(connection, self._tls, server.read_shares, server.clock, proxy_protocol=proxy_protocol)

    def close(self) -> None:
        """Accept no more connections; open connections stay open."""
        for server in self._servers:
            server.close()
        self._servers.clear()
