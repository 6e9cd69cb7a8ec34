"""One connection of a client: sends requests and matches responses."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, cast

from namesrv_remoting.aio.credentials import Credentials
from namesrv_remoting.aio.tls import why_lost
from namesrv_remoting.codes import FLAG_RESPONSE, ResponseCode
from namesrv_remoting.command import RemotingCommand, response_type
from namesrv_remoting.errors import ConnectionClosedError, RemoteProtocolError
from namesrv_remoting.frames import FrameReader
from namesrv_remoting.serializers import decode_frame, encode_command

_MIN_OPAQUE: Final = -(1 << 31)
_MAX_OPAQUE: Final = (1 << 31) - 1

ResponseFuture = asyncio.Future[RemotingCommand]
OnRequest = Callable[[RemotingCommand], None]
OnLost = Callable[["ClientConnection", ConnectionClosedError], None]


class PendingCalls:
    """The calls under way on one connection, by opaque.

    An entry lives exactly as long as the `with` block of its caller, so that no entry can leak after a response, a
    timeout, a cancellation or the loss of the connection.
    """

    def __init__(self, first_opaque: int = 0) -> None:
        # opaque -> the future that its caller awaits
        self._futures: dict[int, ResponseFuture] = {}
        self._next_opaque = first_opaque

    def __len__(self) -> int:
        return len(self._futures)

    def draw_opaque(self) -> int:
        """The next opaque that no pending call has; after Java's largest int it continues with the smallest one."""
        while True:
            opaque = self._next_opaque
            self._next_opaque = _MIN_OPAQUE if opaque == _MAX_OPAQUE else opaque + 1
            if opaque not in self._futures:
                return opaque

    @contextmanager
    def opened(self) -> Iterator[tuple[int, ResponseFuture]]:
        """A call: the opaque of its request, and the future of its response."""
        opaque = self.draw_opaque()
        future = self._futures[opaque] = asyncio.get_running_loop().create_future()
        try:
            yield opaque, future
        finally:
            del self._futures[opaque]
            if future.done() and not future.cancelled():
                # The exception is read so that asyncio does not report it if the caller was cancelled meanwhile.
                future.exception()

    def receive(self, response: RemotingCommand) -> None:
        """Pass a response to its caller; ignore a response that is too late or has an unknown opaque."""
        future = None if response.opaque is None else self._futures.get(response.opaque)
        if future is not None and not future.done():
            future.set_result(response)

    def fail_all(self, error: Callable[[], Exception]) -> None:
        """Fail all waiting calls, each with an exception of its own."""
        for future in self._futures.values():
            if not future.done():
                future.set_exception(error())


@dataclass(frozen=True, slots=True)
class ConnectionEnd:
    """The end of a connection: the reason, which completes "connection to ADDRESS …", and the exception behind it."""

    reason: str
    cause: Exception | None = None

    def error(self, peer: str) -> ConnectionClosedError:
        """An exception for one caller."""
        error = ConnectionClosedError(f"connection to {peer} {self.reason}")
        error.__cause__ = self.cause
        return error


_NOT_MADE: Final = ConnectionEnd("is not open")


class ClientConnection(asyncio.Protocol):
    """One connection, from `connection_made` to `connection_lost`.

    When the connection ends, for any reason, all calls under way fail, and new calls are refused.
    """

    def __init__(
        self,
        peer: str,
        *,
        max_frame_bytes: int,
        on_request: OnRequest | None,
        on_lost: OnLost,
        credentials: Credentials | None = None,
    ) -> None:
        self._peer = peer
        self._max_frame_bytes = max_frame_bytes
        # the credentials that sign our requests
        self._credentials = credentials
        self._on_request = on_request
        self._on_lost = on_lost
        self._pending = PendingCalls()
        self._reader = FrameReader(max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        # cleared while the peer reads more slowly than this client writes
        self._writable = asyncio.Event()
        self._writable.set()
        # the end of the connection; None before the end
        self._end: ConnectionEnd | None = None
        # set when the transport is closed
        self._lost = asyncio.Event()
        # True once a response has arrived
        self.has_answered = False

    @property
    def is_open(self) -> bool:
        """True if a call can be made."""
        return self._end is None and self._transport is not None and not self._transport.is_closing()

    @property
    def pending_count(self) -> int:
        """The number of calls that wait for a response."""
        return len(self._pending)

    @property
    def transport(self) -> asyncio.Transport:
        """The transport of the open connection. Raises ConnectionClosedError before the connection is made."""
        if self._transport is None:
            raise self._closed()
        return self._transport

    async def call(self, request: RemotingCommand) -> RemotingCommand:
        """Send a request with an opaque of ours, and wait for its response. Raises as RemotingClient.invoke_raw."""
        await self._until_writable()
        with self._pending.opened() as (opaque, future):
            self._write(self._signed(replace(request, opaque=opaque)))
            return await future

    async def send_oneway(self, request: RemotingCommand) -> None:
        """Send a one-way request; return once it is written, not when it has arrived. Raises as `call`."""
        await self._until_writable()
        self._write(self._signed(replace(request, opaque=self._pending.draw_opaque())))

    async def _until_writable(self) -> None:
        # In a loop, because tasks that woke up earlier may have filled the buffer again.
        while not self._writable.is_set():
            await self._writable.wait()
        if not self.is_open:
            if self._end is None:
                # A transport that closes by itself reports the reason in a moment.
                await self._lost.wait()
            raise self._closed()

    def _signed(self, request: RemotingCommand) -> RemotingCommand:
        return request if self._credentials is None else self._credentials.sign(request)

    def _write(self, command: RemotingCommand) -> None:
        self.transport.write(encode_command(command, max_frame_bytes=self._max_frame_bytes))

    def data_received(self, data: bytes) -> None:
        """Process all complete frames; frames before a protocol error still count."""
        try:
            for frame in self._reader.receive_data(data):
                self._receive(decode_frame(frame))
        except RemoteProtocolError as error:
            self._broken(error)
        if self._reader.error is not None:
            self._broken(self._reader.error)

    def _receive(self, command: RemotingCommand) -> None:
        if command.is_response:
            self.has_answered = True
            self._pending.receive(command)
            return
        if self._on_request is not None:
            self._on_request(command)
        if not command.is_oneway and command.opaque is not None:
            self._refuse(command)

    def _refuse(self, request: RemotingCommand) -> None:
        # A peer that sends requests without reading gets no responses, which would pile up here.
        if self._writable.is_set() and self.is_open:
            self._write(
                RemotingCommand(
                    code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    opaque=request.opaque,
                    flag=FLAG_RESPONSE,
                    remark=f" request type {request.code} not supported",
                    serialize_type=response_type(request.serialize_type),
                )
            )

    def _broken(self, error: RemoteProtocolError) -> None:
        self._note_end(f"broke the protocol: {error}", error)
        self.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport of the new connection."""
        self._transport = cast("asyncio.Transport", transport)

    def pause_writing(self) -> None:
        """Make senders wait while the peer reads more slowly than this client writes."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let senders continue."""
        self._writable.set()

    def eof_received(self) -> None:
        """End the connection when the peer sends no more data, because no response can arrive any more."""
        self._note_end(f"was closed by the peer{' inside a frame' if self._reader.is_inside_frame else ''}")
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the transport."""
        self._note_end("was closed by the peer" if exc is None else f"was lost: {why_lost(exc)}", exc)
        self._lost.set()

    def close(self, why: str = "") -> None:
        """End the connection, for a reason, and close the transport once all written data is sent."""
        self._note_end(f"was closed on this side{why and f': {why}'}")
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection, and close the transport at once."""
        self._note_end("was closed on this side")
        if self._transport is not None:
            self._transport.abort()

    async def wait_lost(self) -> None:
        """Return when the transport is closed."""
        await self._lost.wait()

    def _note_end(self, reason: str, cause: Exception | None = None) -> None:
        """End the connection; only the first reason counts."""
        if self._end is not None:
            return
        self._end = ConnectionEnd(reason, cause)
        # The owner is notified first: a failed caller may send again at once, and open the next connection.
        self._on_lost(self, self._closed())
        self._pending.fail_all(self._closed)
        # Waiting senders wake up, and find the connection ended.
        self._writable.set()

    def _closed(self) -> ConnectionClosedError:
        return (self._end or _NOT_MADE).error(self._peer)

    def __repr__(self) -> str:
        state = "open" if self.is_open else "not open" if self._end is None else self._end.reason
        return f"<ClientConnection [{self._peer} | {state} | {self.pending_count} pending]>"
