"""TLS on the server's port: the first byte of a connection shows whether it is TLS, as in Apache's server."""

import asyncio
import ssl
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, cast

from namesrv.net.protocol import ServerConnection, refusal
from namesrv.net.proxy_header import read_proxy_header
from namesrv.net.read_shares import ReadShares
from namesrv.net.tls_transport import TLS_HANDSHAKE, HandshakeListener, HandshakeThreads, TlsTransport
from namesrv_remoting.errors import TLS_REQUIRED_REMARK, RemoteProtocolError
from namesrv_remoting.frames import HEAD, MAX_FRAME_BYTES, MAX_HEADER_BYTES, Frame, needed_bytes
from namesrv_remoting.serializers import decode_frame

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
    # number of open connections that use TLS
    open_connections: int = 0

    def __repr__(self) -> str:
        return f"<ServerTls [{self.mode} | {self.handshakes.total()} handshakes]>"


class TlsDetector(asyncio.Protocol, HandshakeListener):
    """Protocol for the first bytes of a connection: detects TLS or plain text, and passes the connection on."""

    def __init__(
        self, connection: ServerConnection, tls: ServerTls, shares: ReadShares, *, proxy_protocol: bool
    ) -> None:
        self._connection = connection
        self._tls = tls
        self._shares = shares
        # True while a PROXY header may come, which precedes TLS
        self._may_be_proxied = proxy_protocol
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected; the connection counts towards the limits from now on."""
        self._transport = cast("asyncio.Transport", transport)
        self._connection.connection_made(transport)
        if self._tls.mode == "enforcing":
            self._connection.expect_handshake()

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
            self._connection.handshake_over()
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
            self._connection.expect_proxy_header()
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
        if not connection.begin_tls():
            return
        tls = TlsTransport(connection, context, self._tls.threads, self, self._shares)
        tls.take_over(transport)
        connection.move_to(tls)
        tls.data_received(data)

    # -- as the listener of a handshake -------------------------------------------------------------------------------

    def handshake_bytes_wait(self, size: int) -> bool:
        """Reserve memory for received bytes that wait for the handshake; False if the peer is refused instead."""
        return self._connection.hold_handshake_bytes(size)

    def records_wait(self, size: int) -> None:
        """Charge memory for received records that wait to be decrypted; the peer may be refused."""
        self._connection.hold_records(size)

    def handshake_step_began(self) -> None:
        """Hold the handshake deadline while the server computes."""
        self._connection.hold_handshake_deadline()

    def handshake_step_ended(self) -> None:
        """Let the handshake deadline run again."""
        self._connection.resume_handshake_deadline()

    def handshake_completed(self, version: str) -> None:
        """Count the handshake, and let the connection receive requests."""
        self._tls.handshakes[version] += 1
        self._tls.open_connections += 1
        self._connection.handshake_over(version)

    def tls_failed(self, error: RemoteProtocolError) -> None:
        """Refuse the peer after a TLS error."""
        self._connection.refuse(error)

    # -- plain text where TLS is required -----------------------------------------------------------------------------

    def _refuse(self, data: bytes) -> None:
        """Refuse a plain-text peer; if its request's header was received, an error response states the reason."""
        if len(data) >= HEAD.size:
            _, word = HEAD.unpack_from(data)
            try:
                needed_bytes(data, 0, MAX_FRAME_BYTES, MAX_HEADER_BYTES)
                request = decode_frame(Frame(data[4], data[8 : 8 + (word & 0xFFFFFF)], b""))
            except RemoteProtocolError:
                # The bytes are not a request either: the connection is closed without a response.
                pass
            else:
                self._connection.write(refusal(request.serialize_type, request.opaque, TLS_REQUIRED_REMARK))
        self._connection.refuse(RemoteProtocolError(TLS_REQUIRED_REMARK, reason="tls"))
