"""What happens on one accepted connection?

Bytes in, answers out. Frames that the fast lane answers are answered inside `data_received`, all frames of one read
with one write; the others become commands and are handled one after the other by a task that lives as long as there
are any.
"""

import asyncio
import contextlib
import socket
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from namesrv_remoting.aio.dispatch import Request
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import HEAD, Frame, FrameReader
from namesrv_remoting.proxy_header import read_proxy_header
from namesrv_remoting.serializers import decode_frame

if TYPE_CHECKING:
    from namesrv_remoting.aio.server import RemotingServer

# Above this much unsent data nothing more is read from the peer; well below the limit at which it is closed.
_HIGH_WATER_BYTES: Final = 256 * 1024
# Answers of one read are joined into writes of about this size.
_BATCH_BYTES: Final = 256 * 1024
_SERIALIZE_TYPES: Final = (0, 1, 77)
NEVER: Final = float("inf")


class ServerConnection(asyncio.Protocol):
    """One peer. Created by the server's listener, known to it from `connection_made` to `connection_lost`."""

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
        # whatever the owner of the fast lane keeps per connection
        self.served: object | None = None
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
        self.peer = _text(address)
        limits = self._server.limits
        self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        if limits.first_frame_seconds:
            self._deadline_frame = self.last_read + limits.first_frame_seconds
        self._server.connection_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone, or we closed the connection: watches end, and the owner is told."""
        self._closing = self._is_deaf = True
        self._server.connection_closed(self, "reset" if exc else "closed")
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
        self._server.refused(self, error)
        self._is_deaf = True
        self._cancel_watches()
        # until then what comes is read and dropped: unread, it would reset the connection under its last answers
        if self._queue is None:
            self.close()

    def _cancel_watches(self) -> None:
        for task in self._watches or ():
            task.cancel()

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

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answer."""
        return len(self._queue or ()) + len(self._watches or ())

    def draw_opaque(self) -> int:
        """A number for an answer to a question that had none."""
        return self._server.draw_opaque()

    # -- reading ------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:  # noqa: C901, PLR0912 - every call here would cost each pull its share
        """Answer what the fast lane can, queue the rest."""
        if self._is_deaf:
            return
        server = self._server
        self.last_read = server.clock.monotonic()
        reader = self._reader
        if self._held or self._preamble is not None or (reader is not None and reader.is_inside_frame):
            data = self._continue(data)
            if not data:
                return
        at, size, unpack = 0, len(data), HEAD.unpack_from
        limits, fast_lane = server.limits, server.fast_lane
        answers: list[bytes] = []
        pending = 0
        while size - at >= 8:
            length, word = unpack(data, at)
            header_length = word & 0xFFFFFF
            end = at + 4 + length
            if (
                end > size
                or length + 4 > limits.max_frame_bytes
                or header_length + 4 > length
                or header_length > limits.max_header_bytes
            ):
                break
            body_at = at + 8 + header_length
            serialize_type = word >> 24
            answer = fast_lane(self, serialize_type, data[at + 8 : body_at], data, body_at, end)
            if answer is not None:
                if answer:
                    answers.append(answer)
                    pending += len(answer)
                    if pending > _BATCH_BYTES:
                        self.write(b"".join(answers))
                        answers.clear()
                        pending = 0
                        if self._is_write_paused:
                            # the loop has to send these first; a peer that pipelines a lot may read well
                            at = end
                            break
            elif serialize_type in _SERIALIZE_TYPES:
                # the binary header's serializer looks past the declared header
                header_end = end if serialize_type == 1 else body_at
                if self._receive(Frame(serialize_type, data[at + 8 : header_end], data[body_at:end])) is not None:
                    break
            else:
                break
            at = end
            if not self.is_open:
                break
        if answers:
            self.write(answers[0] if len(answers) == 1 else b"".join(answers))
        if at:
            self._deadline_frame = NEVER
        if at == size or not self.is_open:
            return
        if self._is_write_paused:
            self._held = data[at:]
        else:
            # whatever is wrong is found again there, when the answers to what came before are written
            self._receive_slowly(data[at:] if at else data)

    def _continue(self, data: bytes) -> bytes:
        """Put the data to what was received before and is not done; what is left to be looked at now."""
        if self._held:
            self._held += data
            return b""
        if self._preamble is not None:
            data = self._strip_proxy_header(data)
        reader = self._reader
        if data and reader is not None and reader.is_inside_frame:
            data = self._end_frame(reader, data)
        return data

    def _end_frame(self, reader: FrameReader, data: bytes) -> bytes:
        """Give the frame that has begun what it lacks; what is left then, unless that has to wait."""
        while data and reader.is_inside_frame and not self._is_deaf:
            missing = reader.missing_bytes
            self._receive_slowly(data[:missing])
            data = data[missing:]
        if self._is_deaf:
            return b""
        if self._is_write_paused:
            self._held, data = data, b""
        return data

    def _receive_slowly(self, data: bytes) -> None:
        """Bytes of frames that are incomplete, or wrong."""
        reader = self._reader
        limits = self._server.limits
        if reader is None:
            reader = self._reader = FrameReader(limits.max_frame_bytes, limits.max_header_bytes)
        frames = reader.receive_data(data)
        for frame in frames:
            self._receive_in_turn(frame)
        if reader.error is not None:
            self.refuse(reader.error)
            return
        if frames or not reader.is_inside_frame:
            self._deadline_frame = NEVER
        if reader.is_inside_frame and limits.whole_frame_seconds and self._deadline_frame == NEVER:
            self._deadline_frame = self.last_read + limits.whole_frame_seconds

    def _receive_in_turn(self, frame: Frame) -> None:
        if self._is_deaf:
            return
        data = frame.body
        answer = self._server.fast_lane(self, frame.serialize_type, frame.header, data, 0, len(data))
        if answer:
            self.write(answer)
        elif answer is None and (error := self._receive(frame)) is not None:
            self.refuse(error)

    def _strip_proxy_header(self, data: bytes) -> bytes:
        data = (self._preamble or b"") + data
        try:
            found = read_proxy_header(data)
        except RemoteProtocolError as error:
            self.refuse(error)
            return b""
        if found is None:
            self._preamble = data
            return b""
        self._preamble = None
        if found.source is not None:
            self.proxied = _text(found.source)
        return data[found.size :]

    # -- the ordinary road --------------------------------------------------------------------------------------------

    def _receive(self, frame: Frame) -> RemoteProtocolError | None:
        """Have a request answered; or what is wrong with the frame, which changed nothing then."""
        try:
            command = decode_frame(frame)
        except RemoteProtocolError as error:
            return error
        self.serialize_type = command.serialize_type
        self.requests += 1
        if command.is_response:
            # we ask nothing over accepted connections, so nothing can be the answer to it
            return None
        if command.code in self._server.dispatcher.concurrent:
            self._watch(command)
        elif self._queue is None:
            self._queue = deque((command,))
            self._server.create_task(self._answer_in_turn(self._queue))
        else:
            self._queue.append(command)
        self._throttle()
        return None

    def _watch(self, command: RemotingCommand) -> None:
        if self._watches is None:
            self._watches = set()
        task = self._server.create_task(self._answer(command))
        self._watches.add(task)
        task.add_done_callback(self._watch_ended)

    def _watch_ended(self, task: "asyncio.Task[None]") -> None:
        if self._watches is not None:
            self._watches.discard(task)
        self._throttle()

    async def _answer_in_turn(self, queue: deque[RemotingCommand]) -> None:
        while queue:
            await self._answer(queue[0])
            queue.popleft()
            self._throttle()
            if queue:
                # handlers that wait for nothing must not keep the loop for thousands of pipelined requests
                await asyncio.sleep(0)
        self._queue = None
        if self._is_deaf:
            self.close()

    async def _answer(self, command: RemotingCommand) -> None:
        answer = await self._server.dispatcher.answer(Request(command, self))
        if answer.data:
            self.write(answer.data)
        if answer.closes:
            self.close()

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send, unless the peer has left more unread than a peer may: then its connection is closed at once."""
        transport = self._transport
        if transport is None or self._closing:
            return
        if transport.get_write_buffer_size() > self._server.limits.write_buffer_bytes:
            self._server.refused(self, RemoteProtocolError("peer does not read", reason="slow_reader"))
            self.abort()
            return
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

    def _receive_held(self) -> None:
        held, self._held = self._held, b""
        self.data_received(held)
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
            self._server.refused(self, RemoteProtocolError("peer does not read", reason="slow_reader"))
            self.abort()
        elif self._deadline_frame < now:
            first = self.requests == 0 and self.serialize_type < 0
            what = "first frame" if first else "rest of a frame"
            self.refuse(RemoteProtocolError(f"no {what} in time", reason="slow_frame"))
        elif limits.idle_seconds and self.last_read + limits.idle_seconds < now and not self.in_flight:
            self.refuse(RemoteProtocolError(f"nothing received for {limits.idle_seconds} s", reason="idle"))


def _text(address: object) -> str:
    """An address as people write it: 127.0.0.1:9876, [::1]:9876."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = str(address[0]), address[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(address)
