"""What is said on one HTTP connection?

HTTP/1.0 and 1.1 by h11: GET and HEAD, one answer after the other. A peer has little room and little time: a head of
8 KiB, a few seconds to send it, a few to read the answer, and nothing is read from it meanwhile.
"""

import asyncio
import logging
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast

import h11

if TYPE_CHECKING:
    from namesrv.observability.http_listener import HttpListener

logger: Final = logging.getLogger(__name__)

VERSIONS: Final = (b"1.0", b"1.1")
_TEXT: Final = "text/plain; charset=utf-8"


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


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: its status, and a text."""

    status: HTTPStatus
    body: bytes
    content_type: str = _TEXT
    headers: tuple[tuple[str, str], ...] = ()


def plain(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Response:
    """A short text."""
    return Response(status, text.encode(), headers=headers)


class HttpConnection(asyncio.Protocol):
    """One peer, from `connection_made` to `connection_lost`."""

    def __init__(self, listener: "HttpListener") -> None:
        self._listener = listener
        self._limits = listener.limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.max_head_bytes)
        self._transport: asyncio.Transport | None = None
        # the answer in work
        self._answering: asyncio.Task[None] | None = None
        # ends the connection when the peer takes too long with what is its turn
        self._deadline: asyncio.TimerHandle | None = None
        self._is_write_paused = False

    @property
    def is_waiting(self) -> bool:
        """Whether it is the peer's turn: closing it loses no answer."""
        return self._answering is None and not self._is_write_paused

    # -- life ---------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected."""
        self._transport = cast("asyncio.Transport", transport)
        # paused as long as anything is unsent
        self._transport.set_write_buffer_limits(high=0)
        self._give(self._limits.request_seconds)
        self._listener.connection_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it ended
        """The peer is gone, and its answer has nobody to go to."""
        self._listener.connection_closed(self)
        self._take_deadline()
        if self._answering is not None:
            self._answering.cancel()

    def abort(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()

    def _give(self, seconds: float) -> None:
        self._take_deadline()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.abort)

    def _take_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # -- reading ------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Read on."""
        if self._http.their_state is h11.ERROR:
            return
        is_new = self._http.their_state is h11.IDLE and not self._unread_bytes
        self._http.receive_data(data)
        if is_new:
            self._give(self._limits.request_seconds)
        self._read()
        transport = self._transport
        is_full = not self.is_waiting and self._unread_bytes > self._limits.max_head_bytes
        if is_full and transport is not None and not transport.is_closing():
            # only now: a transport that does not read does not notice either that the peer is gone
            transport.pause_reading()

    def eof_received(self) -> bool:
        """The peer sends nothing more; it may still wait for its answer."""
        if self._http.their_state is not h11.ERROR:
            self._http.receive_data(b"")
        return not self.is_waiting

    def _read(self) -> None:
        while self.is_waiting and self._transport is not None:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse(error)
                return
            if isinstance(event, h11.Request):
                self._take_deadline()
                self._answering = self._listener.spawn(self._answer(event))
            elif event is h11.PAUSED and self._http.our_state is h11.DONE:
                self._http.start_next_cycle()
            elif isinstance(event, h11.ConnectionClosed):
                self._transport.close()
                return
            elif event is h11.NEED_DATA or event is h11.PAUSED:
                return

    @property
    def _unread_bytes(self) -> int:
        return len(self._http.trailing_data[0])

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        status = HTTPStatus(error.error_status_hint)
        self._listener.count("other", status)
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send(plain(status, f"{error}\n"), is_last=True)
        else:
            self.abort()

    # -- answering ----------------------------------------------------------------------------------------------------

    async def _answer(self, request: h11.Request) -> None:
        try:
            response = await self._listener.respond(request)
            if self._transport is not None and not self._transport.is_closing():
                self._send(response, is_last=_is_last(request), is_head=request.method == b"HEAD")
        except h11.LocalProtocolError:
            # a mistake of ours about one connection ends that connection, and not the server
            logger.exception("answer to %r failed", request.target[:64])
            self.abort()
        finally:
            self._answering = None
        self._go_on()

    def _send(self, response: Response, *, is_last: bool, is_head: bool = False) -> None:
        assert self._transport is not None  # noqa: S101 - nobody asks before there is one
        headers = [
            ("Content-Type", response.content_type),
            ("Content-Length", str(len(response.body))),
            ("Cache-Control", "no-store"),
            *response.headers,
            *([("Connection", "close")] if is_last else []),
        ]
        status = response.status
        head = h11.Response(status_code=status.value, reason=status.phrase.encode(), headers=headers)
        data = self._http.send(head) or b""
        if not is_head:
            data += self._http.send(h11.Data(data=response.body)) or b""
        data += self._http.send(h11.EndOfMessage()) or b""
        self._transport.write(data)
        if self._http.our_state is not h11.DONE:
            self._transport.close()
            if self._deadline is None:
                self._give(self._limits.write_seconds)

    def _go_on(self) -> None:
        """It is the peer's turn again, once it has read its answer."""
        transport = self._transport
        if transport is None or transport.is_closing() or not self.is_waiting:
            return
        self._listener.connection_used(self)
        self._give(self._limits.idle_seconds)
        transport.resume_reading()
        self._read()
        if self._answering is None and self._unread_bytes:
            # the next request has begun
            self._give(self._limits.request_seconds)

    def pause_writing(self) -> None:
        """The peer has something to read."""
        self._is_write_paused = True
        self._give(self._limits.write_seconds)

    def resume_writing(self) -> None:
        """It has read everything."""
        self._is_write_paused = False
        # not from here: the transport is in the middle of writing
        asyncio.get_running_loop().call_soon(self._go_on)


def _is_last(request: h11.Request) -> bool:
    """Whether it makes no sense to read on: a body comes, which nobody reads, or another protocol."""
    fields = dict(request.headers)
    if request.http_version not in VERSIONS:
        return True
    return b"transfer-encoding" in fields or fields.get(b"content-length", b"0") != b"0"
