"""The daemon's HTTP port: an ASGI application, served by uvicorn's HTTP/1.1 in the daemon's own loop.

A peer has little room and little time: a head of 8 KiB, a few seconds to send it, a few to read the answer.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, cast

import h11
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from namesrv_remoting.aio.read_shares import ReadShares
from namesrv_remoting.aio.tls_server import ServerTls
from namesrv_remoting.aio.tls_transport import TLS_HANDSHAKE, TlsTransport
from namesrv_remoting.errors import RemoteProtocolError

_BACKLOG: Final = 64
_PLAIN_REFUSED: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"plain HTTP received, but this port speaks HTTPS only\n"
)


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The bounds of an HTTP server."""

    # A collector, a supervisor and a few people; who comes after that takes the place of the one that waits longest.
    max_connections: int = 32
    max_head_bytes: int = 8 * 1024
    # from connecting, or from the first byte of a further request, to its end
    request_seconds: float = 5.0
    # between an answer and the next request; collectors ask every 15 to 60 s
    idle_seconds: float = 75.0
    # to read an answer
    write_seconds: float = 5.0


class HttpListener:
    """Listens, and owns all accepted connections."""

    def __init__(
        self,
        app: ASGIApp,
        counts: Counter[tuple[str, int | str]],
        limits: HttpLimits = HttpLimits(),
        *,
        tls: ServerTls | None = None,
        read_shares: ReadShares | None = None,
    ) -> None:
        self.limits = limits
        # the certificate and the threads for it; None: plain HTTP
        self._tls = tls
        # what each peer address may have processed in an iteration of the loop: one for all ports of the process
        self._read_shares = read_shares or ReadShares()
        # (path, status, or `tls` for a handshake that failed) -> answers
        self.counts = counts
        self.config = Config(
            app,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            # whatever a stranger sends is worth a count and no line
            log_level="error",
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]  # handed on to call_later
            h11_max_incomplete_event_size=limits.max_head_bytes,
        )
        self.config.load()
        self.state = ServerState()
        # the one that has been doing nothing for longest comes first
        self.connections: dict[HttpConnection, None] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> list[tuple[str, int]]:
        """Start to accept; the addresses that it listens on. Raises OSError if the address cannot be bound."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, host, port, backlog=_BACKLOG)
        names = [listening.getsockname() for listening in self._server.sockets]
        return [(str(name[0]), int(name[1])) for name in names]

    def _accept(self) -> asyncio.Protocol:
        connection = HttpConnection(self)
        return (
            connection if self._tls is None else _HttpsDetector(connection, self._tls, self._read_shares, self.counts)
        )

    async def close(self) -> None:
        """Accept no more connections, and close the open ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.connections):
            connection.abort()
        # an answer that is cut off is no error of the application once its connection is known to be lost
        await asyncio.sleep(0)
        answering = list(self.state.tasks)
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)

    def connection_opened(self, connection: "HttpConnection") -> None:
        """Let a peer in, if need be in the place of one that waits."""
        if self._server is None:
            connection.abort()
            return
        if len(self.connections) >= self.limits.max_connections:
            longest = next((known for known in self.connections if known.is_waiting), connection)
            self.connections.pop(longest, None)
            longest.abort()
            if longest is connection:
                return
        self.connections[connection] = None


class _HttpsDetector(asyncio.Protocol):
    """The first byte of a connection that should be HTTPS; whoever speaks plain HTTP is told so."""

    def __init__(
        self,
        connection: "HttpConnection",
        tls: ServerTls,
        read_shares: ReadShares,
        counts: Counter[tuple[str, int | str]],
    ) -> None:
        # never plain HTTP in its place
        assert tls.context is not None  # noqa: S101 - what began with one is never without
        self._connection = connection
        self._tls = TlsTransport(connection, tls.context, tls.threads, self, read_shares)
        self._counts = counts

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._tls.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone, and has said nothing: so do those who only look whether the port is open."""
        self._connection.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Go on with TLS, or refuse."""
        if data[0] == TLS_HANDSHAKE:
            self._transport.set_protocol(self._tls)
            self._tls.data_received(data)
            return
        self._counts["other", HTTPStatus.BAD_REQUEST] += 1
        self._transport.write(_PLAIN_REFUSED)
        self._transport.close()

    def handshake_step_began(self) -> None:
        """The time for a request goes on: the threads are this port's own."""

    def handshake_step_ended(self) -> None:
        """The same."""

    def handshake_completed(self, version: str) -> None:
        """The request comes next."""

    def tls_failed(self, error: RemoteProtocolError) -> None:  # noqa: ARG002 - a count says enough
        """Count it, and close the connection."""
        self._counts["other", "tls"] += 1
        self._tls.close()


class HttpConnection(H11Protocol):
    """One peer: uvicorn's protocol, with deadlines for what is the peer's turn."""

    def __init__(self, listener: HttpListener) -> None:
        super().__init__(listener.config, listener.state, {})
        self._listener = listener
        self._deadline: asyncio.TimerHandle | None = None
        self._is_write_paused = False

    @property
    def is_waiting(self) -> bool:
        """Whether it is the peer's turn: closing it loses no answer."""
        return not self._is_answering and not self._is_write_paused

    @property
    def _is_answering(self) -> bool:
        # there is none before the first request, whatever uvicorn's annotation says
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def abort(self) -> None:
        """End it at once."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A peer has connected."""
        super().connection_made(transport)
        # paused as long as anything is unsent
        transport.set_write_buffer_limits(high=0)
        self._give(self._listener.limits.request_seconds)
        self._listener.connection_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        self._take_deadline()
        # uvicorn does this only for a connection that ended without an error
        self._unset_keepalive_if_required()
        self._listener.connections.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; a request that has begun has to end in time."""
        if self._deadline is None:
            self._give(self._listener.limits.request_seconds)
        super().data_received(data)
        if not self.is_waiting:
            self._take_deadline()

    def on_response_complete(self) -> None:
        """Let the peer ask again; one that did not wait for its answer, and may never read it, is closed."""
        if self in self._listener.connections:
            # others wait for longer
            self._listener.connections[self] = self._listener.connections.pop(self)
        if self.conn.trailing_data[0]:
            self.transport.close()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """The request is not valid HTTP."""
        self._listener.counts["other", HTTPStatus.BAD_REQUEST] += 1
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            # in the middle of an answer, or after a first one like it
            self.abort()

    def pause_writing(self) -> None:
        """The peer has something to read."""
        super().pause_writing()
        self._is_write_paused = True
        self._give(self._listener.limits.write_seconds)

    def resume_writing(self) -> None:
        """It has read everything."""
        self._is_write_paused = False
        self._take_deadline()
        super().resume_writing()

    def _give(self, seconds: float) -> None:
        self._take_deadline()
        self._deadline = self.loop.call_later(seconds, self.abort)

    def _take_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
