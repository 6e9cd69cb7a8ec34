"""What is one accepted connection to the server: a peer that came, may be written to, and goes?

The half of a connection that sends and ends. What is received, and what is answered, is `protocol.py`'s.
"""

import asyncio
import contextlib
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import FrameReader

if TYPE_CHECKING:
    from namesrv_remoting.aio.server import RemotingServer

# Above this much unsent data nothing more is read from the peer; well below the limit at which it is closed.
_HIGH_WATER_BYTES: Final = 256 * 1024
NEVER: Final = float("inf")


class PeerConnection(asyncio.Protocol):
    """One peer, from `connection_made` to `connection_lost`. `ServerConnection` is the only one there is."""

    __slots__ = (
        "_closing",
        "_deadline_frame",
        "_deadline_write",
        "_held",
        "_is_deaf",
        "_is_write_paused",
        "_preamble",
        "_queue",
        "_reader",
        "_server",
        "_transport",
        "_watches",
        "id",
        "is_broker",
        "last_read",
        "opened_wall",
        "peer",
        "proxied",
        "requests",
        "role",
        "serialize_type",
        "served",
    )

    def __init__(self, server: "RemotingServer") -> None:
        self._server = server
        # grows with every connection and never comes back: what registrations are fenced with
        self.id = server.draw_connection_id()
        # who: the socket's address, and the address a proxy named, for people only
        self.peer = "?"
        self.proxied: str | None = None
        # broker, client or admin, by what it asked last of these
        self.role = ""
        self.is_broker = False
        self.serialize_type = -1
        self.opened_wall = server.clock.wall()
        self.last_read = server.clock.monotonic()
        self.requests = 0
        # what the server's owner keeps about it
        self.served: Any = None
        self._transport: asyncio.Transport | None = None
        self._reader: FrameReader | None = None
        self._preamble: bytes | None = b"" if server.limits.proxy_protocol else None
        self._queue: deque[RemotingCommand] | None = None
        # tasks of the requests that may take long; the queue has one of its own while it is not empty
        self._watches: set[asyncio.Task[None]] | None = None
        self._closing = False
        # nothing that still comes is looked at; the last answers may be on their way
        self._is_deaf = False
        self._is_write_paused = False
        # what was received and is looked at when the peer has read its answers to what came before
        self._held = b""
        # when the frame that is being received has to be complete; when the peer has to have read its answers
        self._deadline_frame = NEVER
        self._deadline_write = NEVER

    # -- life ---------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected; the server may refuse it at once."""
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self.peer = address_text(address)
        limits = self._server.limits
        self._transport.set_write_buffer_limits(high=min(_HIGH_WATER_BYTES, limits.write_buffer_bytes))
        if limits.first_frame_seconds:
            self._deadline_frame = self.last_read + limits.first_frame_seconds
        self._opened()

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone, or we closed the connection: watches end, and the owner is told."""
        self._closing = self._is_deaf = True
        self._ended("reset" if exc else "closed")
        # what was asked in order is still done, as a peer that asks and hangs up expects; watches have nobody to tell
        self._cancel_watches()

    def close(self) -> None:
        """Close once everything written is sent."""
        self._closing = self._is_deaf = True
        if self._transport is None:
            return
        if self._deadline_write == NEVER and self.unsent_bytes:
            # a peer that never reads must not keep it open
            self._start_write_deadline()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._closing = self._is_deaf = True
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, error: RemoteProtocolError) -> None:
        """The peer broke the protocol: one line in the log; what it asked in order before is answered, then it ends."""
        if self._is_deaf:
            return
        self._report(error)
        self._is_deaf = True
        self._cancel_watches()
        # until then what comes is read and dropped: unread, it would reset the connection under its last answers
        if self._queue is None:
            self.close()

    @property
    def is_open(self) -> bool:
        """Whether answers can still reach the peer."""
        return not self._closing

    @property
    def socket(self) -> "socket.socket | None":
        """The accepted socket, for its options."""
        return None if self._transport is None else self._transport.get_extra_info("socket")

    @property
    def unsent_bytes(self) -> int:
        """What waits for the peer to read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def draw_opaque(self) -> int:
        """A number for an answer to a question that had none."""
        return self._server.draw_opaque()

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answer."""
        raise NotImplementedError

    def _opened(self) -> None:
        raise NotImplementedError

    def _ended(self, reason: str) -> None:
        raise NotImplementedError

    def _report(self, error: RemoteProtocolError) -> None:
        raise NotImplementedError

    def _cancel_watches(self) -> None:
        raise NotImplementedError

    def _receive_held(self) -> None:
        raise NotImplementedError

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send, unless the peer has left more unread than a peer may: then its connection is closed at once."""
        transport = self._transport
        if transport is None or self._closing:
            return
        # below the high-water mark there is nothing to look at
        if self._is_write_paused and transport.get_write_buffer_size() > self._server.limits.write_buffer_bytes:
            self._report(RemoteProtocolError("peer does not read", reason="slow_reader"))
            self.abort()
            return
        self._server.bytes_sent += len(data)
        transport.write(data)

    def pause_writing(self) -> None:
        """The peer reads more slowly than it asks: stop reading its questions."""
        self._is_write_paused = True
        self._start_write_deadline()
        self._throttle()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._is_write_paused = False
        if not self._closing:
            self._deadline_write = NEVER
        if self._held:
            # not from here: the transport is in the middle of writing
            asyncio.get_running_loop().call_soon(self._receive_held)
        else:
            self._throttle()

    def _start_write_deadline(self) -> None:
        if self._server.limits.whole_frame_seconds:
            self._deadline_write = self._server.clock.monotonic() + self._server.limits.whole_frame_seconds

    def _throttle(self) -> None:
        transport = self._transport
        if transport is None or self._closing or transport.is_closing():
            return
        wants = not self._is_write_paused and not self._held and self.in_flight < self._server.limits.max_in_flight
        if wants != transport.is_reading():
            with contextlib.suppress(RuntimeError):  # closed in between
                transport.resume_reading() if wants else transport.pause_reading()

    def check_deadlines(self, now: float) -> None:
        """Close the connection if the peer is too late with something."""
        limits = self._server.limits
        if self._deadline_write < now:
            self._report(RemoteProtocolError("peer does not read", reason="slow_reader"))
            self.abort()
        elif self._deadline_frame < now:
            first = self.requests == 0 and self.serialize_type < 0
            what = "first frame" if first else "rest of a frame"
            self.refuse(RemoteProtocolError(f"no {what} in time", reason="slow_frame"))
        elif limits.idle_seconds and self.last_read + limits.idle_seconds < now and not self.in_flight:
            self.refuse(RemoteProtocolError(f"nothing received for {limits.idle_seconds} s", reason="idle"))


def address_text(address: object) -> str:
    """An address as people write it: 127.0.0.1:9876, [::1]:9876."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = str(address[0]), address[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(address)
