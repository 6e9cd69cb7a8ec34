"""The daemon's HTTP ports: ASGI applications, served by uvicorn's HTTP/1.1 in the daemon's own loop.

A peer gets little memory and time: a head of 8 KiB, a few seconds to send it, a few to read the response.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Collection
from http import HTTPStatus
from typing import Final, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from namesrv.context import Namesrv
from namesrv.net.fairness.read_shares import ReadShares
from namesrv.net.listeners import listening_on
from namesrv.net.remoting_server import RemotingServer
from namesrv.net.tls.detector import ServerTls
from namesrv.net.tls.transport import TLS_HANDSHAKE, HandshakeListener, TlsTransport
from namesrv.observability.discovery import NAME_SERVERS_PAGE, Discovery
from namesrv.observability.pages import PAGES, application
from namesrv.settings.limits import NAME_SERVERS_CONNECTIONS
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_runtime.http_connection import HttpConnection, HttpConnections, HttpLimits

_BACKLOG: Final = 64
_PLAIN_REFUSED: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"plain HTTP received, but this port speaks HTTPS only\n"
)
# Clients are collectors, a supervisor and a few people; collectors send requests every 15 to 60 s.
LIMITS: Final = HttpLimits(max_connections=32, request_seconds=5.0, idle_seconds=75.0, write_seconds=5.0)
_MAX_HEAD_BYTES: Final = 8 * 1024


# Brokers and clients request the list of NameServers every two minutes, each over a new connection.
NAME_SERVERS_LIMITS: Final = HttpLimits(
    NAME_SERVERS_CONNECTIONS, request_seconds=5.0, idle_seconds=5.0, write_seconds=5.0
)


class HttpListener:
    """Listens, and owns all accepted connections."""

    def __init__(
        self,
        app: ASGIApp,
        counts: Counter[tuple[str, int | str]],
        limits: HttpLimits = LIMITS,
        *,
        tls: ServerTls | None = None,
        read_shares: ReadShares | None = None,
    ) -> None:
        # The certificate with the threads for handshakes; None for plain HTTP.
        self._tls = tls
        # The bytes that each network may have processed in an iteration of the event loop, shared by all ports of
        # the process.
        self._read_shares = read_shares or ReadShares()
        # (path, status, or `tls` for a handshake that failed) -> responses.
        self.counts = counts
        self.connections = HttpConnections(limits, self._count_bad_request)
        self.config = Config(
            app,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            # Unknown peers may send anything: invalid requests are counted, not logged.
            log_level="error",
            access_log=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        )
        self.config.load()
        self.state = ServerState()
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> list[tuple[str, int]]:
        """Start to accept connections; return the bound addresses. Raises OSError if the address cannot be bound."""
        loop = asyncio.get_running_loop()
        with listening_on(host, port):
            self._server = await loop.create_server(self._accept, host, port, backlog=_BACKLOG)
        names = [listening.getsockname() for listening in self._server.sockets]
        return [(str(name[0]), int(name[1])) for name in names]

    def _accept(self) -> asyncio.Protocol:
        connection = HttpConnection(self.config, self.state, {}, open_connections=self.connections)
        return (
            connection if self._tls is None else _HttpsDetector(connection, self._tls, self._read_shares, self.counts)
        )

    async def close(self) -> None:
        """Stop accepting connections, and close the open ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.connections.close()
        # One iteration lets the application see the lost connection: a response that is cut off is then no error.
        await asyncio.sleep(0)
        answering = list(self.state.tasks)
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)

    def _count_bad_request(self) -> None:
        self.counts["other", HTTPStatus.BAD_REQUEST] += 1


def pages_listener(namesrv: Namesrv, server: RemotingServer, discovery: Discovery) -> HttpListener:
    """The listener for health, metrics and discovery."""
    tls = namesrv.certificates.https if namesrv.settings.current.http_tls else None
    counts = namesrv.counters.http
    app = _counting(application(namesrv, server, discovery), PAGES, counts)
    return HttpListener(app, counts, tls=tls, read_shares=server.read_shares)


def name_servers_listener(namesrv: Namesrv, discovery: Discovery) -> HttpListener:
    """The listener with the list of NameServers alone, in plain HTTP, as RocketMQ's clients request the list."""
    counts = namesrv.counters.http
    app = _counting(discovery.name_servers_application(), (NAME_SERVERS_PAGE,), counts)
    return HttpListener(app, counts, NAME_SERVERS_LIMITS)


def _counting(app: ASGIApp, paths: Collection[str], counts: Counter[tuple[str, int | str]]) -> ASGIApp:
    """The application, with its responses counted by path and status; unknown paths are counted together."""

    async def count(scope: Scope, receive: Receive, send: Send) -> None:
        async def count_and_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                path = scope["path"]
                counts[path if path in paths else "other", message["status"]] += 1
            await send(message)

        # Only the end of the listener cancels a request, and uvicorn would log the cancellation as an error.
        with contextlib.suppress(asyncio.CancelledError):
            await app(scope, receive, count_and_send)

    return count


class _HttpsDetector(asyncio.Protocol, HandshakeListener):
    """Checks the first byte of a connection that should be HTTPS; a peer with plain HTTP receives an error message.

    The deadline of the request runs on during handshake steps, since the handshake threads belong to this port.
    """

    def __init__(
        self,
        connection: HttpConnection,
        tls: ServerTls,
        read_shares: ReadShares,
        counts: Counter[tuple[str, int | str]],
    ) -> None:
        # A port that starts with a certificate always has one: plain HTTP never takes its place.
        assert tls.context is not None  # noqa: S101 - see the comment above
        self._connection = connection
        self._tls = TlsTransport(connection, tls.context, tls.threads, self, read_shares)
        self._counts = counts

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass a new connection on to the TLS transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._tls.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release a connection that closed before its first byte, as port checks do."""
        self._tls.closed_without_tls(exc)

    def data_received(self, data: bytes) -> None:
        """Continue with TLS, or refuse the connection."""
        if data[0] == TLS_HANDSHAKE:
            self._transport.set_protocol(self._tls)
            self._tls.data_received(data)
            return
        self._counts["other", HTTPStatus.BAD_REQUEST] += 1
        self._transport.write(_PLAIN_REFUSED)
        self._transport.close()

    def tls_failed(self, error: RemoteProtocolError) -> None:  # noqa: ARG002 - a count is enough
        """Count the failed handshake, and close the connection."""
        self._counts["other", "tls"] += 1
        self._tls.close()
