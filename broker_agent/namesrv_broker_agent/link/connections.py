"""The connections of the link to one NameServer: the current one, and for a while earlier ones."""

import asyncio
import os
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from namesrv_broker_agent.own_broker import OwnBroker
from namesrv_broker_agent.protocols import BrokerProtocol, NativeProtocol, RocketmqProtocol
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import ConnectionClosedError
from namesrv_runtime.clock import Clock

_LOST: Final = "was lost"


class LinkConnections:
    """The current connection to a server, the former one, and the one that has the broker's registration.

    Earlier connections are kept until the server has accepted a registration over the current one: if the agent closed
    them earlier, a server that was only slow, or that the network had cut off, would evict the broker for a moment.
    A slow server may also have the registration of the former connection, whose response came after the timeout.

    Each connection is a RemotingClient that is not used after its first loss, because it would connect again by itself.
    Only while the protocol is chosen may it do so: an Apache server may close the connection on a native request.
    """

    def __init__(  # noqa: PLR0913 - keyword arguments
        self,
        address: str,
        broker: OwnBroker,
        *,
        clock: Clock,
        protocols: ServerProtocols,
        on_request: Callable[[RemotingCommand], None],
        on_lost: Callable[[], None],
    ) -> None:
        self.address = address
        self._broker = broker
        self._clock = clock
        self._protocols = protocols
        self._on_request = on_request
        # called when the current connection ends
        self._on_lost = on_lost
        self._client: RemotingClient | None = None
        self._former: RemotingClient | None = None
        # the connection over which the server has accepted the last registration: the current one or an earlier one
        self._registered_client: RemotingClient | None = None
        # why the current connection must not be used any more; None while it may be used
        self._unusable_because: str | None = None
        # the protocol that was chosen last
        self.protocol: BrokerProtocol | None = None

    def __repr__(self) -> str:
        return f"<LinkConnections [{self._client!r} | former {self._former!r}]>"

    @property
    def protocol_name(self) -> str | None:
        """The name of the protocol that was chosen last; None before the first choice."""
        return None if self.protocol is None else self.protocol.name

    @property
    def is_usable(self) -> bool:
        """True unless the current connection was lost or given up."""
        return self._unusable_because is None

    def check_usable(self) -> None:
        """Raise ConnectionClosedError if the current connection was lost or given up."""
        if self._unusable_because is not None:
            raise ConnectionClosedError(f"connection to {self.address} {self._unusable_because}")

    def give_up(self, why: str) -> None:
        """Stop using the current connection, open or being opened."""
        self._unusable_because = why

    def socket_descriptors(self) -> list[int]:
        """File descriptors of the open connections."""
        descriptors = (client.socket_descriptor for client in self._clients())
        return [descriptor for descriptor in descriptors if descriptor is not None]

    def has_one_of(self, descriptors: Collection[int]) -> bool:
        """True if the current connection has one of these descriptors."""
        return self._client is not None and self._client.socket_descriptor in descriptors

    def open_client(self) -> RemotingClient | None:
        """The client of the current connection if it is open, else that of an earlier one that is open."""
        return next((client for client in self._clients() if client.connected), None)

    def _clients(self) -> list[RemotingClient]:
        clients = dict.fromkeys((self._client, self._former, self._registered_client))
        return [client for client in clients if client is not None]

    async def replace(self, timeout_factor: float) -> RemotingClient:
        """Make a new client, which connects with its first request, and return it as the current connection.

        The current one so far becomes the former one if it is open; if it was lost or never opened, the former one
        stays. The connection that has no further use is closed, unless it has the broker's registration.
        """
        is_open = self._client is not None and self._client.connected
        if is_open:
            superseded, former = self._former, self._client
        else:
            superseded, former = self._client, self._former
        if superseded is not None and superseded is not self._registered_client:
            await _shut_down(superseded)
        client = self._new_client(timeout_factor)
        self._former, self._client = former, client
        self._unusable_because = None
        return client

    def _new_client(self, timeout_factor: float) -> RemotingClient:
        """A new client, not connected yet."""

        def lost(error: ConnectionClosedError) -> None:  # noqa: ARG001 - the next call raises an error of its own
            if client is self._client:
                if self._unusable_because is None:
                    self._unusable_because = _LOST
                self._on_lost()

        settings = self._broker.settings
        client = RemotingClient(
            self.address,
            clock=self._clock,
            tls=settings.client_tls,
            connect_timeout_seconds=settings.connect_timeout_seconds * timeout_factor,
            tcp_user_timeout_seconds=settings.response_timeout_seconds,
            fail_fast=False,
            on_request=self._on_request,
            on_connection_lost=lost,
            protocols=self._protocols,
            credentials=settings.credentials(self._clock.wall),
        )
        return client

    async def choose_protocol(self, client: RemotingClient, timeout_seconds: float) -> BrokerProtocol:
        """Choose the protocol that the settings name, or the best one that the server understands."""
        wanted = self._broker.settings.protocol
        is_native = await self._is_native(client, timeout_seconds) if wanted == "auto" else wanted == "native"
        self.protocol = (NativeProtocol if is_native else RocketmqProtocol)(self._broker, timeout_seconds)
        return self.protocol

    async def _is_native(self, client: RemotingClient, timeout_seconds: float) -> bool:
        """True if the server understands the native protocol, which a native request finds out unless it is known."""
        is_native = client.speaks_native()
        if is_native is None:
            is_native = await client.server_info(timeout_seconds) is not None
            # An Apache server may close the connection on a native request; that is not a lost connection.
            if self._unusable_because == _LOST:
                self._unusable_because = None
        return is_native

    async def close_earlier(self) -> None:
        """Close all earlier connections, because the server has accepted a registration over the current one."""
        earlier = [client for client in self._clients() if client is not self._client]
        for client in earlier:
            await _shut_down(client)
        # The earlier connections stay in these fields until all of them are closed, so that `close` finds them if this
        # task is cancelled meanwhile.
        self._former, self._registered_client = None, self._client

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(client.close() for client in self._clients()))


async def _shut_down(client: RemotingClient) -> None:
    """Close a connection, also if other processes have its socket open."""
    if (descriptor := client.socket_descriptor) is not None:
        # A child that this process has forked may have inherited the socket. A close in this process alone would leave
        # the connection open, and the server would keep the broker until the child ends; a shutdown ends it for all.
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as shared:
            shared.shutdown(socket.SHUT_RDWR)
    await client.close()
