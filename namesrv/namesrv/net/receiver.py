"""Receiver of one connection: bytes in, events out, without any I/O, clock or task.

    PREAMBLE ──▶ FRAMES ◀──▶ HEADER ──▶ BODY ──▶ FRAMES          any state ──▶ ENDED

A small frame is an event as soon as it is complete. Of a large one, and of every frame on probation, the header comes
first, and nothing further until `accept` or `drop_body` says what becomes of the frame. Whatever a frame is, each of
them is an event, so that its cost can be counted. After an error the caller ends the receiver.
"""

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, cast

from namesrv.net.limits import ServerLimits
from namesrv.net.proxy_header import ProxyHeader, read_proxy_header
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import Frame, FrameReader, cut_frame

# Up to this size the body of a large frame is copied, in a millisecond, so that handlers get bytes.
_COPIED_BYTES: Final = 4 * 1024 * 1024


class State(Enum):
    """What the next bytes are."""

    # perhaps a PROXY header
    PREAMBLE = auto()
    FRAMES = auto()
    # the frame whose header was handed out, and which waits for a decision
    HEADER = auto()
    # the body of a large frame, which is kept or dropped
    BODY = auto()
    # of no meaning
    ENDED = auto()


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.PREAMBLE: frozenset({State.FRAMES, State.ENDED}),
    State.FRAMES: frozenset({State.HEADER, State.ENDED}),
    State.HEADER: frozenset({State.FRAMES, State.BODY, State.ENDED}),
    State.BODY: frozenset({State.FRAMES, State.ENDED}),
    State.ENDED: frozenset({State.ENDED}),
}


# Python 3.11 takes its time to look up a member of an enum.
_FRAMES: Final = State.FRAMES


@dataclass(frozen=True, slots=True)
class HeaderReceived:
    """The header of a frame that needs a decision, and the size of the whole frame."""

    header: Frame
    size: int


# A small frame as it came, a large one, the header of one that waits, the PROXY header, or what ended the stream.
Event = bytes | Frame | HeaderReceived | ProxyHeader | RemoteProtocolError


class _LargeBody:
    """The body of a large frame.

    Its pages are allocated as they are filled, and freed without the heap: to grow 16 MiB of bytes, or to join them in
    the end, keeps the loop for 10 ms.
    """

    def __init__(self, header: Frame, size: int) -> None:
        self._header = header
        self._body = mmap.mmap(-1, max(1, size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # how many bytes are missing
        self.left = size

    def fill(self, data: bytes) -> bytes:
        """Take the bytes that belong to the body, and return the others."""
        taken = data[: self.left]
        self._body.write(taken)
        self.left -= len(taken)
        return data[len(taken) :]

    def frame(self) -> Frame:
        """The whole frame. Handlers of bodies of this size read slices, and a slice of a map is bytes."""
        size = self._body.tell()
        body = self._body[:size] if size <= _COPIED_BYTES else cast("bytes", self._body)
        return self._header._replace(body=body)


class _DroppedBody:
    """The body of a frame that is refused for its header: its bytes come all the same."""

    def __init__(self, size: int) -> None:
        # how many bytes are still to come
        self.left = size

    def fill(self, data: bytes) -> bytes:
        """Drop the bytes that belong to the body, and return the others."""
        dropped = min(self.left, len(data))
        self.left -= dropped
        return data[dropped:]

    def frame(self) -> None:
        """The frame was answered when its header came."""


class Receiver:
    """What one connection has received, until it was handed out."""

    __slots__ = (
        "_body",
        "_is_accepted",
        "_limits",
        "_preamble",
        "_reader",
        "header",
        "is_idle",
        "on_probation",
        "state",
    )

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._reader = FrameReader()
        self.state = State.PREAMBLE if limits.proxy_protocol else State.FRAMES
        # True while the header of every frame is handed out before the frame, however small that is
        self.on_probation = False
        # True for the small frame on probation that was accepted
        self._is_accepted = False
        # True if the next bytes begin a frame that needs no decision beforehand
        self.is_idle = False
        # the beginning of a PROXY header
        self._preamble = b""
        # the header that was handed out, and the body that is being received
        self.header: HeaderReceived | None = None
        self._body: _LargeBody | _DroppedBody | None = None
        self._note_idle()

    def __repr__(self) -> str:
        return f"<Receiver [{self.state.name} | {self.held_bytes} bytes]>"

    @property
    def held_bytes(self) -> int:
        """Memory for what was received and not handed out, and for what is still to come of an accepted body."""
        size = len(self._preamble) + self._reader.held_bytes
        if self.header is not None and isinstance(self._body, _LargeBody):
            size += self.header.size
        return size

    @property
    def is_inside_frame(self) -> bool:
        """Whether a frame, or the PROXY header, has begun and not ended."""
        return self.state is State.BODY or bool(self._preamble) or self._reader.is_inside_frame

    def receive_data(self, data: bytes) -> None:
        """Keep what was received; `next_event` says what it means."""
        self.is_idle = False
        # a reload changes them
        self._reader.max_frame_bytes = self._limits.max_frame_bytes
        self._reader.max_header_bytes = self._limits.max_header_bytes
        if self.state is State.PREAMBLE:
            self._preamble += data
        elif self.state is not State.ENDED:
            rest = data if self._body is None else self._body.fill(data)
            if rest:
                self._reader.feed(rest)

    def next_event(self) -> Event | None:
        """The next event; None when more has to be received, or a decision be taken."""
        state = self.state
        if state is _FRAMES:
            if not self.on_probation or self._is_accepted:
                frame = self._reader.next_frame(self._limits.small_frame_bytes)
                if frame is not None:
                    self._is_accepted = False
                    return frame
            return self._begun_frame()
        if state is State.BODY:
            return self._body_event()
        return self._preamble_event() if state is State.PREAMBLE else None

    def accept(self) -> None:
        """Receive the frame whose header was handed out last."""
        header = self._decided()
        if header.size <= self._limits.small_frame_bytes:
            self._is_accepted = True
            self._go(State.FRAMES)
        else:
            self._begin_body(_LargeBody(header.header, _body_bytes(header)))

    def drop_body(self) -> None:
        """Receive the frame whose header was handed out last, without its body."""
        self._begin_body(_DroppedBody(_body_bytes(self._decided())))

    def begin_probation(self) -> None:
        """Hand out the header of every frame before the frame."""
        self.on_probation, self.is_idle = True, False

    def end_probation(self) -> None:
        """Hand out no more headers of small frames."""
        self.on_probation = False
        self._note_idle()

    def end(self) -> None:
        """Give up what was received, and ignore what still comes."""
        self._go(State.ENDED)
        self._reader = FrameReader()
        self._body = self.header = None
        self._preamble = b""
        self.is_idle = False

    def _go(self, state: State) -> None:
        assert state in TRANSITIONS[self.state]  # noqa: S101 - a bug of the receiver's or its caller's
        self.state = state

    def _note_idle(self) -> None:
        self.is_idle = self.state is State.FRAMES and not self.on_probation and not self._reader.is_inside_frame

    def _begun_frame(self) -> Event | None:
        reader = self._reader
        size = reader.next_size()
        if reader.error is not None:
            return reader.error
        is_announced = size > self._limits.small_frame_bytes or (self.on_probation and not self._is_accepted)
        if is_announced and (begin := reader.next_header()) is not None:
            self.header = HeaderReceived(cut_frame(begin), size)
            self._go(State.HEADER)
            return self.header
        self._note_idle()
        return None

    def _body_event(self) -> Event | None:
        body = self._body
        if body is None or body.left:
            return None
        self._body = self.header = None
        self._go(State.FRAMES)
        return body.frame() or self.next_event()

    def _preamble_event(self) -> Event | None:
        begin = self._preamble
        try:
            found = read_proxy_header(begin) if begin else None
        except RemoteProtocolError as error:
            return error
        if found is None:
            return None
        self._preamble = b""
        self._go(State.FRAMES)
        self._reader.feed(begin[found.size :])
        return found if found.size else self.next_event()

    def _decided(self) -> HeaderReceived:
        assert self.state is State.HEADER and self.header is not None  # noqa: S101, PT018 - a bug of the caller's
        return self.header

    def _begin_body(self, body: _LargeBody | _DroppedBody) -> None:
        header = self._decided()
        self._go(State.BODY)
        begin = self._reader.take(header.size)
        self._body = body
        body.fill(begin[8 + len(header.header.header) :])


def _body_bytes(header: HeaderReceived) -> int:
    return header.size - 8 - len(header.header.header)
