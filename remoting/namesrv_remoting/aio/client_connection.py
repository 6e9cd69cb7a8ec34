"""One connection of a client: questions out, answers in."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, cast

from namesrv_remoting.aio.credentials import Credentials
from namesrv_remoting.aio.tls import why_lost
from namesrv_remoting.codes import FLAG_RESPONSE, ResponseCode
from namesrv_remoting.command import RemotingCommand, answer_type
from namesrv_remoting.errors import ConnectionClosedError, RemoteProtocolError
from namesrv_remoting.frames import FrameReader
from namesrv_remoting.serializers import decode_frame, encode_command

_MIN_OPAQUE: Final = -(1 << 31)
_MAX_OPAQUE: Final = (1 << 31) - 1

Answer = asyncio.Future[RemotingCommand]
OnRequest = Callable[[RemotingCommand], None]
OnLost = Callable[["ClientConnection", ConnectionClosedError], None]


class PendingCalls:
    """The calls on one connection, by opaque.

    An entry lives exactly as long as the `with` block of its caller, so that nothing can leak: not after an answer, a
    timeout, a cancellation or the loss of the connection.
    """

    def __init__(self, first_opaque: int = 0) -> None:
        # opaque -> what its caller awaits
        self._answers: dict[int, Answer] = {}
        self._next_opaque = first_opaque

    def __len__(self) -> int:
        return len(self._answers)

    def draw_opaque(self) -> int:
        """The next number that no pending call has; Java's int, which goes on at its negative end."""
        while True:
            opaque = self._next_opaque
            self._next_opaque = _MIN_OPAQUE if opaque == _MAX_OPAQUE else opaque + 1
            if opaque not in self._answers:
                return opaque

    @contextmanager
    def opened(self) -> Iterator[tuple[int, Answer]]:
        """A call: the opaque to send it with, and the answer to await."""
        opaque = self.draw_opaque()
        answer = self._answers[opaque] = asyncio.get_running_loop().create_future()
        try:
            yield opaque, answer
        finally:
            del self._answers[opaque]
            if answer.done() and not answer.cancelled():
                # fetched, so that asyncio does not report it: its caller left in the moment it was set
                answer.exception()

    def answer(self, command: RemotingCommand) -> None:
        """Hand an answer to whoever waits for it, if anybody does: it may come too late, or answer nothing."""
        answer = None if command.opaque is None else self._answers.get(command.opaque)
        if answer is not None and not answer.done():
            answer.set_result(command)

    def fail_all(self, error: Callable[[], Exception]) -> None:
        """Fail every call that waits, each with an exception of its own."""
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error())


class ClientConnection(asyncio.Protocol):
    """Questions out, answers in; from `connection_made` to `connection_lost`.

    Once it has ended, for whatever reason, every call on it has failed and no new one is taken.
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
        # what our own requests are signed with
        self._credentials = credentials
        self._on_request = on_request
        self._on_lost = on_lost
        self._pending = PendingCalls()
        self._reader = FrameReader(max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        # not set while the peer reads more slowly than we write
        self._writable = asyncio.Event()
        self._writable.set()
        # why nothing more is sent or awaited, and the exception behind it
        self._ended: str | None = None
        self._cause: Exception | None = None
        # set when the transport is gone
        self._lost = asyncio.Event()
        # whether any answer ever came
        self.has_answered = False

    @property
    def is_open(self) -> bool:
        """Whether a call can be made."""
        return self._ended is None and self._transport is not None and not self._transport.is_closing()

    @property
    def pending_count(self) -> int:
        """Calls that wait for their answer."""
        return len(self._pending)

    @property
    def transport(self) -> asyncio.Transport:
        """The transport of a connection that was made."""
        if self._transport is None:
            raise self._closed()
        return self._transport

    async def call(self, question: RemotingCommand) -> RemotingCommand:
        """Send a question, with an opaque of ours, and wait for its answer. Raises as RemotingClient.invoke_raw."""
        await self._until_writable()
        with self._pending.opened() as (opaque, answer):
            self._write(self._signed(replace(question, opaque=opaque)))
            return await answer

    async def send(self, notice: RemotingCommand) -> None:
        """Send what is not answered; returns when it is on its way, not when it has arrived. Raises as `call`."""
        await self._until_writable()
        self._write(self._signed(replace(notice, opaque=self._pending.draw_opaque())))

    async def _until_writable(self) -> None:
        # asked again after waiting: those who woke up before may have filled the buffer anew
        while not self._writable.is_set():
            await self._writable.wait()
        if not self.is_open:
            if self._ended is None:
                # a transport that closes by itself says in a moment why
                await self._lost.wait()
            raise self._closed()

    def _signed(self, request: RemotingCommand) -> RemotingCommand:
        return request if self._credentials is None else self._credentials.sign(request)

    def _write(self, command: RemotingCommand) -> None:
        self.transport.write(encode_command(command, max_frame_bytes=self._max_frame_bytes))

    def data_received(self, data: bytes) -> None:
        """Hand out the answers that are complete; the frames before broken ones still count."""
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
            self._pending.answer(command)
            return
        if self._on_request is not None:
            self._on_request(command)
        if not command.is_oneway and command.opaque is not None:
            self._refuse(command)

    def _refuse(self, request: RemotingCommand) -> None:
        # a peer that asks and does not read gets nothing: its answers would pile up here
        if self._writable.is_set() and self.is_open:
            self._write(
                RemotingCommand(
                    code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    opaque=request.opaque,
                    flag=FLAG_RESPONSE,
                    remark=f" request type {request.code} not supported",
                    serialize_type=answer_type(request.serialize_type),
                )
            )

    def _broken(self, error: RemoteProtocolError) -> None:
        self._end(f"broke the protocol: {error}", error)
        self.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast("asyncio.Transport", transport)

    def pause_writing(self) -> None:
        """The peer reads more slowly than we write: senders wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._writable.set()

    def eof_received(self) -> None:
        """The peer sends nothing more, so nobody gets an answer: end now, and not when it has read everything."""
        self._end(f"was closed by the peer{' inside a frame' if self._reader.is_inside_frame else ''}")
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        self._end("was closed by the peer" if exc is None else f"was lost: {why_lost(exc)}", exc)
        self._lost.set()

    def close(self) -> None:
        """End, and close the transport once everything written is sent."""
        self._end("was closed on this side")
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End, and close the transport at once."""
        self._end("was closed on this side")
        if self._transport is not None:
            self._transport.abort()

    async def wait_lost(self) -> None:
        """Return when the transport is gone."""
        await self._lost.wait()

    def _end(self, why: str, cause: Exception | None = None) -> None:
        if self._ended is not None:
            return
        self._ended, self._cause = why, cause
        # first: whoever fails now may ask again at once, and would take the news for that of the next connection
        self._on_lost(self, self._closed())
        self._pending.fail_all(self._closed)
        # wakes the senders, who find it ended
        self._writable.set()

    def _closed(self) -> ConnectionClosedError:
        error = ConnectionClosedError(f"connection to {self._peer} {self._ended or 'is not open'}")
        error.__cause__ = self._cause
        return error

    def __repr__(self) -> str:
        state = "open" if self.is_open else self._ended or "not open"
        return f"<ClientConnection [{self._peer} | {state} | {self.pending_count} pending]>"
