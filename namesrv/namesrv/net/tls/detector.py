"""TLS on the server's port: the first byte of a connection shows whether it is TLS, as in Apache's server."""

import asyncio
import ssl
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, cast

from namesrv.net.fairness.read_shares import ReadShares
from namesrv.net.protocol import ServerConnection, refusal
from namesrv.net.proxy_header import read_proxy_header
from namesrv.net.tls.connection import ConnectionTls
from namesrv.net.tls.transport import TLS_HANDSHAKE, HandshakeThreads, TlsTransport
from namesrv_remoting.errors import TLS_REQUIRED_REMARK, RemoteProtocolError
from namesrv_remoting.frames import HEAD, MAX_FRAME_BYTES, MAX_HEADER_BYTES, Frame, needed_bytes
from namesrv_remoting.serializers import decode_frame
from namesrv_runtime.clock import Clock

TlsMode = Literal["off", "permissive", "enforcing"]


@dataclass(slots=True)
class ServerTls:
    """The TLS state of a server. Mode and context may change at run time; new connections use the new values."""

    mode: TlsMode = "off"
    # None while TLS is off
    context: ssl.SSLContext | None = None
    threads: HandshakeThreads = field(default_factory=HandshakeThreads)
    # completed handshakes, by protocol version
    handshakes: Counter[str] = field(default_factory=Counter)

    def __repr__(self) -> str:
        return f"<ServerTls [{self.mode} | {self.handshakes.total()} handshakes]>"


class TlsDetector(asyncio.Protocol):
    """Protocol for the first bytes of a connection: detects TLS or plain text, and passes the connection on."""

    def __init__(
        self, connection: ServerConnection, tls: ServerTls, shares: ReadShares, clock: Clock, *, proxy_protocol: bool
    ) -> None:
        self._connection = connection
        self._tls = tls
        self._shares = shares
        self._clock = clock
        self._connection_tls = ConnectionTls(connection, tls.handshakes, clock)
        # True while a PROXY header may come, which precedes TLS
        self._may_be_proxied = proxy_protocol
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected; the connection counts towards the limits from now on."""
        self._transport = cast("asyncio.Transport", transport)
        self._connection.connection_made(transport)
        if self._tls.mode == "enforcing":
            self._connection_tls.expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer has closed the connection."""
        self._connection.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Detect TLS or plain text by the first byte of the connection, or of the bytes after its PROXY header."""
        if self._may_be_proxied:
            data = self._past_proxy_header(data)
        if not data or self._transport is None:
            return
        if data[0] == TLS_HANDSHAKE:
            self._secure(self._transport, data)
        elif self._tls.mode != "enforcing":
            self._transport.set_protocol(self._connection)
            self._connection_tls.is_not_used()
            self._connection.data_received(data)
        else:
            self._refuse(data)

    def _past_proxy_header(self, data: bytes) -> bytes:
        """The bytes after the PROXY header, empty until the header is complete; the connection receives the header."""
        self._received += data
        try:
            header = read_proxy_header(self._received)
        except RemoteProtocolError:
            header = None
            self._connection.data_received(self._received)
        if header is None:
            # The header has the deadline of a first frame, unless that of a handshake runs already.
            self._connection.deadlines.frame_began(self._clock.monotonic(), is_first=True)
            return b""
        self._may_be_proxied = False
        received, self._received = self._received, b""
        if header.size:
            self._connection.data_received(received[: header.size])
        return received[header.size :]

    def _secure(self, transport: asyncio.Transport, data: bytes) -> None:
        connection, context = self._connection, self._tls.context
        if context is None:
            connection.refuse(RemoteProtocolError("TLS received, but TLS is off", reason="tls"))
            return
        if not self._connection_tls.begin():
            return
        tls = TlsTransport(connection, context, self._tls.threads, self._connection_tls, self._shares)
        tls.take_over(transport)
        connection.move_to(tls)
        tls.data_received(data)

    # -- plain text where TLS is required -----------------------------------------------------------------------------

    def _refuse(self, data: bytes) -> None:
        """Refuse a plain-text peer; if its request's header was received, an error response states the reason."""
        if len(data) >= HEAD.size:
            _, word = HEAD.unpack_from(data)
            try:
                needed_bytes(data, 0, MAX_FRAME_BYTES, MAX_HEADER_BYTES)
                request = decode_frame(Frame(data[4], data[HEAD.size : HEAD.size + (word & 0xFFFFFF)], b""))
            except RemoteProtocolError:
                # The bytes are not a request either: the connection is closed without a response.
                pass
            else:
                self._connection.write(refusal(request.serialize_type, request.opaque, TLS_REQUIRED_REMARK))
        self._connection.refuse(RemoteProtocolError(TLS_REQUIRED_REMARK, reason="tls"))
