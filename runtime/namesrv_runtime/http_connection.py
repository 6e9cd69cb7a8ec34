"""uvicorn's HTTP/1.1 connections, with deadlines for the peer and a bound on how many are open.

uvicorn limits the size of a head, the pause between two requests and the requests in work. It limits neither the time
in which a head arrives nor the time in which a response is read, so that a slow peer could hold a connection for ever;
and an idle connection counts as much as a busy one.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The bounds of an HTTP server."""

    # one more connection takes the place of the one that has been idle for longest
    max_connections: int
    # time for the head of a request, from connecting or from the first byte of a further request
    request_seconds: float
    # time between a response and the next request
    idle_seconds: float
    # time for the peer to read a response
    write_seconds: float


class HttpConnections:
    """The open connections of one server; `bad_request` is called for each request that is not valid HTTP."""

    def __init__(self, limits: HttpLimits, bad_request: Callable[[], None] = lambda: None) -> None:
        self.limits = limits
        self.bad_request = bad_request
        # idle for longest first
        self._open: dict[HttpConnection, None] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, connection: "HttpConnection") -> None:
        """Add a connection, if need be in the place of an idle one; a full server without idle ones refuses it."""
        if self._is_closed:
            connection.abort()
            return
        if len(self._open) >= self.limits.max_connections:
            longest = next((known for known in self._open if known.is_idle), connection)
            self._open.pop(longest, None)
            longest.abort()
            if longest is connection:
                return
        self._open[connection] = None

    def answered(self, connection: "HttpConnection") -> None:
        """Count a connection as idle from now on."""
        if connection in self._open:
            self._open[connection] = self._open.pop(connection)

    def closed(self, connection: "HttpConnection") -> None:
        """Remove a connection."""
        self._open.pop(connection, None)

    def close(self) -> None:
        """Abort all connections, and each new one."""
        self._is_closed = True
        for connection in list(self._open):
            connection.abort()


class HttpConnection(H11Protocol):
    """One peer: uvicorn's protocol, which closes a connection when the peer misses a deadline."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        open_connections: HttpConnections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._open_connections = open_connections
        self.timeout_keep_alive = open_connections.limits.idle_seconds  # type: ignore[assignment]  # call_later takes it
        self._deadline: asyncio.TimerHandle | None = None
        self._is_write_paused = False

    @property
    def is_idle(self) -> bool:
        """Whether the server waits for the peer's next request: closing the connection loses no response."""
        # None before the first request, although uvicorn's annotation excludes that.
        cycle: RequestResponseCycle | None = self.cycle
        is_answering = cycle is not None and not cycle.response_complete
        return not is_answering and not self._is_write_paused

    def abort(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start the deadline for the first request."""
        super().connection_made(transport)
        # Paused as long as anything is unsent. With 0, asyncio's TLS transport pauses although nothing is unsent.
        transport.set_write_buffer_limits(high=1)
        self._start_deadline(self._open_connections.limits.request_seconds)
        self._open_connections.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_deadline()
        # uvicorn does this only for a connection that ended without an error
        self._unset_keepalive_if_required()
        self._open_connections.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; the head of a request that has begun has to arrive in time."""
        if self._deadline is None:
            self._start_deadline(self._open_connections.limits.request_seconds)
        super().data_received(data)
        # The deadline for reading a response runs on, whatever the peer sends.
        if not self.is_idle and not self._is_write_paused:
            self._stop_deadline()

    def on_response_complete(self) -> None:
        """Wait for the next request; a peer that already sent one may never read its response, and is closed."""
        self._open_connections.answered(self)
        if self.conn.trailing_data[0]:
            self.transport.close()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that is not valid HTTP."""
        self._open_connections.bad_request()
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            # A response has begun, or a refusal was sent: the connection can only be closed.
            self.abort()

    def pause_writing(self) -> None:
        """Start the deadline for reading a response."""
        super().pause_writing()
        self._is_write_paused = True
        self._start_deadline(self._open_connections.limits.write_seconds)

    def resume_writing(self) -> None:
        """Stop the deadline: the peer has read everything."""
        self._is_write_paused = False
        self._stop_deadline()
        if self.is_idle and self.conn.trailing_data[0]:
            # The next request has begun, and its head has to arrive in time.
            self._start_deadline(self._open_connections.limits.request_seconds)
        super().resume_writing()

    def _start_deadline(self, seconds: float) -> None:
        self._stop_deadline()
        self._deadline = self.loop.call_later(seconds, self.abort)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
