"""Opens connections to one server: looks up its name, makes the TLS handshake, and sets the options of the socket."""

import asyncio
from typing import Final

from namesrv_remoting.aio.client_connection import ClientConnection, OnLost, OnRequest
from namesrv_remoting.aio.credentials import Credentials
from namesrv_remoting.aio.happy_eyeballs import reachable_address
from namesrv_remoting.aio.socket_options import set_tcp_options
from namesrv_remoting.aio.tls import ClientTls, TlsError, why_lost, why_not_connected
from namesrv_runtime.address import parse_address
from namesrv_runtime.clock import Clock, timeout_on
from namesrv_runtime.threads import in_thread, thread_starts

# The errors of a failed connect. An invalid host name raises UnicodeError when it is encoded for the resolver.
CONNECT_ERRORS: Final = (OSError, UnicodeError, TlsError)


class Connector:
    """Opens connections to the server at one address, each within the connect timeout."""

    def __init__(  # noqa: PLR0913 - keyword arguments
        self,
        address: str,
        *,
        clock: Clock,
        tls: ClientTls | None,
        connect_timeout_seconds: float,
        tcp_user_timeout_seconds: float,
        max_frame_bytes: int,
        on_request: OnRequest | None,
        credentials: Credentials | None,
    ) -> None:
        """Keep the settings for each connection; RemotingClient documents them."""
        self._address = address
        self._host, self._port = parse_address(address)
        self._clock = clock
        self._tls = tls
        self._connect_timeout_seconds = connect_timeout_seconds
        self._tcp_user_timeout_seconds = tcp_user_timeout_seconds
        self._max_frame_bytes = max_frame_bytes
        self._on_request = on_request
        self._credentials = credentials

    def __repr__(self) -> str:
        return f"<Connector [{self._address} | {'plain text' if self._tls is None else 'TLS'}]>"

    async def open(self, on_lost: OnLost) -> ClientConnection:
        """Open a connection; `on_lost` is called once it ends, also if `open` itself fails. Raises CONNECT_ERRORS."""
        async with timeout_on(self._clock, self._connect_timeout_seconds):
            context = None if self._tls is None else await in_thread(self._tls.context)
            address = await reachable_address(self._host, self._port, self._clock)
            connection = ClientConnection(
                self._address,
                max_frame_bytes=self._max_frame_bytes,
                on_request=self._on_request,
                on_lost=on_lost,
                credentials=self._credentials,
            )
            server_hostname = None if context is None else self._host
            try:
                # asyncio's own loop looks up an address with an interface, fe80::1%eth0, in a thread.
                with thread_starts():
                    transport, _ = await asyncio.get_running_loop().create_connection(
                        lambda: connection, address, self._port, ssl=context, server_hostname=server_hostname
                    )
                socket = transport.get_extra_info("socket")
                set_tcp_options(socket, user_timeout_seconds=self._tcp_user_timeout_seconds)
            except BaseException:
                # The connection may have been opened at the very moment of the timeout, or of closing the client. Its
                # end is not awaited, because uvloop closes such a transport itself, and never calls connection_lost.
                connection.abort()
                raise
            return connection

    def why_failed(self, error: Exception) -> str:
        """The reason of a failed `open` in words."""
        reason = why_lost(error) if self._tls is None else why_not_connected(error)
        return reason or f"timed out after {self._connect_timeout_seconds} s"
