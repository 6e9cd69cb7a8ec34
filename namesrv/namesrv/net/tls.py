"""TLS on a server's port: the first byte of a connection says whether it is TLS, as to Apache's server."""

import asyncio
import ssl
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from namesrv.net.protocol import ServerConnection, refusal
from namesrv.net.proxy_header import read_proxy_header
from namesrv.net.read_shares import ReadShares
from namesrv.net.tls_transport import TLS_HANDSHAKE, HandshakeThreads, TlsTransport
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import HEAD, MAX_FRAME_BYTES, MAX_HEADER_BYTES, Frame, needed_bytes
from namesrv_remoting.serializers import decode_frame

TlsMode = Literal["off", "permissive", "enforcing"]

_PLAIN_REFUSED: Final = "plain text received, but this server requires TLS (Java peers: tls.enable=true)"


@dataclass(slots=True)
class ServerTls:
    """How a server deals with TLS. Mode and context may change: the next connection gets those."""

    mode: TlsMode = "off"
    # None when it is off
    context: ssl.SSLContext | None = None
    threads: HandshakeThreads = field(default_factory=HandshakeThreads)
    # completed handshakes, by protocol version
    handshakes: Counter[str] = field(default_factory=Counter)
    # those of the server's connections that speak TLS now
    open_connections: int = 0

    def __repr__(self) -> str:
        return f"<ServerTls [{self.mode} | {self.handshakes.total()} handshakes]>"


class TlsDetector(asyncio.Protocol):
    """Looks at the beginning of a connection, and hands it on to plain text or TLS."""

    def __init__(
        self, connection: ServerConnection, tls: ServerTls, shares: ReadShares, *, proxy_protocol: bool
    ) -> None:
        self._connection = connection
        self._tls = tls
        self._shares = shares
        # a PROXY header may come first, before any TLS
        self._may_be_proxied = proxy_protocol
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected: it counts from now on."""
        self._transport = cast("asyncio.Transport", transport)
        self._connection.connection_made(transport)
        if self._tls.mode == "enforcing":
            self._connection.expect_handshake()

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        self._connection.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Look at what comes first."""
        if self._may_be_proxied:
            data = self._past_proxy_header(data)
        if not data or self._transport is None:
            return
        if data[0] == TLS_HANDSHAKE:
            self._secure(self._transport, data)
        elif self._tls.mode == "permissive":
            self._transport.set_protocol(self._connection)
            self._connection.handshake_over()
            self._connection.data_received(data)
        else:
            self._refuse(data)

    def _past_proxy_header(self, data: bytes) -> bytes:
        """What comes behind the header, once that is there; the connection is handed the header."""
        self._received += data
        try:
            header = read_proxy_header(self._received)
        except RemoteProtocolError:
            header = None
            self._connection.data_received(self._received)
        if header is None:
            # the rest may take as long as a handshake
            self._connection.expect_handshake()
            return b""
        self._may_be_proxied = False
        if header.size:
            self._connection.data_received(self._received[: header.size])
        if self._tls.mode == "enforcing":
            self._connection.expect_handshake()
        return self._received[header.size :]

    def _secure(self, transport: asyncio.Transport, data: bytes) -> None:
        connection, context = self._connection, self._tls.context
        if context is None:
            connection.refuse(RemoteProtocolError("TLS received, but TLS is off", reason="tls"))
            return
        if not connection.may_speak_tls():
            return
        tls = TlsTransport(connection, context, self._tls.threads, self, self._shares)
        tls.over(transport)
        connection.move_to(tls)
        tls.data_received(data)

    # -- as the listener of a handshake -------------------------------------------------------------------------------

    def handshake_step_began(self) -> None:
        """Its time stands still."""
        self._connection.stop_handshake_deadline()

    def handshake_step_ended(self) -> None:
        """It goes on."""
        self._connection.resume_handshake_deadline()

    def handshake_completed(self, version: str) -> None:
        """Count it, and let the peer ask."""
        self._tls.handshakes[version] += 1
        self._tls.open_connections += 1
        self._connection.handshake_over(version)

    def tls_failed(self, error: RemoteProtocolError) -> None:
        """Refuse the peer."""
        self._connection.refuse(error)

    # -- plain text where it must not be ------------------------------------------------------------------------------

    def _refuse(self, data: bytes) -> None:
        """Answer the request that cannot be read yet, if its header is here, so that its owner learns why."""
        if len(data) >= HEAD.size:
            _, word = HEAD.unpack_from(data)
            try:
                needed_bytes(data, 0, MAX_FRAME_BYTES, MAX_HEADER_BYTES)
                asked = decode_frame(Frame(data[4], data[8 : 8 + (word & 0xFFFFFF)], b""))
            except RemoteProtocolError:
                # not even that; it gets no answer
                pass
            else:
                self._connection.write(refusal(asked.serialize_type, asked.opaque, _PLAIN_REFUSED))
        self._connection.refuse(RemoteProtocolError(_PLAIN_REFUSED, reason="tls"))
