"""Receiver of one connection: turns received bytes into events, without any I/O, clock or task.

    PREAMBLE ──▶ FRAMES ◀──▶ HEADER ──▶ BODY ──▶ FRAMES          any state ──▶ ENDED

A small frame is an event as soon as it is complete. A large frame, and every frame while the peer must register (over a
reserved slot), begins with an event for its header; further events wait until the caller decides about the frame by
`accept` or `drop_body`. A caller without memory for the received beginning of the frame calls `drop_beginning`, after
which only `drop_body` is possible. After an error the caller ends the receiver.

The receiver subtracts the cost of the reads and events that pass through it from the share of the peer's network, as
`fairness/costs.py` explains. The caller compares the share with its limit, and calls `next_event` again in a later
iteration.
"""

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, cast

from namesrv.net.fairness.costs import FRAME_COST, READ_COST, Share, copy_cost
from namesrv.net.limits import ServerLimits
from namesrv.net.proxy_header import ProxyHeader, read_proxy_header
from namesrv_remoting.errors import RemoteProtocolError, without_traceback
from namesrv_remoting.frames import HEAD, Frame, FrameReader, cut_frame

# Large bodies up to this size are copied, which takes a millisecond, so that handlers receive bytes.
_COPIED_BYTES: Final = 4 * 1024 * 1024


class State(Enum):
    """The meaning of the next bytes."""

    # The connection may begin with a PROXY header.
    PREAMBLE = auto()
    FRAMES = auto()
    # a frame whose header was returned as an event, and about which the caller has not decided yet
    HEADER = auto()
    # the body of a frame, which is kept or dropped
    BODY = auto()
    # Further bytes are ignored.
    ENDED = auto()


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.PREAMBLE: frozenset({State.FRAMES, State.ENDED}),
    State.FRAMES: frozenset({State.HEADER, State.ENDED}),
    State.HEADER: frozenset({State.FRAMES, State.BODY, State.ENDED}),
    State.BODY: frozenset({State.FRAMES, State.ENDED}),
    State.ENDED: frozenset({State.ENDED}),
}


# Looking up a member of an enum takes 90 nanoseconds in Python 3.11.
_PREAMBLE: Final = State.PREAMBLE
_FRAMES: Final = State.FRAMES
_HEADER: Final = State.HEADER
_BODY: Final = State.BODY
_ENDED: Final = State.ENDED


@dataclass(frozen=True, slots=True)
class HeaderReceived:
    """The header of a frame that waits for `accept` or `drop_body`, and the size of the whole frame."""

    header: Frame
    size: int


# A small frame as bytes, a large frame, the header of a waiting frame, the PROXY header, or the error that ends the
# stream.
Event = bytes | Frame | HeaderReceived | ProxyHeader | RemoteProtocolError


class _LargeBody:
    """The body of a large frame.

    The body is an anonymous memory map, whose pages are allocated when they are written, and freed outside the heap.
    Growing a bytes object to 16 MiB, or joining chunks at the end, would block the event loop for 10 ms.
    """

    def __init__(self, header: Frame, size: int) -> None:
        self._header = header
        self._body = mmap.mmap(-1, max(1, size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # number of bytes not received yet
        self.left = size

    def fill(self, data: bytes) -> bytes:
        """Copy the bytes that belong to the body, and return the rest of the data."""
        taken = data[: self.left]
        self._body.write(taken)
        self.left -= len(taken)
        return data[len(taken) :]

    def frame(self) -> Frame:
        """The whole frame; handlers of very large bodies read only slices, and a slice of a memory map is bytes."""
        size = self._body.tell()
        body = self._body[:size] if size <= _COPIED_BYTES else cast("bytes", self._body)
        return self._header._replace(body=body)


class _DroppedBody:
    """The body of a frame that was refused by its header; the peer still sends these bytes."""

    def __init__(self, size: int) -> None:
        # number of bytes not received yet
        self.left = size

    def fill(self, data: bytes) -> bytes:
        """Drop the bytes that belong to the body, and return the rest of the data."""
        dropped = min(self.left, len(data))
        self.left -= dropped
        return data[dropped:]

    def frame(self) -> None:
        """None: the frame was answered when its header was received."""


class Receiver:
    """Buffers the received bytes of one connection, returns them as events, and subtracts their cost from a share."""

    __slots__ = (
        "_body",
        "_is_accepted",
        "_limits",
        "_preamble",
        "_reader",
        "_share",
        "header",
        "is_idle",
        "must_register",
        "state",
    )

    def __init__(self, limits: ServerLimits, share: Share) -> None:
        self._limits = limits
        self._share = share
        self._reader = FrameReader(limits.max_frame_bytes, limits.max_header_bytes)
        self.state = _PREAMBLE if limits.proxy_protocol else _FRAMES
        # True over a reserved slot, until the peer has registered a broker: every frame, even a small one, begins with
        # an event for its header
        self.must_register = False
        # True while the current frame is small, and was accepted by its header
        self._is_accepted = False
        # True if nothing is buffered, and a small frame needs no decision: the fast path may answer a read as one frame
        self.is_idle = False
        # received bytes of an incomplete PROXY header
        self._preamble = b""
        # the last header event, None after `drop_body` and after a complete large frame
        self.header: HeaderReceived | None = None
        # the body that is being received; in HEADER, None unless its beginning was dropped
        self._body: _LargeBody | _DroppedBody | None = None
        self._note_idle()

    def __repr__(self) -> str:
        return f"<Receiver [{self.state.name} | {self.held_bytes} bytes]>"

    @property
    def held_bytes(self) -> int:
        """Bytes of buffered input, without an accepted body.

        Of a waiting frame whose beginning was dropped, only the header is left.
        """
        size = len(self._preamble) + self._reader.held_bytes
        if self.state is _HEADER and self.header is not None and self._body is not None:
            size += len(self.header.header.header)
        return size

    @property
    def is_inside_frame(self) -> bool:
        """Whether a frame or PROXY header is received in part, whole frames are left, or a frame awaits a decision."""
        return self.state is _BODY or self.state is _HEADER or bool(self._preamble) or self._reader.is_inside_frame

    def receive_data(self, data: bytes) -> None:
        """Buffer received data; `next_event` returns the events."""
        # A read that begins inside a frame was not offered to the fast path as one frame, and costs one frame more.
        self._share.spend(READ_COST + copy_cost(len(data)) + (0 if self.is_idle else FRAME_COST))
        self.is_idle = False
        if self.state is _PREAMBLE:
            self._preamble += data
        elif self.state is not _ENDED:
            rest = data if self._body is None else self._body.fill(data)
            if rest:
                self._reader.feed(rest)

    def next_event(self) -> Event | None:
        """The next event; None if more data is needed, or a frame waits for `accept` or `drop_body`."""
        event: Event | None = None
        if self.state is not _FRAMES:
            event = self._leading_event()
        if event is None and self.state is _FRAMES:
            if self._is_accepted or not self.must_register:
                event = self._reader.next_frame(self._limits.small_frame_bytes)
            if event is None:
                event = self._begun_frame()
            else:
                self._is_accepted = False
        if event is not None:
            self._share.left -= FRAME_COST
        return event

    def accept(self) -> None:
        """Receive the frame of the last header event."""
        header = self._waiting_header()
        if header.size <= self._limits.small_frame_bytes:
            self._is_accepted = True
            self._go(_FRAMES)
        else:
            self._begin_body(_LargeBody(header.header, _body_bytes(header)))
            self._go(_BODY)

    def drop_body(self) -> None:
        """Drop the body of the frame of the last header event."""
        self.drop_beginning()
        self.header = None
        self._go(_BODY)

    def drop_beginning(self) -> None:
        """Drop the received part of a waiting frame's body; later, the caller can only call `drop_body`."""
        if self.keeps_beginning:
            self._begin_body(_DroppedBody(_body_bytes(self._waiting_header())))

    @property
    def keeps_beginning(self) -> bool:
        """Whether a frame waits for a decision, and can be accepted, since its beginning was not dropped."""
        return self.state is _HEADER and self._body is None

    @property
    def is_body_accepted(self) -> bool:
        """Whether the next bytes are the body of an accepted frame, for which memory is reserved."""
        return self.state is _BODY and self.header is not None

    def require_registration(self) -> None:
        """Return the header of every frame as an event before the frame, until `confirm_broker`."""
        self.must_register, self.is_idle = True, False

    def confirm_broker(self) -> None:
        """Return small frames without an event for the header: the peer has registered a broker."""
        self.must_register = False
        self._note_idle()

    def end(self) -> None:
        """Discard buffered data, and ignore all further data."""
        self._go(_ENDED)
        self._reader = FrameReader()
        self._body = self.header = None
        self._preamble = b""
        self.is_idle = False

    def _go(self, state: State) -> None:
        assert state in TRANSITIONS[self.state]  # noqa: S101 - a bug of the receiver's or its caller's
        self.state = state

    def _note_idle(self) -> None:
        self.is_idle = self.state is _FRAMES and not self.must_register and not self._reader.held_bytes

    def _leading_event(self) -> Frame | ProxyHeader | RemoteProtocolError | None:
        """The event of a body or preamble that is complete, before the next frame."""
        if self.state is _BODY:
            return self._body_event()
        return self._preamble_event() if self.state is _PREAMBLE else None

    def _begun_frame(self) -> HeaderReceived | RemoteProtocolError | None:
        """The header of the next frame if a decision about the frame is due, or the error that the reader found."""
        reader = self._reader
        size = reader.next_size()
        if reader.error is not None:
            return reader.error
        is_announced = size > self._limits.small_frame_bytes or (self.must_register and not self._is_accepted)
        if is_announced and (begin := reader.next_header()) is not None:
            self.header = HeaderReceived(cut_frame(begin), size)
            self._go(_HEADER)
            return self.header
        self._note_idle()
        return None

    def _body_event(self) -> Frame | None:
        """The large frame once it is complete; None if it is not, or if its body was dropped."""
        body = self._body
        if body is None or body.left:
            return None
        self._body = self.header = None
        self._go(_FRAMES)
        return body.frame()

    def _preamble_event(self) -> ProxyHeader | RemoteProtocolError | None:
        begin = self._preamble
        try:
            header = read_proxy_header(begin) if begin else None
        except RemoteProtocolError as error:
            return without_traceback(error)
        if header is None:
            return None
        self._preamble = b""
        self._go(_FRAMES)
        self._reader.feed(begin[header.size :])
        return header if header.size else None

    def _waiting_header(self) -> HeaderReceived:
        assert self.state is _HEADER and self.header is not None  # noqa: S101, PT018 - a bug of the caller's
        return self.header

    def _begin_body(self, body: _LargeBody | _DroppedBody) -> None:
        header = self._waiting_header()
        begin = self._reader.take(header.size)
        self._body = body
        body.fill(begin[HEAD.size + len(header.header.header) :])


def _body_bytes(header: HeaderReceived) -> int:
    return header.size - HEAD.size - len(header.header.header)
