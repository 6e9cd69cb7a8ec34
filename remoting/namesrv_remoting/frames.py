"""Frames: cutting a stream of bytes into messages.

u32 length | u8 serialize type | u24 header length | header | body, big endian; `length` counts everything after itself.
"""

from struct import Struct
from typing import Final, NamedTuple

from namesrv_remoting.codes import SerializeType
from namesrv_remoting.errors import LocalProtocolError, RemoteProtocolError

# 16 MiB, as in NettyDecoder; counts the four length bytes too. An HTTP or TLS client that dials this port decodes as a
# length far beyond it and is refused after four bytes.
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
# A header has names, addresses and a few numbers; Java's largest is under 2 KiB. 64 KiB leaves room for 255 ext fields,
# and bounds the size of the decoded header.
MAX_HEADER_BYTES: Final = 64 * 1024
# The header length has three bytes; a larger one would overwrite the serialize type.
MAX_ENCODED_HEADER_BYTES: Final = (1 << 24) - 1

LENGTH: Final = Struct(">I")
HEAD: Final = Struct(">II")
# the first two bytes of a TLS record: handshake or alert, and the major version
_TLS_RECORDS: Final = (0x1603, 0x1503)
# the first bytes of an HTTP response, "HTTP", read as a length
_HTTP_RESPONSE: Final = 0x48545450
_SERIALIZE_TYPES: Final = frozenset(SerializeType)


class Frame(NamedTuple):
    """One frame, cut from the stream but not decoded."""

    serialize_type: int
    header: bytes
    body: bytes


def encode_frame(
    serialize_type: int, header: bytes, body: bytes = b"", *, max_frame_bytes: int = MAX_FRAME_BYTES
) -> bytes:
    """The bytes of one frame. Raises LocalProtocolError if it, or its header, is too large."""
    length = 4 + len(header) + len(body)
    if length + 4 > max_frame_bytes:
        raise LocalProtocolError(f"frame of {length + 4} bytes, limit {max_frame_bytes}")
    if len(header) > MAX_ENCODED_HEADER_BYTES:
        raise LocalProtocolError(f"header of {len(header)} bytes, limit {MAX_ENCODED_HEADER_BYTES}")
    return b"%b%b%b" % (HEAD.pack(length, serialize_type << 24 | len(header)), header, body)


def needed_bytes(data: bytes | bytearray | memoryview, at: int, max_frame_bytes: int, max_header_bytes: int) -> int:
    """The number of bytes that are needed to continue with the frame at `at`; once its head is there, its full size.

    Raises RemoteProtocolError for a malformed or too large frame as soon as its length has arrived, before any of the
    announced bytes are kept.
    """
    there = len(data) - at
    if there < 4:
        return 4
    length: int = LENGTH.unpack_from(data, at)[0]
    if length > max_frame_bytes - 4:
        if length >> 16 in _TLS_RECORDS:
            raise RemoteProtocolError("TLS received where plain text is expected", reason="tls")
        if length == _HTTP_RESPONSE:
            raise RemoteProtocolError(
                "HTTP response received: the peer's port is for HTTP, perhaps that of --http-listen",
                reason="frame_too_large",
            )
        raise RemoteProtocolError(f"frame of {length + 4} bytes, limit {max_frame_bytes}", reason="frame_too_large")
    if length < 4:
        raise RemoteProtocolError(f"frame length {length}, minimum 4", reason="frame_too_short")
    if there < 8:
        return 8
    (word,) = LENGTH.unpack_from(data, at + 4)
    serialize_type, header_length = word >> 24, word & 0xFFFFFF
    if serialize_type not in _SERIALIZE_TYPES:
        raise RemoteProtocolError(
            f"unknown serialize type {serialize_type}, expected 0, 1 or 77", reason="serialize_type"
        )
    if header_length > length - 4:
        raise RemoteProtocolError(f"header of {header_length} bytes in a frame of {length}", reason="header_length")
    if header_length > max_header_bytes:
        raise RemoteProtocolError(
            f"header of {header_length} bytes, limit {max_header_bytes}", reason="header_too_large"
        )
    return 4 + length


def cut_frame(data: memoryview, at: int, end: int) -> Frame:
    """The frame between `at` and `end`, positions that follow from `needed_bytes`."""
    (word,) = LENGTH.unpack_from(data, at + 4)
    body_at = at + 8 + (word & 0xFFFFFF)
    return Frame(word >> 24, bytes(data[at + 8 : body_at]), bytes(data[body_at:end]))


class FrameReader:
    """Cuts a stream of bytes, received in pieces of any size, into frames.

    A protocol error is stored in `error` instead of being raised: frames before the error are still delivered, and no
    frame is delivered after it.
    """

    __slots__ = ("_buffer", "_max_frame_bytes", "_max_header_bytes", "_needed", "error")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES, max_header_bytes: int = MAX_HEADER_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._max_header_bytes = max_header_bytes
        # the beginning of an incomplete frame
        self._buffer = bytearray()
        # the size that the buffer must reach before it is examined again
        self._needed = 0
        # the protocol error that ended the stream
        self.error: RemoteProtocolError | None = None

    @property
    def is_inside_frame(self) -> bool:
        """True if a frame has begun and is not complete."""
        return bool(self._buffer)

    def receive_data(self, data: bytes) -> list[Frame]:
        """The frames that are complete now; check `error` afterwards."""
        frames: list[Frame] = []
        if self.error is not None:
            return frames
        received: bytes | bytearray = data
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return frames
            received, self._buffer = self._buffer, bytearray()
        # A memoryview, so that a frame of megabytes is copied only once.
        with memoryview(received) as view:
            at = 0
            try:
                while at < len(view):
                    self._needed = needed_bytes(view, at, self._max_frame_bytes, self._max_header_bytes)
                    if len(view) - at < self._needed:
                        self._buffer += view[at:]
                        break
                    frames.append(cut_frame(view, at, at + self._needed))
                    at += self._needed
            except RemoteProtocolError as error:
                self.error = error
        return frames
