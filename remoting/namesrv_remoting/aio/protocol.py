"""What happens to what is received on one accepted connection?

Bytes in, answers out. Frames that the fast lane answers are answered inside `data_received`, all frames of one read
with one write; the others become commands and are handled one after the other by a task that lives as long as there
are any.
"""

import asyncio
from collections import deque
from typing import Final

from namesrv_remoting.aio.dispatch import Request
from namesrv_remoting.aio.peer import NEVER, PeerConnection, address_text
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import HEAD, Frame, FrameReader
from namesrv_remoting.proxy_header import read_proxy_header
from namesrv_remoting.serializers import decode_frame

# Answers of one read are joined into writes of about this size.
_BATCH_BYTES: Final = 256 * 1024
_SERIALIZE_TYPES: Final = (0, 1, 77)


class ServerConnection(PeerConnection):
    """One peer. Created by the server's listener, known to it from `connection_made` to `connection_lost`."""

    __slots__ = ()

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answer."""
        return len(self._queue or ()) + len(self._watches or ())

    def _cancel_watches(self) -> None:
        for task in self._watches or ():
            task.cancel()

    def _opened(self) -> None:
        self._server.connection_opened(self)

    def _ended(self, reason: str) -> None:
        self._server.connection_closed(self, reason)

    def _report(self, error: RemoteProtocolError) -> None:
        self._server.refused(self, error)

    # -- reading ------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:  # noqa: C901, PLR0912, PLR0915 - each call would cost every pull
        """Answer what the fast lane can, queue the rest."""
        if self._is_deaf:
            return
        server = self._server
        server.bytes_received += len(data)
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
                if end == size and not answers:
                    # one question, one answer: how nearly everybody asks
                    if answer:
                        self.write(answer)
                    self._deadline_frame = NEVER
                    return
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
            self.proxied = address_text(found.source)
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

    def _receive_held(self) -> None:
        held, self._held = self._held, b""
        # counted when it came
        self._server.bytes_received -= len(held)
        self.data_received(held)
        self._throttle()
